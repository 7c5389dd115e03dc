"""The report of a simulated day: what giving nodes back saves, and what it moves.

Three days have the same pods: one in which Leeway gives nodes back, one in which it gives back only
empty nodes, and one in which no node is given back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from leeway.disruption.rules import Cause

from leeway_cli.simulated_day.record import GivenBack, Moment, Record

CAUSES = {
    "empty": "no pods are left",
    "not-needed": "pods fit on other nodes",
    "replaced": "a cheaper node holds the pods",
}
"""Why nodes are given back in a simulated day: nothing drifts or expires in it."""


@dataclass(frozen=True)
class CauseSum:
    """All nodes that were given back for one cause. `saving` is what the decisions promised, in USD
    per hour."""

    cause: str
    nodes: int
    pods: int
    saving: float
    example: str


@dataclass(frozen=True)
class ScaleDownReport:
    """The three days, and the rules that the day of Leeway broke."""

    leeway: Record
    only_empty: Record
    never: Record

    @property
    def faults(self) -> tuple[str, ...]:
        """The broken rules, each in one sentence."""
        return tuple(self.leeway.faults)

    @property
    def good(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    @property
    def saved(self) -> float:
        """The part of the price of the day without give-back that Leeway saves."""
        return 1 - self.leeway.dollars / self.never.dollars if self.never.dollars else 0.0

    @property
    def days(self) -> tuple[tuple[str, Record], ...]:
        """The days with their names, the most expensive first."""
        return (
            ("no node is given back", self.never),
            ("only empty nodes are given back", self.only_empty),
            ("Leeway", self.leeway),
        )

    @property
    def peak(self) -> Moment:
        """The minute of Leeway's day with the most nodes."""
        return max(self.leeway.moments, key=lambda one: one.nodes)

    @property
    def least(self) -> Moment:
        """The minute with the fewest nodes after the peak."""
        after = [one for one in self.leeway.moments if one.minute >= self.peak.minute]
        return min(after, key=lambda one: one.nodes)

    @property
    def causes(self) -> tuple[CauseSum, ...]:
        """What was given back, by cause; causes without a node are left out."""
        return tuple(self._causes())

    def _causes(self) -> Iterator[CauseSum]:
        for cause in CAUSES:
            own = [one for one in self.leeway.given_back if cause_of(one) == cause]
            if own:
                best = max(own, key=lambda one: one.saving)
                pods, saving = sum(one.pods for one in own), sum(one.saving for one in own)
                yield CauseSum(cause, len(own), pods, saving, best.reason)


def cause_of(one: GivenBack) -> str:
    """Return the cause of a return, as a key of CAUSES."""
    if one.cause is Cause.EMPTY:
        return "empty"
    return "replaced" if one.replaced else "not-needed"
