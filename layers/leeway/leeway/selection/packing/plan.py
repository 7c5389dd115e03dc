"""The result of packing: nodes to launch, pods on existing nodes, unschedulable pods and why.

It imports no numpy: functions that only read launches need none.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leeway.reasons import Reason, ReasonCode
from leeway.selection.offers.reservations import ReservedCapacity
from leeway.selection.resources import Resources

if TYPE_CHECKING:
    from leeway.selection.packing.supply import Candidate

_RUNBOOK = "a-pod-gets-no-node"

NO_NODE_POOL = ReasonCode(
    "NoNodePool",
    "No node pool launches nodes for pods. Add a NodePool without spec.replicas, or a Provisioner.",
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
RESERVATIONS_FULL = ReasonCode(
    "ReservationsFull",
    "The capacity reservations that the node pools select have no free instance for the pod, and "
    "the pools allow it no other capacity.",
    _RUNBOOK,
)
TOPOLOGY_UNSATISFIABLE = ReasonCode("TopologyUnsatisfiable", "{why}.", _RUNBOOK)


@dataclass(frozen=True, slots=True)
class Choice:
    """A launch request for one node: alternative types and zones, the cheapest first, of one
    capacity type; of reserved capacity, the type and the zone of one reservation. `price` is that
    of the cheapest in USD per hour, None if unknown. `unusable` are those of the types, each with
    one of the zones, that do not fit the pods."""

    capacity_type: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    price: float | None
    reservation: ReservedCapacity | None = None
    unusable: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node to launch for these pods. `requests` are those of the pods without DaemonSets.

    `choices` are in the order in which one call tries them.
    """

    cheapest: "Candidate"
    pods: tuple[str, ...]
    requests: Resources
    choices: tuple[Choice, ...]

    @property
    def pool(self) -> str:
        """The name of its node pool."""
        return self.cheapest.pool.name


@dataclass(frozen=True, slots=True)
class Placement:
    """Pods that are assigned to an existing node."""

    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """A pod that no node fits, and the reason."""

    pod: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete plan. `price` is that of the new nodes, `bound` a lower bound of the price of any
    plan for their pods; both in USD per hour."""

    launches: tuple[PlannedNode, ...]
    existing: tuple[Placement, ...]
    unschedulable: tuple[Unschedulable, ...]
    price: float
    bound: float
