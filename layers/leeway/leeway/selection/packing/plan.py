"""What packing comes to: nodes to launch, pods on nodes that are there, pods without a place."""

from dataclasses import dataclass

from leeway.reasons import Reason
from leeway.selection.packing.supply import Candidate
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class Choice:
    """A request for one node: the types and zones that would do, the cheapest first, all of one
    capacity type. `price` is the cheapest one's in USD per hour, None where none is known."""

    capacity_type: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    price: float | None


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node to be launched for these pods. `requests` are theirs, without the daemons'.

    `choices` are in the order in which they are to be tried, within one call.
    """

    cheapest: Candidate
    pods: tuple[str, ...]
    requests: Resources
    choices: tuple[Choice, ...]

    @property
    def pool(self) -> str:
        """Its node pool."""
        return self.cheapest.pool.name


@dataclass(frozen=True, slots=True)
class Placement:
    """Pods that go onto a node which is there."""

    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """A pod that fits nowhere, and what came nearest to it."""

    pod: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan. `price` of its new nodes and the least that any plan for their pods could cost
    are in USD per hour."""

    launches: tuple[PlannedNode, ...]
    existing: tuple[Placement, ...]
    unschedulable: tuple[Unschedulable, ...]
    price: float
    bound: float
