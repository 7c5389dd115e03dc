"""The kubelet settings of Karpenter's kinds."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from leeway.manifests.amounts import Amount
from leeway.manifests.base import Duration, IpAddress, NotActedOn, Strict
from leeway.selection.offers.node_class import Kubelet
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


def _resources(amounts: Reserved) -> Resources:
    return Resources.parsed({str(name): text for name, text in amounts.items()})


class OldKubeletSettings(KubeletSettings):
    """Kubelet settings of a Provisioner."""

    container_runtime: Annotated[Any, NotActedOn("nodes run containerd")] = None
    """Container runtime."""
