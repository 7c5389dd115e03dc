"""The longest retirement fits into one durable execution."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy, OnBlocked
from leeway.retirement.reasons import REPLACEMENT_DECIDED
from leeway.retirement.record import MAX_EXECUTION_TIME, ReplacementIntent

from tests.fakes.retirement import POD, RetirementFakes, retirement_fakes
from tests.retirement.retirements import NOTICED
from tests.template.translation import translated

MOST_OPERATIONS = 2700
"""Lambda ends an execution at its operation 3,000. Source: AWS Lambda quotas."""

PAUSED = ClusterPolicy(paused=True)


class TimeIsUp(BaseException):
    """Lambda ends the execution at its timeout."""


@dataclass
class Long:
    """A retirement that never ends by itself: a budget blocks its pod.

    The cluster is paused for the time `waits`, each cordon fails if it is not `cordoned`, each
    request for a replacement if it is not `replaced`. `begun`: an earlier attempt has requested it.
    `hook` is the timeout in seconds of a lifecycle hook that needs heartbeats.
    """

    waits: timedelta = timedelta(0)
    cordoned: bool = True
    replaced: bool = True
    begun: bool = False
    hook: int | None = None
    fakes: RetirementFakes = field(init=False)

    def run(self) -> int:
        """Run it until Lambda ends it; return the number of its durable operations."""
        unsupported = {"launch_unsupported": "has a warm pool"}
        kind = NoticeKind.REBALANCE if self.hook is None else NoticeKind.TERMINATE_HOOK
        more = {} if self.hook is None else {"timeout": self.hook}
        fakes = self.fakes = retirement_fakes(
            kind, pods=[POD], detaches=self.replaced, overrides=unsupported, **more
        )
        changes: dict[str, object] = {"deadline": None, "on_blocked": OnBlocked.WAIT}
        if self.begun:
            reason = REPLACEMENT_DECIDED(
                "An earlier attempt requested the successor from group ng."
            )
            changes["replacement_intent"] = ReplacementIntent(
                method="detach", reason=reason, requested_at=NOTICED
            )
        fakes.amend(**changes)
        fakes.steps.before_step = self._before_step
        fakes.cluster.cordons_refused = 0 if self.cordoned else 1_000_000
        # A lifecycle action ends after two days, and its instance with it.
        with pytest.raises(TimeIsUp) if self.hook is None else nullcontext():
            fakes.run_attempt()
        return fakes.steps.operations

    def _before_step(self, _: str) -> None:
        passed = self.fakes.clock.time - NOTICED
        self.fakes.policies.policy = PAUSED if passed < self.waits else ClusterPolicy()
        if passed >= MAX_EXECUTION_TIME:
            raise TimeIsUp


DAY = timedelta(hours=23, minutes=55)


@pytest.mark.parametrize(
    "make",
    [
        Long,
        lambda: Long(replaced=False),
        lambda: Long(cordoned=False),
        lambda: Long(cordoned=False, replaced=False),
        lambda: Long(waits=DAY),
        lambda: Long(waits=DAY, cordoned=False, replaced=False),
        lambda: Long(waits=2 * MAX_EXECUTION_TIME, begun=True),
        lambda: Long(hook=1728, cordoned=False),
    ],
    ids=["blocked", "replacement", "cordon", "both", "budget", "budget-both", "paused", "hook"],
)
def test_the_longest_retirement_has_operations_left(make: Callable[[], Long]) -> None:
    assert make().run() < MOST_OPERATIONS


def test_lambda_ends_an_execution_when_reconcile_takes_it_for_dead() -> None:
    function = translated()["Resources"]["RetireNodeFunction"]["Properties"]
    longest = function["DurableConfig"]["ExecutionTimeout"]
    assert timedelta(seconds=longest) == MAX_EXECUTION_TIME
