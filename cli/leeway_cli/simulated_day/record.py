"""What a simulated day records: each minute, and each node that came or went."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from leeway.disruption.rules import Cause


@dataclass(frozen=True)
class Moment:
    """The cluster at the end of a minute.

    `price` and `bound` are USD per hour; `bound` is the least that any nodes for the pods of this
    minute cost. `kinds` counts nodes by instance type and capacity type.
    """

    minute: int
    price: float
    bound: float
    kinds: Mapping[tuple[str, str], int]
    pods: int
    pending: int

    @property
    def nodes(self) -> int:
        """The number of nodes, those that start included."""
        return sum(self.kinds.values())


@dataclass(frozen=True)
class GivenBack:
    """One node that was given back: when, what it was, why, and what was expected of it.

    `requested` are the requests of the pods that used its pool then (millicores, bytes). `saving`
    is in USD per hour; nodes that one node replaces share it by their pods.
    """

    minute: int
    node: str
    kind: tuple[str, str]
    cause: Cause
    reason: str
    saving: float
    pods: int
    replaced: bool
    requested: tuple[int, int]


@dataclass(frozen=True)
class Launched:
    """One node that was launched, for how many pods. `lost` of them ran on interrupted nodes,
    `moved` of them on nodes that were given back; `replaces` are the nodes that wait for it."""

    minute: int
    node: str
    kind: tuple[str, str]
    pods: int
    lost: int
    moved: int
    replaces: frozenset[str]
    requested: tuple[int, int]


@dataclass
class Record:
    """A simulated day. `interrupted` counts nodes, `moved` pods that voluntary retirements evicted,
    `lost` pods of interrupted nodes; `faults` are broken rules, each in one sentence."""

    moments: list[Moment] = field(default_factory=list)
    given_back: list[GivenBack] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)
    interrupted: int = 0
    moved: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def dollars(self) -> float:
        """What the nodes cost, in USD."""
        return sum(one.price for one in self.moments) / 60

    @property
    def bound(self) -> float:
        """The least that nodes cost which follow the pods in every minute, in USD."""
        return sum(one.bound for one in self.moments) / 60

    @property
    def node_hours(self) -> float:
        """The hours of all nodes."""
        return sum(one.nodes for one in self.moments) / 60

    @property
    def pending_minutes(self) -> int:
        """The minutes that pods waited for a node, of all pods together."""
        return sum(one.pending for one in self.moments)

    @cached_property
    def causes(self) -> Counter[str]:
        """How many nodes were given back for each cause; replacements are counted separately."""
        return Counter(
            f"{one.cause}, replaced" if one.replaced else str(one.cause) for one in self.given_back
        )
