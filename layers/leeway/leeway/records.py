"""The retirement record: what is known of one instance's way out, and how notices change it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.hooks import HookResult
from leeway.notices import InterruptionAction, LifecycleHook, Notice, NoticeKind
from leeway.owners import Owner
from leeway.policies import (
    LONGEST_TURN,
    SPOT_WARNING,
    SUCCESSOR_WITHIN,
    VOLUNTARY,
    Action,
    OnBlocked,
    Replacement,
    Ruling,
)
from leeway.replacement import Method

NOTICES_REMEMBERED = 50
"""How many notice ids a record keeps; older ones are no longer redelivered."""

OVERDUE = timedelta(minutes=10)
"""How long after it is due a retirement that has not ended counts as dead."""

LONGEST = timedelta(days=7)
"""How long any execution lives: as long as the template allows for RetirementTimeout."""

UNDONE_WITHIN = timedelta(hours=1)
"""How long undoing is tried: for as long as the durable engine repeats a step that fails."""

MATTERS = timedelta(seconds=5)
"""How much less time a second notice must leave to be worth starting again for: the same thing may
be told of twice, some seconds apart."""

# How surely the instance ends at its deadline. EC2 takes an interrupted one whatever happens; a
# group waits for its hook; what is scheduled may be called off; a recommendation is one.
_HARDNESS = {
    NoticeKind.REBALANCE: 1,
    NoticeKind.SCHEDULED_CHANGE: 2,
    NoticeKind.TERMINATE_HOOK: 3,
    NoticeKind.STATE_CHANGE: 4,
    NoticeKind.SPOT_INTERRUPTION: 4,
    NoticeKind.CAPACITY_RESERVATION: 4,
}

INTERRUPTIONS = frozenset({NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION})
"""Notices that come by the thousand, of instances that EC2 takes whatever anybody does."""

CLOCKS = timedelta(seconds=30)
"""How far the times of an interruption and of a restart may be the wrong way round: events count
whole seconds, by clocks of several services. From a warning to a restart it takes longer."""


class Phase(StrEnum):
    """How far a retirement is.

    `noticed` is written before it is known to have started, and stands until its replacement is
    asked for or its pods are asked to go: so far it can be called off. `finished` is written before
    the hooks are answered and the instance is terminated, which are the last things it does.
    `undoing` says that the instance stays and its node is to be freed of our marks, `undone` that
    it is.
    """

    NOTICED = "noticed"
    RUNNING = "running"
    FINISHED = "finished"
    UNDOING = "undoing"
    UNDONE = "undone"


OVER = frozenset({Phase.FINISHED, Phase.UNDONE})
"""Phases after which nothing more comes of a retirement."""


class InstanceFacts(BaseModel):
    """What EC2 says of an instance that a retirement needs, and that does not change."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    instance: str
    cluster: str
    private_dns_name: str
    zone: str
    instance_type: str
    capacity_type: str
    owner: Owner


class ReplacementIntent(BaseModel):
    """The replacement that a retirement asked for; written before the call that asks.

    `members` are instances that the group had before, where the successor is waited for: what came
    since may be it. `owed` says that the group was made one larger and is to be as large as before,
    `ending` that it is just being asked to end the instance for that.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    method: str
    reason: str
    asked_at: AwareDatetime
    group: str = ""
    members: tuple[str, ...] = ()
    owed: bool = False
    ending: bool = False


class Retirement(BaseModel):
    """One instance's retirement, in all its generations.

    `version` counts writes (the optimistic lock); `generation` counts starts of `retire_node`.
    `stops` says that the instance is only stopped, and may run again. `running_at` is when its
    execution first saw to a successor, `begun_at` when its pods were first asked to go, where that
    was not at once. `ended_at` is when it was closed last.
    `answer` is what came of it for the `hooks` that told of it: None until it has ended, and where
    it came to nothing that a hook waits for, as when it was declined, undone or only rehearsed.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    facts: InstanceFacts
    generation: Annotated[int, Field(ge=1)]
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
    running_at: AwareDatetime | None = None
    begun_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    hooks: tuple[LifecycleHook, ...] = ()
    answer: HookResult | None = None
    event: str = ""
    replaced: ReplacementIntent | None = None

    @property
    def instance(self) -> str:
        """The instance's id."""
        return self.facts.instance

    @property
    def ec2_takes_it(self) -> bool:
        """Whether EC2 ends the instance within two minutes, whatever anybody does: notices of that
        come by the thousand."""
        return self.kind in INTERRUPTIONS and not self.stops

    @property
    def counts_from_its_turn(self) -> bool:
        """Whether the deadline is counted from when the pods are first asked to go: nothing happens
        to the instance by itself, and waiting for a turn must use up nothing."""
        return self.kind is NoticeKind.REBALANCE

    @property
    def owes(self) -> bool:
        """Whether its group was made one larger for it, and is so still: it is to be finished,
        though it may have been closed."""
        return self.replaced is not None and self.replaced.owed

    @property
    def is_open(self) -> bool:
        """Whether something is still to come of it."""
        return self.phase not in OVER or self.owes

    @property
    def ends_in_its_group(self) -> bool:
        """Whether it has asked the group to end the instance, which a hook keeps."""
        asked = self.replaced
        if asked is None or asked.method == Method.DETACH:
            return False
        return asked.ending or not asked.owed

    @property
    def came_to_nothing(self) -> bool:
        """Whether it has ended, and its instance is as if it had never been told of."""
        return self.phase in OVER and self.answer is None


