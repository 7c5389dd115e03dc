"""The kubelet settings of Karpenter's kinds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from leeway.manifests.base import Duration, IpAddress, Strict, near_miss
from leeway.manifests.fields import Amount
from leeway.selection.offers.allocatable import Kubelet
from leeway.selection.reading.objects import shown
from leeway.selection.resources import Resources

KUBELET = "leeway.sh/kubelet"
"""The annotation with the kubelet settings of a NodePool that was converted from a Provisioner or
from v1beta1. In v1 these settings belong to the node class."""

Signal = Literal[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
]
Threshold = Annotated[
    str,
    StringConstraints(
        pattern=r"^((\d{1,2}(\.\d{1,2})?|100(\.0{1,2})?)%"
        r"|(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3})?)$",
        max_length=64,
    ),
]
Reserved = dict[Literal["cpu", "memory", "ephemeral-storage", "pid"], Amount]
Percent = Annotated[int, Field(ge=0, le=100)]


class KubeletSettings(Strict):
    """Kubelet settings of a node."""

    cluster_dns: Annotated[tuple[IpAddress, ...], Field(alias="clusterDNS")] = ()
    """Addresses of the cluster\'s DNS servers."""
    max_pods: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of pods on a node, in place of the number that its IP addresses allow."""
    pods_per_core: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of pods for each vCPU; 0 means no limit."""
    system_reserved: Reserved = Field(default_factory=dict)
    """Resources reserved for the operating system."""
    kube_reserved: Reserved = Field(default_factory=dict)
    """Resources reserved for Kubernetes daemons, in place of the defaults of the image."""
    eviction_hard: dict[Signal, Threshold] = Field(default_factory=dict)
    """Thresholds at which the kubelet evicts pods at once: quantities or percentages."""
    eviction_soft: dict[Signal, Threshold] = Field(default_factory=dict)
    """Thresholds at which the kubelet evicts pods after a grace period. Not subtracted from the
    allocatable resources."""
    eviction_soft_grace_period: dict[Signal, Duration] = Field(default_factory=dict)
    """Grace period of each soft threshold."""
    eviction_max_pod_grace_period: int | None = None
    """Maximum grace period, in seconds, of a pod that is evicted for a soft threshold."""
    image_gc_high_threshold_percent: Annotated[
        Percent | None, Field(alias="imageGCHighThresholdPercent")
    ] = None
    """Disk usage, in percent, at which the kubelet begins to remove images."""
    image_gc_low_threshold_percent: Annotated[
        Percent | None, Field(alias="imageGCLowThresholdPercent")
    ] = None
    """Disk usage, in percent, at which the kubelet stops removing images."""
    cpu_cfs_quota: Annotated[bool | None, Field(alias="cpuCFSQuota")] = None
    """Whether the kubelet enforces CPU limits."""

    @model_validator(mode="after")
    def _thresholds_match(self) -> Self:
        high, low = self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent
        if high is not None and low is not None and high <= low:
            raise ValueError(
                "imageGCHighThresholdPercent: expected more than imageGCLowThresholdPercent"
            )
        alone = sorted(self.eviction_soft.keys() ^ self.eviction_soft_grace_period.keys())
        if alone:
            raise ValueError(
                f"expected both evictionSoft and evictionSoftGracePeriod for {alone[0]}"
            )
        return self

    def settings(self) -> Kubelet:
        """Return the settings that selection uses."""
        return Kubelet(
            max_pods=self.max_pods,
            pods_per_core=self.pods_per_core,
            kube_reserved=_resources(self.kube_reserved),
            system_reserved=_resources(self.system_reserved),
            eviction_hard={str(k): v for k, v in self.eviction_hard.items()},
        )


_Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_GoDuration = Annotated[
    str, StringConstraints(pattern=r"^(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+)$")
]

