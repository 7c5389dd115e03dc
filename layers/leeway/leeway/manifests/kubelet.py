"""The kubelet's settings as Karpenter's kinds have them."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from leeway.manifests.amounts import Amount
from leeway.manifests.base import Duration, NotActedOn, Strict
from leeway.selection.offers.node_class import Kubelet
from leeway.selection.resources import Resources

KUBELET = "leeway.sh/kubelet"
"""The annotation by which a NodePool that was a Provisioner keeps its kubelet's settings: since
then they belong to the node class."""

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
    """How the kubelet of a node is set."""

    cluster_dns: Annotated[tuple[str, ...], Field(alias="clusterDNS")] = ()
    """Addresses of the cluster's DNS server."""
    max_pods: Annotated[int, Field(ge=0)] | None = None
    """How many pods a node takes, whatever its addresses would allow."""
    pods_per_core: Annotated[int, Field(ge=0)] | None = None
    """How many pods a node takes for each of its vCPUs at most; 0 is no limit."""
    system_reserved: Reserved = Field(default_factory=dict)
    """Resources kept for the operating system."""
    kube_reserved: Reserved = Field(default_factory=dict)
    """Resources kept for Kubernetes' own daemons, in place of what the image would reserve."""
    eviction_hard: dict[Signal, Threshold] = Field(default_factory=dict)
    """Thresholds at which pods are evicted at once: amounts, or shares of what there is."""
    eviction_soft: dict[Signal, Threshold] = Field(default_factory=dict)
    """Thresholds at which pods are evicted after a grace period."""
    eviction_soft_grace_period: dict[Signal, Duration] = Field(default_factory=dict)
    """The grace period of each soft threshold."""
    eviction_max_pod_grace_period: int | None = None
    """The longest grace of a pod that a soft threshold evicts, in seconds."""
    image_gc_high_threshold_percent: Annotated[
        Percent | None, Field(alias="imageGCHighThresholdPercent")
    ] = None
    """Disk usage from which images are removed."""
    image_gc_low_threshold_percent: Annotated[
        Percent | None, Field(alias="imageGCLowThresholdPercent")
    ] = None
    """Disk usage down to which images are removed."""
    cpu_cfs_quota: Annotated[bool | None, Field(alias="cpuCFSQuota")] = None
    """Whether cpu limits are enforced."""

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
        """Return what selection needs of it."""
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
    """How a Provisioner sets the kubelet."""

    container_runtime: Annotated[Any, NotActedOn("nodes run containerd")] = None
    """The container runtime."""
