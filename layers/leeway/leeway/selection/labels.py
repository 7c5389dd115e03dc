"""The node labels that selection knows, and their older names."""

from collections.abc import Collection

CAPACITY_TYPE = "karpenter.sh/capacity-type"
NODEPOOL = "karpenter.sh/nodepool"
NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
"""Set to `true` on a node of a pool that was Ready once, without its startup taints."""
UNREGISTERED = "karpenter.sh/unregistered"
"""The taint that the user data of Karpenter's Custom AMI family registers nodes with, until they
have the labels and taints of their pool. Source: Karpenter documentation, "NodeClasses"."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
"""The taint that a node has until the cloud provider has described it. Source: Kubernetes
documentation, "Well-Known Labels, Annotations and Taints"."""
READINESS = "readiness.k8s.io/"
"""The prefix of taints that a node has until the rules of the Node Readiness Controller hold."""
STARTING = frozenset(
    {
        "ebs.csi.aws.com/agent-not-ready",
        UNINITIALIZED,
        UNREGISTERED,
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
)
"""Keys of taints that any node may have while it starts. Sources: Kubernetes, "Well-Known Labels,
Annotations and Taints"; aws-ebs-csi-driver, "Node startup taint"."""
LAUNCHED = "leeway.sh/launched"
"""Set to `true` by the user data of every node that Leeway launches. The admission policy lets
admission set labels and taints only on nodes with this label, or with the taint UNREGISTERED."""
JOINED = {REGISTERED: "true", INITIALIZED: "true"}
"""The labels that every initialized node of a pool has."""
ZONE = "topology.kubernetes.io/zone"
ZONE_ID = "topology.k8s.aws/zone-id"
"""The ID of a zone, which is the same in every account; zone names differ between accounts."""
REGION = "topology.kubernetes.io/region"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
HOSTNAME = "kubernetes.io/hostname"
INSTANCE = "karpenter.k8s.aws/instance-"
"""The prefix of the labels that describe an instance type."""
FAMILY = f"{INSTANCE}family"
HYPERVISOR = f"{INSTANCE}hypervisor"
TENANCY, SHARED = f"{INSTANCE}tenancy", "default"
"""Every instance that Leeway launches has shared tenancy, which EC2 and Karpenter call default."""

RESERVED, SPOT, ON_DEMAND = "reserved", "spot", "on-demand"
CAPACITY_TYPES = (RESERVED, SPOT, ON_DEMAND)
"""In the order in which they are chosen."""

RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id"
RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type"
RESERVATION_INTERRUPTIBLE = "karpenter.k8s.aws/capacity-reservation-interruptible"
RESERVATION_LABELS = (RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE)
"""The labels of nodes that run in a capacity reservation; no other node has them."""

INSTANCE_LABELS = tuple(
    f"{INSTANCE}{name}"
    for name in (
        "category",
        "family",
        "generation",
        "size",
        "cpu",
        "cpu-manufacturer",
        "cpu-sustained-clock-speed-mhz",
        "memory",
        "ebs-bandwidth",
        "network-bandwidth",
        "local-nvme",
        "hypervisor",
        "capability-flex",
        "encryption-in-transit-supported",
        "gpu-name",
        "gpu-manufacturer",
        "gpu-count",
        "gpu-memory",
        "accelerator-name",
        "accelerator-manufacturer",
        "accelerator-count",
    )
)

WELL_KNOWN = frozenset(
    {
        CAPACITY_TYPE,
        *RESERVATION_LABELS,
        NODEPOOL,
        ZONE,
        ZONE_ID,
        REGION,
        INSTANCE_TYPE,
        ARCH,
        OS,
        WINDOWS_BUILD,
        TENANCY,
        *INSTANCE_LABELS,
    }
)

# Older names of the same labels. Source: Kubernetes "Well-Known Labels, Annotations and Taints";
# the zone label of the EBS driver's volumes; Provisioners are now NodePools.
ALIASES = {
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "topology.ebs.csi.aws.com/zone": ZONE,
    "karpenter.sh/provisioner-name": NODEPOOL,
}


def is_startup_taint(key: str, keys: Collection[str] = STARTING) -> bool:
    """Whether a node has the taint with this key only until it has started."""
    return key in keys or key.startswith(READINESS)


def normalised(key: str) -> str:
    """Return the current name of a label."""
    return ALIASES.get(key, key)


def short(key: str) -> str:
    """Return a known label's name without its prefix, for messages; other names are unchanged."""
    return key.rpartition("/")[2] if key in WELL_KNOWN else key