_PASSED: tuple[tuple[Any, str, str], ...] = (
    (
        bool,
        "true or false",
        """enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers
        enableContentionProfiling cgroupsPerQOS singleProcessOOMKill runOnce serializeImagePulls
        mergeDefaultEvictionSettings enableControllerAttachDetach protectKernelDefaults
        makeIPTablesUtilChains failSwapOn kernelMemcgNotification enableSystemLogHandler
        enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault
        registerNode localStorageCapacityIsolation failCgroupV1""",
    ),
    (
        _Int32,
        "a whole number",
        """port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort
        oomScoreAdj nodeLeaseDurationSeconds nodeStatusMaxImages kubeAPIQPS kubeAPIBurst
        maxParallelImagePulls iptablesMasqueradeBit iptablesDropBit containerLogMaxFiles
        containerLogMaxWorkers""",
    ),
    (int, "a whole number", "podPidsLimit maxOpenFiles"),
    (float, "a number", "memoryThrottlingFactor"),
    (
        str,
        "text",
        """staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion
        imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain kubeletCgroups
        systemCgroups cgroupRoot cgroupDriver cpuManagerPolicy memoryManagerPolicy
        topologyManagerPolicy topologyManagerScope hairpinMode podCIDR resolvConf contentType
        containerLogMaxSize configMapAndSecretChangeDetectionStrategy reservedSystemCPUs
        showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup volumePluginDir
        providerID memoryReservationPolicy containerRuntimeEndpoint imageServiceEndpoint""",
    ),
    (
        _GoDuration,
        "a duration such as 90s or 2m30s",
        """syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout
        nodeStatusUpdateFrequency nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge
        volumeStatsAggPeriod cpuManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod
        evictionPressureTransitionPeriod containerLogMonitorInterval shutdownGracePeriod
        shutdownGracePeriodCriticalPods""",
    ),
    (
        list[str],
        "a list of text",
        """tlsCipherSuites preloadedImagesVerificationAllowlist enforceNodeAllocatable
        allowedUnsafeSysctls""",
    ),
    (list[_Int32], "a list of whole numbers", "tlsCurvePreferences"),
    (
        dict[str, str],
        "a map of text",
        "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved",
    ),
    (dict[Signal, Threshold], "a threshold for each eviction signal", "evictionMinimumReclaim"),
    (dict[str, list[str]], "a map of lists", "staticPodURLHeader"),
    (dict[str, bool], "a map of true and false", "featureGates"),
    (
        dict[str, Any],
        "an object",
        """authentication authorization memorySwap logging crashLoopBackOff tracing userNamespaces
        systemPartition""",
    ),
    (
        list[dict[str, Any]],
        "a list of objects",
        "reservedMemory shutdownGracePeriodByPodPriority",
    ),
)
"""The fields of KubeletConfiguration that Leeway only passes on: their types, the words for these,
and their names. Source: `kubelet.config.k8s.io/v1beta1`, `types.go` of Kubernetes 1.36."""

PASSED: Mapping[str, tuple[Any, str]] = {
    name: (kind, words) for kind, words, names in _PASSED for name in names.split()
}


class KubeletConfiguration(KubeletSettings):
    """Kubelet settings of a node. Nodes of the family AL2023 get every other field of the kubelet's
    configuration too, as it is written here."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _passes_on_what_a_kubelet_reads(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if name == "registerWithTaints":
                raise ValueError(f"{name}: expected taints in the NodePool, in spec.template.spec")
            if name not in PASSED:
                raise ValueError(f"{name}: unknown field{near_miss(name, _FIELDS)}")
            kind, words = PASSED[name]
            try:
                TypeAdapter(kind | None).validate_python(value, strict=True)
            except ValidationError:
                raise ValueError(f"{name}: expected {words}, got {shown(value)}") from None
        return self


_FIELDS = sorted({*PASSED, *(field.alias or "" for field in KubeletSettings.model_fields.values())})


def _resources(amounts: Reserved) -> Resources:
    return Resources.parsed({str(name): text for name, text in amounts.items()})
