"""A node pool: the nodes that may be launched for it, and their taints."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, as in Kubernetes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """As kubectl writes it: `key=value:effect`, or `key:effect` without a value."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool as selection uses it.

    `requirements` include the labels of its nodes. Among pools that fit, the one with the larger
    `weight` is used. `limits` apply to all its nodes together: a resource that is not named is
    unlimited, "nodes" is the number of nodes.
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
        """Return its limits less the used resources; None if it has no limits."""
        if self.limits is None:
            return None
        return {name: limit - used.of(name) for name, limit in self.limits.items()}
