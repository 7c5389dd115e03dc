"""The steps that would follow if nothing but Leeway changed the cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from leeway.capacity_return.blockers import blockers_of
from leeway.capacity_return.budgets import Allowances
from leeway.capacity_return.decide import decide_returns
from leeway.capacity_return.decision import NodeReturn, ReturnDecision
from leeway.capacity_return.moving import Moving
from leeway.capacity_return.outcome import outcome_of
from leeway.capacity_return.snapshot import Snapshot
from leeway.reasons import Reason
from leeway.selection.packing.plan import PlannedNode
from leeway.selection.packing.planning import always
from leeway.selection.solver.problem import Proceed

MOST_ROUNDS = 30
"""How many decisions are simulated, each on the outcome of the one before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One return, and the nodes that are launched for it. `allowed`: it is allowed now. Otherwise
    it is from the time `at` (UTC) on, after the steps before it. `saving` is in USD per hour: also
    that of expired and drifted nodes, which are not given back for it."""

    at: datetime
    returned: NodeReturn
    saving: float
    launches: tuple[PlannedNode, ...] = ()
    allowed: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """The steps that would follow, and the cluster after them.

    `kept` has the reason for each node that is kept then. `complete`: no further step follows
    within the horizon.
    """

    steps: tuple[Step, ...]
    end: Snapshot
    kept: Mapping[str, Reason]
    complete: bool = True


def follow(snapshot: Snapshot, decision: ReturnDecision, proceed: Proceed = always) -> Course:
    """Simulate a decision and those that follow it, for the horizon of `snapshot.worth`, as long as
    `proceed` returns True.

    When nothing is allowed any more, the simulation goes on at the time at which the next blocker
    ends. The budgets of pools hold for each decision. The budget of the cluster, which only delays
    steps, holds for the first one.
    """
    steps: list[Step] = []
    now, until = snapshot, snapshot.now + snapshot.worth.horizon
    for number in range(MOST_ROUNDS):
        if decision.returns:
            outcome = outcome_of(now, decision.returns)
            for one, new in zip(decision.returns, outcome.launches, strict=True):
                saving = _saving(one, new, now)
                steps.append(Step(now.now, one, saving, new, allowed=number == 0))
            now = replace(outcome.snapshot, most=None)
        elif now.most is not None:
            now = replace(now, most=None)
        else:
            later = min((at for at in _ends(now) if now.now < at <= until), default=None)
            if later is None:
                return Course(tuple(steps), now, decision.kept)
            now = replace(now, now=later)
        if not proceed():
            break
        decision = decide_returns(now)
    return Course(tuple(steps), now, decision.kept, complete=False)


def _saving(one: NodeReturn, launches: Sequence[PlannedNode], before: Snapshot) -> float:
    prices = {each.name: each.price or 0.0 for each in before.own}
    gone = sum(prices[name] for name in one.nodes)
    return gone - sum(new.cheapest.offering.price or 0.0 for new in launches)


def _ends(snapshot: Snapshot) -> Iterator[datetime]:
    """Yield the times at which something that keeps a node ends."""
    moving, allowances = Moving(snapshot), Allowances.of(snapshot)
    for one in snapshot.own:
        blockers = blockers_of(one, moving, allowances)
        # A node that also waits for something without an end gains nothing by a later time.
        if blockers and all(blocker.until for blocker in blockers):
            yield from (blocker.until for blocker in blockers if blocker.until)
