"""The retirement record: what is known of one instance's way out, and by when it has ended."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.execution.attempt import Phase
from leeway.instances.facts import InstanceFacts
from leeway.notices import LifecycleHook, NoticeKind
from leeway.policy.rules import BUDGET_TIMEOUT, SUCCESSOR_TIMEOUT, Action, OnBlocked, Replacement
from leeway.ports.aws import HookResult
from leeway.retirement.replacement_intent import Method, ReplacementIntent

TERMINATED_WITHIN = timedelta(minutes=1)
"""How long after a retirement is closed its instance may still run: it is terminated right after,
with retries."""

LONGEST = timedelta(days=7)
"""How long any execution lives: as long as the template allows for RetirementTimeout."""

UNDONE_WITHIN = timedelta(hours=1)
"""How long undoing is tried: for as long as the durable engine repeats a step that fails."""

INTERRUPTIONS = frozenset({NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION})
"""Notices by which EC2 takes an instance back."""


OVER = frozenset({Phase.FINISHED, Phase.UNDONE})
"""Phases after which nothing more comes of a retirement."""


class Retirement(BaseModel):
    """One instance's retirement, with all its attempts.

    - `version` counts writes and is the optimistic lock. `attempt` counts starts of `retire_node`.
    - `stops`: the instance is only stopped, and may run again.
    - `stays_cordoned`: a policy cordoned the node, and did no more, for an earlier notice. The node
      stays cordoned after this retirement too, until the instance runs again.
    - `running_at`: when an execution of this attempt first requested a replacement.
    - `begun_at`: when the drain began, if the drain waited for the disruption budget or for a
      replacement; None if it began at once.
    - `ended_at`: when the retirement was last closed.
    - `node_is_empty`: when the retirement was closed, its node had no pod and no volume.
    - `answer`: the answer for the lifecycle `hooks`. None until the retirement has ended, and if it
      ended without effect (declined, undone, dry run), since no hook waits for that.
    - `event`: the id of the scheduled change that the notice announced, empty for other notices.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    facts: InstanceFacts
    attempt: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] = 1
    phase: Phase
    kind: NoticeKind
    noticed_at: AwareDatetime
    deadline: AwareDatetime | None
    on_blocked: OnBlocked
    replacement: Replacement
    reason: str
    notices: tuple[str, ...]
    action: Action = Action.RETIRE
    stops: bool = False
    stays_cordoned: bool = False
    running_at: AwareDatetime | None = None
    begun_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    node_is_empty: bool = False
    hooks: tuple[LifecycleHook, ...] = ()
    answer: HookResult | None = None
    event: str = ""
    replacement_intent: ReplacementIntent | None = None

    @property
    def instance(self) -> str:
        """The instance's id."""
        return self.facts.instance

    @property
    def ec2_terminates(self) -> bool:
        """Whether EC2 ends the instance within two minutes, whatever anybody does: notices of that
        come by the thousand."""
        return self.kind in INTERRUPTIONS and not self.stops

    @property
    def deadline_from_begin(self) -> bool:
        """Whether the deadline is counted from when the pods are first asked to go: nothing happens
        to the instance by itself, and waiting for a turn must use up nothing."""
        return self.kind in {NoticeKind.REBALANCE, NoticeKind.IMPAIRED_STATUS}

    @property
    def must_restore_capacity(self) -> bool:
        """Whether its group was made one larger for it, and is so still: it is to be finished,
        though it may have been closed."""
        return self.replacement_intent is not None and self.replacement_intent.to_restore

    @property
    def is_open(self) -> bool:
        """Whether something is still to come of it."""
        return self.phase not in OVER or self.must_restore_capacity or self.needs_termination

    @property
    def needs_termination(self) -> bool:
        """Whether Leeway has detached the instance, and has still to terminate it."""
        return (
            self.replacement_intent is not None
            and self.replacement_intent.detached
            and not self.replacement_intent.settled
        )

    @property
    def group_terminates(self) -> bool:
        """Whether it has asked the group to end the instance, which a hook keeps."""
        asked = self.replacement_intent
        if asked is None or asked.method is Method.DETACH:
            return False
        return asked.ending or not asked.to_restore

    @property
    def left_empty_node(self) -> bool:
        """Whether it has ended, and its node is an empty one."""
        return self.phase is Phase.FINISHED and self.node_is_empty

    @property
    def had_no_effect(self) -> bool:
        """Whether it has ended, and its instance is as if it had never been told of."""
        return self.phase in OVER and self.answer is None


def latest_end(stored: Retirement) -> datetime:
    """Return by when a retirement has ended, whatever it still has to wait for. One that is open
    OVERDUE after that has no execution any more."""
    if stored.phase in {Phase.UNDOING, Phase.UNDONE}:
        return stored.noticed_at + UNDONE_WITHIN
    if stored.deadline is None:
        return stored.noticed_at + LONGEST
    if stored.begun_at is not None or not stored.deadline_from_begin:
        return stored.deadline
    takes = SUCCESSOR_TIMEOUT + (stored.deadline - stored.noticed_at)
    if stored.running_at is not None:
        return stored.running_at + takes
    return stored.noticed_at + BUDGET_TIMEOUT + takes
