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
NO_NODE_POOL_MATCHES = ReasonCode("NoNodePoolMatches", "{why}.", _RUNBOOK)
NO_OFFERING_AVAILABLE = ReasonCode(
    "NoOfferingAvailable",
    "Node pool {pool}: none of {types} is available as {capacity_types} in {region} at present.",
    _RUNBOOK,
)
REQUEST_TOO_LARGE = ReasonCode(
    "RequestTooLarge",
    "No instance type of node pool {pool} is large enough: {cause}.",
    _RUNBOOK,
)
POOL_LIMIT_REACHED = ReasonCode(
    "PoolLimitReached",
    "The limits of the node pools allow no further node for the pod.",
    _RUNBOOK,
)
TOPOLOGY_UNSATISFIABLE = ReasonCode("TopologyUnsatisfiable", "{why}.", _RUNBOOK)
