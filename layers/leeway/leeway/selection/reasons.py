"""Reason codes of pods for which no plan has a node. `leeway select` shows them.

docs/packing.md lists the causes.
"""

from leeway.reasons import ReasonCode

_RUNBOOK = "a-pod-gets-no-node"

NO_NODE_POOL = ReasonCode(
    "NoNodePool",
    "There is no node pool. Add a NodePool or a Provisioner.",
    _RUNBOOK,
)
NO_NODE_POOL_MATCHES = ReasonCode(
    "NoNodePoolMatches",
    "No node pool can launch a node for the pod. {reasons}",
    _RUNBOOK,
)
TAINT_NOT_TOLERATED = ReasonCode(
    "TaintNotTolerated",
    "The pod does not tolerate the taint {taint} of node pool {pool}.",
    _RUNBOOK,
)
REQUIREMENTS_CONFLICT = ReasonCode(
    "RequirementsConflict",
    "The pod does not match the requirements of node pool {pool}: {conflict}.",
    _RUNBOOK,
)
NO_INSTANCE_TYPE_MATCHES = ReasonCode(
    "NoInstanceTypeMatches",
    "No instance type matches the requirements of the pod and of node pool {pool}: {cause}.",
    _RUNBOOK,
)
NO_OFFERING_AVAILABLE = ReasonCode(
    "NoOfferingAvailable",
    "Node pool {pool}: none of {types} is available as {capacity_types} in {region} at present.",
    _RUNBOOK,
)
FRACTIONAL_GPU_NOT_NAMED = ReasonCode(
    "FractionalGpuNotNamed",
    "Node pool {pool}: {types} has a fraction of a GPU. Such a type is launched only if the pod or "
    "the pool names its instance type or instance family.",
    _RUNBOOK,
)
HOST_PORT_IN_USE = ReasonCode(
    "HostPortInUse",
    "A DaemonSet uses the host port {ports} on every node of node pool {pool}.",
    _RUNBOOK,
)
REQUEST_TOO_LARGE = ReasonCode(
    "RequestTooLarge",
    "No instance type of node pool {pool} is large enough: {cause}.",
    _RUNBOOK,
)
MIN_VALUES_NOT_MET = ReasonCode(
    "MinValuesNotMet",
    "Too few instance types have room for the pod: node pool {pool} requires {min_values}.",
    _RUNBOOK,
)
POOL_LIMIT_REACHED = ReasonCode(
    "PoolLimitReached",
    "The limits of the node pools allow no further node for the pod.",
    _RUNBOOK,
)
TOPOLOGY_SPREAD_UNSATISFIABLE = ReasonCode(
    "TopologySpreadUnsatisfiable",
    "The topology spread constraint of the pod on {topology} cannot be met: {cause}.",
    _RUNBOOK,
)
POD_AFFINITY_UNSATISFIABLE = ReasonCode(
    "PodAffinityUnsatisfiable",
    "The pod affinity of the pod cannot be met: {cause}.",
    _RUNBOOK,
)
POD_ANTI_AFFINITY_UNSATISFIABLE = ReasonCode(
    "PodAntiAffinityUnsatisfiable",
    "Pod anti-affinity excludes the pod from every zone that it may use.",
    _RUNBOOK,
)
DEPENDENT_POD_UNSCHEDULABLE = ReasonCode(
    "DependentPodUnschedulable",
    "The topology spread constraint or the pod affinity of the pod depends on pods that are "
    "unschedulable themselves.",
    _RUNBOOK,
)
NO_ZONE_HAS_ROOM = ReasonCode(
    "NoZoneHasRoom",
    "No zone has a node for the pod: neither an existing node nor an offering of a node pool.",
    _RUNBOOK,
)
UNSUPPORTED_TOPOLOGY_KEY = ReasonCode(
    "UnsupportedTopologyKey",
    "The topologyKey {topology} of the pod's affinity or anti-affinity is not supported: use "
    "topology.kubernetes.io/zone or kubernetes.io/hostname.",
    _RUNBOOK,
)
