"""The retirement record: what is known of one instance's way out, and how notices change it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.notices import LifecycleHook, Notice, NoticeKind
from leeway.owners import Owner
from leeway.policies import OnBlocked, Replacement, Ruling

NOTICES_REMEMBERED = 50
"""How many notice ids a record keeps; older ones are no longer redelivered."""


OVERDUE = timedelta(minutes=10)
"""How long after its deadline a retirement that has not ended counts as dead."""

# How surely the instance ends at its deadline. EC2 takes an interrupted one whatever happens; a
# group waits for its hook; a recommendation is one.
_HARDNESS = {
    NoticeKind.REBALANCE: 1,
    NoticeKind.SCHEDULED_CHANGE: 1,
    NoticeKind.TERMINATE_HOOK: 2,
    NoticeKind.STATE_CHANGE: 3,
    NoticeKind.SPOT_INTERRUPTION: 3,
    NoticeKind.CAPACITY_RESERVATION: 3,
}


class Phase(StrEnum):
    """How far a retirement is.

    `noticed` is written before it is known to have started; `finished` before the hooks are
    answered and the instance is terminated, which are the last things it does.
    """

    NOTICED = "noticed"
    RUNNING = "running"
    FINISHED = "finished"


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
    """The replacement that a retirement asked for; written before the call that asks."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    method: str
    reason: str
    asked_at: AwareDatetime


class Retirement(BaseModel):
    """One instance's retirement, in all its generations.

    `version` counts writes (the optimistic lock); `generation` counts starts of `retire_node`.
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
    hooks: tuple[LifecycleHook, ...] = ()
    replaced: ReplacementIntent | None = None

    @property
    def instance(self) -> str:
        """The instance's id."""
        return self.facts.instance


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


def _first(notice: Notice, ruling: Ruling, facts: InstanceFacts) -> Retirement:
    return Retirement(
        facts=facts,
        generation=1,
        phase=Phase.NOTICED,
        kind=notice.kind,
        noticed_at=notice.time,
        deadline=ruling.deadline,
        on_blocked=ruling.on_blocked,
        replacement=ruling.replacement,
        reason=ruling.reason,
        notices=(notice.id,),
        hooks=(notice.hook,) if notice.hook else (),
    )


def _why_newer(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """Say why this notice needs a retirement of its own, or None where the stored one serves."""
    if stored.phase is Phase.FINISHED:
        if _has_new_hook(stored, notice):
            return "its lifecycle hook still waits for an answer"
        return _after_the_end(stored, notice)
    if stored.deadline is not None and notice.time > stored.deadline + OVERDUE:
        return "the retirement before it should long have ended: its execution has died"
    return _why_more_urgent(stored, notice, ruling)


def _why_more_urgent(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """Compare with the retirement that is on: first by how hard its end is, then by when it is."""
    if _is_its_own_doing(stored, notice):
        return None
    harder = _HARDNESS[notice.kind] - _HARDNESS[stored.kind]
    if harder > 0:
        return f"a {notice.kind} outranks a {stored.kind}"
    if harder == 0 and _is_earlier(ruling.deadline, stored.deadline):
        return "it leaves less time"
    return None


def _is_its_own_doing(stored: Retirement, notice: Notice) -> bool:
    """Whether the group tells of the termination that this retirement itself asked it for."""
    asked = stored.replaced is not None and stored.replaced.method == "terminate-in-group"
    return asked and notice.kind is NoticeKind.TERMINATE_HOOK


def _has_new_hook(stored: Retirement, notice: Notice) -> bool:
    return notice.hook is not None and notice.hook not in stored.hooks


def _after_the_end(stored: Retirement, notice: Notice) -> str | None:
    """A finished retirement stands for what came before it; only what came later begins anew."""
    if notice.kind is NoticeKind.STATE_CHANGE or notice.time <= stored.noticed_at:
        return None
    return "the retirement before it has ended"


def _is_earlier(deadline: datetime | None, stored: datetime | None) -> bool:
    if deadline is None:
        return False
    return stored is None or deadline < stored


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
    return _remember(stored, notice).model_copy(
        update={
            "facts": facts,
            "generation": stored.generation + 1,
            "phase": Phase.NOTICED,
            "kind": notice.kind,
            "noticed_at": notice.time,
            "deadline": ruling.deadline,
            "on_blocked": ruling.on_blocked,
            "replacement": ruling.replacement,
            "reason": ruling.reason,
        }
    )