@dataclass(frozen=True, slots=True)
class Reception:
    """What a notice does to an instance's record.

    `record` is what the record is now to be; `write` says whether that differs from what is
    stored, `start` whether `retire_node` is (or is again) to be started for its generation.
    """

    record: Retirement
    write: bool
    start: bool
    reason: str


def receive(
    stored: Retirement | None, notice: Notice, ruling: Ruling, facts: InstanceFacts
) -> Reception:
    """Decide what a notice that asks for a retirement does to the instance's record.

    A repeated notice and one that is less urgent raise no generation; a start that may have
    been lost is made again, which does no harm since executions are named by generation.
    """
    if stored is None:
        return Reception(_first(notice, ruling, facts), True, True, "first notice")
    if notice.id in stored.notices:
        again = stored.phase is Phase.NOTICED
        reason = "seen before; starting it again in case that was lost" if again else "seen before"
        return Reception(stored, False, again, reason)
    newer = _why_newer(stored, notice, ruling)
    if newer is None:
        kept = _remember(stored, notice) if _has_new_hook(stored, notice) else stored
        start = stored.phase is Phase.NOTICED
        return Reception(kept, kept is not stored, start, "a retirement that serves it is known")
    return Reception(_raised(stored, notice, ruling, facts), True, True, newer)


def undo(stored: Retirement | None, notice: Notice) -> Reception | None:
    """Decide what a notice by which the instance stays does to its record: that a change is called
    off, or that the instance runs again. None where there is nothing to undo.

    What has begun is not undone: the successor is on its way, or pods have gone.
    """
    if stored is None or notice.time < stored.noticed_at:
        return None
    if stored.phase is Phase.UNDOING or (stored.phase is Phase.UNDONE and stored.owes):
        if notice.time < due(stored) + OVERDUE:
            # Started again, in case the start was lost.
            return Reception(stored, False, True, "its node is being freed")
        reason: str | None = "its node should long have been freed: the execution has died"
    else:
        reason = _why_undone(stored, notice)
    if reason is None:
        return None
    # Its id is not remembered: a change that comes later is received again under the same.
    undoing = stored.model_copy(
        update={
            "generation": stored.generation + 1,
            "version": stored.version + 1,
            "phase": Phase.UNDOING,
            "answer": None,
            "noticed_at": notice.time,
            "reason": reason,
        }
    )
    return Reception(undoing, True, True, reason)


def _why_undone(stored: Retirement, notice: Notice) -> str | None:
    if stored.phase is Phase.UNDONE:
        return None
    if stored.kind in INTERRUPTIONS and notice.time < stored.noticed_at + CLOCKS:
        return None  # it ran before it was interrupted
    if notice.kind is NoticeKind.SCHEDULED_CHANGE:
        same = stored.kind is notice.kind and stored.event in {"", notice.event}
        if same and stored.phase is Phase.NOTICED and stored.replaced is None:
            return "the scheduled change is called off, or comes later"
        return None
    if stored.stops or stored.phase is Phase.FINISHED:
        return "the instance was stopped and runs again"
    return None


def _first(notice: Notice, ruling: Ruling, facts: InstanceFacts) -> Retirement:
    return Retirement(
        facts=facts,
        generation=1,
        phase=Phase.NOTICED,
        notices=(notice.id,),
        hooks=(notice.hook,) if notice.hook else (),
        **_asked(notice, ruling),
    )


def _asked(notice: Notice, ruling: Ruling) -> dict[str, Any]:
    """Render what a notice and the ruling on it ask for, as a record's fields."""
    return {
        "kind": notice.kind,
        "noticed_at": notice.time,
        "deadline": ruling.deadline,
        "on_blocked": ruling.on_blocked,
        "replacement": ruling.replacement,
        "reason": ruling.reason,
        "action": ruling.action,
        "stops": _only_stops(notice),
        "event": notice.event,
    }


def _only_stops(notice: Notice) -> bool:
    if notice.action is not None:
        return notice.action is not InterruptionAction.TERMINATE
    return notice.state in {"stopping", "stopped"}


