"""What a simulated day records: each minute, and each node that came or went; and which returns
were undone too soon."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from leeway.disruption.rules import Cause
from leeway.policy.rules import Worth

_MINUTE = timedelta(minutes=1)


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


def undone(record: Record, worth: Worth) -> list[GivenBack]:
    """Return the replacements that a later plan undid: it gave the successor back because it was
    not used well, before the saving had paid for the moved pods."""
    left_at = {
        one.node: one.minute for one in record.given_back if one.cause is Cause.UNDERUTILIZED
    }
    found = []
    for one in record.given_back:
        successors = [each.node for each in record.launched if one.node in each.replaces]
        ends = [left_at[name] for name in successors if name in left_at]
        if one.saving and ends and not _has_paid(one, min(ends), worth):
            found.append(one)
    return found


def replaced_twice(record: Record, after: timedelta) -> list[GivenBack]:
    """Return the successors of replaced nodes that were given back themselves within
    consolidateAfter of their launch."""
    launched_at = {one.node: one.minute for one in record.launched if one.replaces}
    return [
        one
        for one in record.given_back
        if one.node in launched_at and (one.minute - launched_at[one.node]) * _MINUTE < after
    ]


def bought_again(record: Record, worth: Worth) -> list[GivenBack]:
    """Return the nodes that were needed again too soon: before the saving had paid for the moved
    pods, a node of the same instance type and capacity type was launched, though the pods that use
    its pool requested no more than when it was given back.

    A launch for pods of interrupted nodes does not count: it replaces what EC2 took. Nor does the
    successor of nodes that it replaces. Each launch counts for one node at most.
    """
    left = [one for one in record.given_back if one.cause is Cause.UNDERUTILIZED]
    found = []
    for launched in record.launched:
        if launched.lost or launched.replaces:
            continue
        for one in left:
            if _needs_again(launched, one) and not _has_paid(one, launched.minute, worth):
                found.append(one)
                left.remove(one)
                break
    return found


def _needs_again(launched: Launched, one: GivenBack) -> bool:
    more = any(now > then for now, then in zip(launched.requested, one.requested, strict=True))
    return launched.minute > one.minute and launched.kind == one.kind and not more


def _has_paid(one: GivenBack, minute: int, worth: Worth) -> bool:
    return one.saving * (minute - one.minute) / 60 >= worth.per_pod * one.pods
