"""EC2NodeClass of `karpenter.k8s.aws/v1`: the EC2 settings of nodes, and their kubelet settings."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from leeway.manifests.base import (
    NO_PLACEMENT_GROUPS,
    Amount,
    CapacityReservationTerm,
    Duration,
    IpAddress,
    Manifest,
    NotActedOn,
    Note,
    SecurityGroupTerms,
    Strict,
    SubnetTerms,
    Tags,
    Wrong,
    near_miss,
)
from leeway.selection.offers.allocatable import AmiFamily, Kubelet
from leeway.selection.reading.objects import shown
from leeway.selection.resources import Resources, quantity, whole

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
            raise Wrong(
                ("imageGCHighThresholdPercent",), "expected more than imageGCLowThresholdPercent"
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
    configuration too, as it is written here, also one that Leeway does not know: the kubelet logs a
    field that it does not know, and starts without it."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _passes_on_what_a_kubelet_can_read(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if name == "registerWithTaints":
                raise Wrong((name,), "expected taints in the NodePool, in spec.template.spec")
            if name not in PASSED:
                continue  # a newer kubelet may have the field: a note says that Leeway does not
            kind, words = PASSED[name]
            try:
                TypeAdapter(kind | None).validate_python(value, strict=True)
            except ValidationError:
                raise Wrong((name,), f"expected {words}, got {shown(value)}") from None
        return self


_FIELDS = sorted({*PASSED, *(field.alias or "" for field in KubeletSettings.model_fields.values())})


def _resources(amounts: Reserved) -> Resources:
    return Resources.parsed({str(name): text for name, text in amounts.items()})


_ALIASES = {family.value.lower(): family for family in AmiFamily if family != AmiFamily.CUSTOM}


def _is_alias(alias: str) -> str:
    family, at, version = alias.partition("@")
    if family not in _ALIASES or not at or not version:
        raise ValueError(
            f"expected FAMILY@VERSION such as al2023@latest, with a family of {', '.join(_ALIASES)}"
        )
    if _ALIASES[family].windows and version != "latest":
        raise ValueError("expected the version latest: Windows images cannot be pinned")
    return alias


class AmiTerm(Strict):
    """An image matches a term if it meets every field of the term."""

    alias: Annotated[str, StringConstraints(max_length=30), AfterValidator(_is_alias)] | None = None
    """Family and version of an EKS image, for example `al2023@latest`; the only field of the only
    term."""
    id: Annotated[str, StringConstraints(pattern=r"^ami-[0-9a-z]+$")] | None = None
    """ID of the image; the only field of its term."""
    name: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Name of the image (not its `Name` tag)."""
    owner: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Owner of the image: an account, `self`, `amazon` or `aws-marketplace`."""
    ssm_parameter: str | None = None
    """SSM parameter with the ID of the image; the only field of its term."""
    tags: Tags = Field(default_factory=dict)
    """Tags of the image; the value `*` matches any value."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        alone = sum(x is not None for x in (self.alias, self.id, self.ssm_parameter))
        with_others = self.name is not None or bool(self.tags)
        if alone + with_others != 1 or (alone and self.owner is not None):
            raise ValueError(
                "expected alias, id or ssmParameter alone, or a combination of name, owner and tags"
            )
        return self


def _is_size(size: str) -> str:
    read = quantity(size)
    if not 2**30 <= read.value <= 64 * 10**12 or not size.endswith(("Gi", "G", "Ti", "T")):
        raise ValueError("expected a size from 1Gi to 64T, in Gi, G, Ti or T")
    return size


class Volume(Strict):
    """An EBS volume."""

    volume_size: Annotated[str, AfterValidator(_is_size)] | None = None
    """Size, in Gi, G, Ti or T."""
    volume_type: Literal["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"] | None = None
    """Volume type."""
    iops: int | None = None
    """I/O operations per second."""
    throughput: int | None = None
    """Throughput in MiB per second, for gp3."""
    encrypted: bool | None = None
    """Whether the volume is encrypted."""
    kms_key_id: Annotated[str | None, Field(alias="kmsKeyID")] = None
    """KMS key of an encrypted volume."""
    snapshot_id: Annotated[str | None, Field(alias="snapshotID")] = None
    """Snapshot from which the volume is created."""
    delete_on_termination: bool | None = None
    """Whether EC2 deletes the volume when the instance terminates."""
    volume_initialization_rate: Annotated[int, Field(ge=100, le=300)] | None = None
    """Rate in MiB per second at which EC2 reads the snapshot."""

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if self.volume_size is None and self.snapshot_id is None:
            raise ValueError("expected volumeSize or snapshotID")
        return self


class BlockDevice(Strict):
    """A volume and its device name."""

    device_name: str | None = None
    """Device name, for example /dev/xvda."""
    ebs: Volume | None = None
    """EBS volume."""
    root_volume: bool = False
    """Whether the volume holds the kubelet's data."""


