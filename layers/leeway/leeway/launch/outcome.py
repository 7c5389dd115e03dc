"""The outcome of a launch: instances, pods without a node, and reasons."""

from dataclasses import dataclass

from leeway.launch.intent import FleetInstance
from leeway.reasons import Reason
from leeway.selection.packing.plan import Placement


@dataclass(frozen=True, slots=True)
class LaunchedNode:
    """An instance that was launched for a pool."""

    instance: FleetInstance
    pool: str
    intent: str


@dataclass(frozen=True, slots=True)
class PodWithoutNode:
    """A pod that gets no node, and the reason. `cause` is the reason without the name of the pod,
    the same for every pod with this cause."""

    pod: str
    reason: Reason
    cause: Reason


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """The outcome of one run.

    `launched` are the instances of this run, and those of a request that an earlier run left
    without an answer. `placed` are pods that have a place on nodes that exist or were launched.
    `reasons` are errors that were worked around, and warnings. `complete`: every pod gets a node.
    """

    launched: tuple[LaunchedNode, ...]
    placed: tuple[Placement, ...]
    without_node: tuple[PodWithoutNode, ...]
    reasons: tuple[Reason, ...]

    @property
    def complete(self) -> bool:
        """Whether every pod gets a node."""
        return not self.without_node