def _why_newer(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """Say why this notice needs a retirement of its own, or None where the stored one serves."""
    if stored.phase in {Phase.UNDOING, Phase.UNDONE}:
        since = stored.noticed_at - (CLOCKS if notice.kind in INTERRUPTIONS else timedelta(0))
        return None if notice.time < since else "what was before it has been undone"
    if stored.phase is Phase.FINISHED:
        if _has_new_hook(stored, notice):
            return "its lifecycle hook still waits for an answer"
        return _after_the_end(stored, notice)
    if _is_of_a_later_life(stored, notice):
        return "the instance was interrupted before, and has run again since"
    if notice.time >= due(stored) + OVERDUE:
        return "the retirement before it should long have ended: its execution has died"
    return _why_more_urgent(stored, notice, ruling)


def _is_of_a_later_life(stored: Retirement, notice: Notice) -> bool:
    """Whether an instance is interrupted that must have stopped, and run again, since."""
    stopped = stored.stops and _is_stopped_by(stored.kind, stored.noticed_at, notice.time)
    return stopped and notice.kind in INTERRUPTIONS


def _is_of_an_earlier_life(stored: Retirement, notice: Notice) -> bool:
    """Whether the instance must have stopped, and run again, before it was interrupted."""
    stopped = _only_stops(notice) and _is_stopped_by(notice.kind, notice.time, stored.noticed_at)
    return stopped and stored.kind in INTERRUPTIONS


def _is_stopped_by(kind: NoticeKind, told: datetime, now: datetime) -> bool:
    warned = SPOT_WARNING if kind in INTERRUPTIONS else timedelta(0)
    return told + warned + CLOCKS < now


def due(stored: Retirement) -> datetime:
    """Return by when a retirement has ended, whatever it still has to wait for. One that is open
    OVERDUE after that has no execution any more."""
    if stored.phase in {Phase.UNDOING, Phase.UNDONE}:
        return stored.noticed_at + UNDONE_WITHIN
    if stored.deadline is None:
        return stored.noticed_at + LONGEST
    if stored.begun_at is not None or not stored.counts_from_its_turn:
        return stored.deadline
    takes = SUCCESSOR_WITHIN + (stored.deadline - stored.noticed_at)
    if stored.running_at is not None:
        return stored.running_at + takes
    return stored.noticed_at + LONGEST_TURN + takes


def _why_more_urgent(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """Compare with the retirement that is on: first by how hard its end is, then by when it is."""
    if _is_its_own_doing(stored, notice) or _is_of_an_earlier_life(stored, notice):
        return None
    if notice.kind in VOLUNTARY and stored.begun_at is not None:
        # What waits for nobody serves it already; another turn would stop the drain that is on.
        return None
    harder = _HARDNESS[notice.kind] - _HARDNESS[stored.kind]
    if harder > 0:
        return f"a {notice.kind} outranks a {stored.kind}"
    if harder == 0 and ruling.action is Action.RETIRE and stored.action is Action.CORDON:
        return "the one before it only cordons"
    if harder == 0 and _is_earlier(ruling.deadline, stored.deadline):
        return "it leaves less time"
    return None


def _is_its_own_doing(stored: Retirement, notice: Notice) -> bool:
    """Whether the group tells of the termination that this retirement itself asked it for."""
    return stored.ends_in_its_group and notice.kind is NoticeKind.TERMINATE_HOOK


def _has_new_hook(stored: Retirement, notice: Notice) -> bool:
    return notice.hook is not None and notice.hook not in stored.hooks


def _after_the_end(stored: Retirement, notice: Notice) -> str | None:
    """A finished retirement stands for what came before it; only what came later begins anew. One
    that came to nothing, or left work, stands for nothing but recommendations."""
    if stored.came_to_nothing and notice.kind not in VOLUNTARY:
        return "the retirement before it came to nothing"
    if stored.owes and notice.kind not in VOLUNTARY:
        return "the retirement before it left its group one larger"
    if notice.kind is NoticeKind.STATE_CHANGE or notice.time <= stored.noticed_at:
        return None
    return "the retirement before it has ended"


def _is_earlier(deadline: datetime | None, stored: datetime | None) -> bool:
    if deadline is None:
        return False
    return stored is None or deadline < stored - MATTERS


def _remember(stored: Retirement, notice: Notice) -> Retirement:
    hooks = stored.hooks
    if notice.hook and _has_new_hook(stored, notice):
        hooks = (*hooks, notice.hook)
    return stored.model_copy(
        update={
            "notices": (*stored.notices, notice.id)[-NOTICES_REMEMBERED:],
            "hooks": hooks,
            "version": stored.version + 1,
        }
    )


def _raised(stored: Retirement, notice: Notice, ruling: Ruling, facts: InstanceFacts) -> Retirement:
    fresh = stored.phase in {Phase.UNDOING, Phase.UNDONE}
    anew: dict[str, Any] = {"hooks": ()} if fresh else {}
    if fresh and not stored.owes:
        anew["replaced"] = None
    return _remember(stored.model_copy(update=anew), notice).model_copy(
        update={
            "facts": facts,
            "generation": stored.generation + 1,
            "phase": Phase.NOTICED,
            "running_at": None,
            "begun_at": None,
            "answer": None,
            **_asked(notice, ruling),
        }
    )
