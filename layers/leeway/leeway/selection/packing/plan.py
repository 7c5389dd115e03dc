"""The result of packing: nodes to launch, pods on existing nodes, unschedulable pods."""

from dataclasses import dataclass

from leeway.reasons import Reason
from leeway.selection.packing.supply import Candidate
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class Choice:
    """A launch request for one node: alternative types and zones, the cheapest first, of one
    capacity type. `price` is that of the cheapest in USD per hour, None if unknown."""

    capacity_type: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    price: float | None


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node to launch for these pods. `requests` are those of the pods without DaemonSets.

    `choices` are in the order in which one call tries them.
    """

    cheapest: Candidate
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
