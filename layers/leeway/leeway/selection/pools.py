"""A pool of nodes: what may be launched for it, and which pods its nodes let in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leeway.selection.offers.node_class import NodeClass
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint, in Kubernetes' words."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool as selection sees it.

    `requirements` hold the labels too that its nodes are given. Of pools that would do, the one of
    the larger `weight` is taken. `limits` are what all its nodes together may have: a resource
    that is not named is not limited, "nodes" is their number.
    """

    name: str
    requirements: Requirements = field(default_factory=Requirements)
    weight: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] | None = None
    node_class: NodeClass = field(default_factory=NodeClass)

    def __hash__(self) -> int:
        return hash((self.name, self.requirements))

    def left(self, used: Resources) -> Mapping[str, int] | None:
        """Return what its limits leave beside what is used already; None: it has no limits."""
        if self.limits is None:
            return None
        return {name: limit - used.of(name) for name, limit in self.limits.items()}