class MetadataOptions(Strict):
    """Access to the instance metadata service."""

    http_endpoint: Literal["enabled", "disabled"] = "enabled"
    """Whether the service is enabled."""
    http_protocol_ipv6: Annotated[
        Literal["enabled", "disabled"], Field(alias="httpProtocolIPv6")
    ] = "disabled"
    """Whether the service has an IPv6 endpoint."""
    http_put_response_hop_limit: Annotated[int, Field(ge=1, le=64)] = 1
    """Maximum number of network hops of a response; pods need 2."""
    http_tokens: Literal["required", "optional"] = "required"
    """Whether requests need a session token (IMDSv2)."""


class ConnectionTracking(Strict):
    """Timeouts of idle connections that EC2 tracks for security groups, in seconds, on the network
    interfaces of a launch. Only instance types of the Nitro System have them."""

    tcp_established_timeout: Annotated[int, Field(ge=60, le=432_000)] | None = None
    """Timeout of established TCP connections."""
    udp_stream_timeout: Annotated[int, Field(ge=60, le=180)] | None = None
    """Timeout of UDP flows with more than one request and response."""
    udp_timeout: Annotated[int, Field(ge=30, le=60)] | None = None
    """Timeout of other UDP flows."""

    @model_validator(mode="after")
    def _has_a_timeout(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("expected tcpEstablishedTimeout, udpStreamTimeout or udpTimeout")
        return self


def _no_nested_virtualization(value: object) -> object:
    if value == "enabled":
        raise ValueError(
            "expected disabled: Leeway does not know which instance types have it, and launches no "
            "nodes with nested virtualization"
        )
    return value


class CpuOptions(Strict):
    """CPU options of the nodes."""

    nested_virtualization: Annotated[
        Literal["disabled"] | None, BeforeValidator(_no_nested_virtualization)
    ] = None
    """Nested virtualization: Leeway launches no nodes with it."""


class NetworkInterface(Strict):
    """A network interface of a launch."""

    network_card_index: Annotated[int, Field(ge=0)]
    """Network card."""
    device_index: Annotated[int, Field(ge=0)]
    """Index of the interface on its network card."""
    interface_type: Literal["interface", "efa-only"]
    """Type of the interface."""


def _only_the_primary(interfaces: tuple[NetworkInterface, ...]) -> tuple[NetworkInterface, ...]:
    primary = {"network_card_index": 0, "device_index": 0, "interface_type": "interface"}
    if any(one.model_dump() != primary for one in interfaces) or len(interfaces) > 1:
        raise ValueError(
            "expected only the primary interface (networkCardIndex 0, deviceIndex 0, interfaceType "
            "interface): Leeway adds EFAs for pods that request them, and launches no nodes with "
            "other interfaces"
        )
    return interfaces


def _no_placement_group(value: object) -> object:
    if value is not None:
        raise ValueError(f"expected no placement group: {NO_PLACEMENT_GROUPS}")
    return value


class NodeClassFields(Strict):
    """The fields that all versions of an EC2NodeClass have."""

    ami_selector_terms: Annotated[tuple[AmiTerm, ...], Field(max_length=30)] = ()
    """Images of the nodes: those that match at least one term."""
    subnet_selector_terms: SubnetTerms | None = None
    """Subnets of the nodes: those that match at least one term."""
    security_group_selector_terms: SecurityGroupTerms | None = None
    """Security groups of the nodes: those that match at least one term."""
    role: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """Name of the nodes' IAM role."""
    instance_profile: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """Name of the nodes' instance profile; set either this or `role`."""
    user_data: str | None = None
    """User data of the nodes."""
    tags: Tags = Field(default_factory=dict)
    """Tags of instances and volumes."""
    block_device_mappings: Annotated[tuple[BlockDevice, ...], Field(max_length=50)] = ()
    """Volumes of the nodes. The size of the volume with the kubelet's data gives the ephemeral
    storage."""
    instance_store_policy: Literal["RAID0"] | None = None
    """`RAID0`: local NVMe disks hold the ephemeral storage of pods."""
    metadata_options: MetadataOptions = Field(default_factory=MetadataOptions)
    """Access to the instance metadata service."""
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = (
        None
    )
    """Whether nodes have public IP addresses."""
    detailed_monitoring: bool | None = None
    """Whether detailed CloudWatch monitoring is enabled."""
    context: Annotated[Any, NotActedOn("EC2 reserves this field")] = None
    """Reserved by EC2."""


class EC2NodeClassSpec(NodeClassFields):
    """EC2 settings of nodes. Fields that are not set take the Cluster's defaults."""

    ami_family: AmiFamily | None = None
    """AMI family of the nodes; the default is the family of the alias in amiSelectorTerms."""
    kubelet: KubeletConfiguration = Field(default_factory=KubeletConfiguration)
    """Kubelet settings. Nodes of AL2023 also get every other field of KubeletConfiguration."""
    ip_prefix_count: Annotated[int, Field(ge=0)] | None = None
    """Number of prefixes of 16 addresses on a network interface. With one or more, the maximum
    number of pods is calculated as with prefix delegation."""
    capacity_reservation_selector_terms: Annotated[
        tuple[CapacityReservationTerm, ...], Field(max_length=30)
    ] = ()
    """Capacity reservations that nodes are launched into first: those that match at least one
    term."""
    network_interfaces: Annotated[
        tuple[NetworkInterface, ...], AfterValidator(_only_the_primary)
    ] = ()
    """Network interfaces of the nodes: only the primary one. Leeway adds those of EFAs that pods
    request."""
    placement_group_selector: Annotated[Any, BeforeValidator(_no_placement_group)] = None
    """Placement group of the nodes: refused, as Leeway does not support placement groups."""
    cpu_options: CpuOptions = Field(default_factory=CpuOptions)
    """CPU options of the nodes."""
    connection_tracking: ConnectionTracking | None = None
    """Timeouts of connections that EC2 tracks. Without it, EC2's defaults apply."""

    @model_validator(mode="after")
    def _means_one_thing(self) -> Self:
        if self.role is not None and self.instance_profile is not None:
            raise ValueError("expected either role or instanceProfile")
        if sum(device.root_volume for device in self.block_device_mappings) > 1:
            raise Wrong(("blockDeviceMappings",), "expected at most one rootVolume")
        by_alias = self.alias_family
        if by_alias and len(self.ami_selector_terms) > 1:
            raise Wrong(("amiSelectorTerms",), "expected no other term besides the alias")
        if by_alias and self.ami_family not in {None, by_alias, AmiFamily.CUSTOM}:
            said = f"expected {by_alias} (the family of the alias) or Custom"
            raise Wrong(("amiFamily",), said)
        return self

    @property
    def alias_family(self) -> AmiFamily | None:
        """The family of the alias in amiSelectorTerms."""
        named = [term.alias for term in self.ami_selector_terms if term.alias]
        return _ALIASES[named[0].partition("@")[0]] if named else None

    @property
    def family(self) -> AmiFamily | None:
        """The AMI family; None if neither amiFamily nor an alias is set."""
        return self.ami_family or self.alias_family


class EC2NodeClass(Manifest):
    """The EC2 settings of nodes. `leeway types` and `leeway select` use the fields that change a
    node's allocatable resources."""

    api_version: Literal["karpenter.k8s.aws/v1"]
    kind: Literal["EC2NodeClass"]
    spec: EC2NodeClassSpec = Field(default_factory=EC2NodeClassSpec)
    """EC2 settings of the nodes."""

    summary_columns: ClassVar[tuple[str, ...]] = ("FAMILY", "ROLE")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec = self.spec
        return (spec.family or "by default", spec.role or spec.instance_profile or "by default")

    def notes(self) -> tuple[Note, ...]:
        """Warn also about AL2, which has no new images, settings that a family lacks, and prices
        without the licence of Windows."""
        found, family = [*super().notes()], self.spec.family
        if family is AmiFamily.BOTTLEROCKET and self.spec.kubelet.pods_per_core:
            said = "Bottlerocket does not support this setting; use maxPods"
            found.append(Note(("spec", "kubelet", "podsPerCore"), said))
        for name in sorted(self.spec.kubelet.model_extra or {}):
            path = ("spec", "kubelet", name)
            if family not in {None, AmiFamily.AL2023}:
                found.append(Note(path, f"ignored: Leeway does not set this on {family}"))
            elif name not in PASSED:
                guess = near_miss(name, _FIELDS)
                said = f"Leeway does not know this field, and nodes get it as it is written{guess}"
                found.append(Note(path, said))
        field = "amiFamily" if self.spec.ami_family else "amiSelectorTerms"
        if family is not None and family.windows:
            said = "Leeway counts the prices of Linux, so limits in money leave out the licences"
            found.append(Note(("spec", field), said))
        if family is AmiFamily.AL2:
            said = "EKS has published no AL2 images since November 2025; use AL2023"
            found.append(Note(("spec", field), said))
        return tuple(found)

    def storage(self, family: AmiFamily) -> int | None:
        """Return the size in bytes of the volume with the pods' ephemeral storage; None if no
        mapping sets it."""
        devices = self.spec.block_device_mappings
        root = [d for d in devices if d.root_volume]
        named = [d for d in devices if d.device_name == _DATA_DEVICE.get(family)]
        # The layout of a custom image is not known: its last volume is treated as the data volume.
        found = root or named or (list(devices[-1:]) if family is AmiFamily.CUSTOM else [])
        sizes = [d.ebs.volume_size for d in found if d.ebs and d.ebs.volume_size]
        return whole(sizes[0]) if sizes else None


# The device with the kubelet's data in the images of each family.
_DATA_DEVICE = {
    AmiFamily.AL2: "/dev/xvda",
    AmiFamily.AL2023: "/dev/xvda",
    AmiFamily.BOTTLEROCKET: "/dev/xvdb",
    AmiFamily.WINDOWS_2019: "/dev/sda1",
    AmiFamily.WINDOWS_2022: "/dev/sda1",
    AmiFamily.WINDOWS_2025: "/dev/sda1",
}
