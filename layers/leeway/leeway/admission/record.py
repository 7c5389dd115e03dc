"""The arrival record: what is known of one instance's way in, and how notices change it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.admission import reasons
from leeway.execution.attempt import OVERDUE, Phase, RecordChange, append_notice_id
from leeway.instances.facts import InstanceFacts
from leeway.notices import LifecycleHook, Notice
from leeway.ports.aws import HookResult
from leeway.reasons import Reason


class Admission(BaseModel):
    """One instance's admission, in all its attempts.

    `version` counts writes (the optimistic lock); `attempt` counts starts of `admit_node`.
    `labels` are put on the node, and `startup_taints` are keys of taints that whoever they wait for
    takes off, before it counts as ready. `hooks` wait for what comes of it, if any do, and are
    answered with `answer` when it has ended; None says that nobody waits for one. `into_pool` says
    that the instance goes into its group's warm pool, where it needs no node. `ended_at` is when it
    was closed.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    facts: InstanceFacts
    attempt: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] = 1
    phase: Phase
    noticed_at: AwareDatetime
    deadline: AwareDatetime
    reason: str
    notices: tuple[str, ...] = ()
    hooks: tuple[LifecycleHook, ...] = ()
    labels: Mapping[str, str] = Field(default_factory=dict)
    startup_taints: tuple[str, ...] = ()
    answer: HookResult | None = None
    into_pool: bool = False
    ended_at: AwareDatetime | None = None

    @property
    def instance(self) -> str:
        """The instance's id."""
        return self.facts.instance

    @property
    def is_open(self) -> bool:
        """Whether something is still to come of it."""
        return self.phase is not Phase.FINISHED


@dataclass(frozen=True, slots=True)
class Request:
    """What asks for an admission: a notice of a launch hook, or whoever launched the instance.

    `id` is the same when it is asked again.
    """

    id: str
    asked_at: datetime
    deadline: datetime
    reason: str
    hook: LifecycleHook | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    startup_taints: tuple[str, ...] = ()
    into_pool: bool = False


def requested_by(notice: Notice, deadline: datetime, reason: str) -> Request:
    """Return what a notice of a launch hook asks for."""
    return Request(
        notice.id, notice.time, deadline, reason, notice.hook, into_pool=notice.into_pool
    )


def take(
    stored: Admission | None, request: Request, facts: InstanceFacts
) -> RecordChange[Admission]:
    """Decide what a request does to the instance's record.

    A repeated one raises no attempt; a start that may have been lost is made again, which does
    no harm since executions are named by attempt. An instance can come in more than once: out
    of a warm pool, or started again after it was stopped.
    """
    if stored is None:
        return RecordChange(_begun(request, facts, 1), True, True, reasons.FIRST_REQUEST())
    lost = stored.phase is Phase.NOTICED
    if request.id in stored.notices:
        reason = reasons.ADMISSION_START_REPEATED() if lost else reasons.REQUEST_REPEATED()
        return RecordChange(stored, False, lost, reason)
    if stored.phase is Phase.FINISHED:
        if request.asked_at <= stored.noticed_at:
            return RecordChange(stored, False, False, reasons.REQUEST_OUTDATED())
        return _again(stored, request, facts, reasons.PREVIOUS_ADMISSION_ENDED())
    if request.asked_at > stored.deadline + OVERDUE:
        died = reasons.ADMISSION_EXECUTION_DIED(time=stored.deadline + OVERDUE)
        return _again(stored, request, facts, died)
    if stored.into_pool and not request.into_pool:
        return _again(stored, request, facts, reasons.INSTANCE_LEAVES_POOL())
    if request.hook is None or request.hook in stored.hooks:
        return RecordChange(stored, False, lost, reasons.ADMISSION_EXISTS())
    joined = stored.model_copy(
        update={
            "hooks": (*stored.hooks, request.hook),
            "notices": append_notice_id(stored.notices, request.id),
            "version": stored.version + 1,
        }
    )
    return RecordChange(joined, True, lost, reasons.HOOK_ADDED())


def _begun(request: Request, facts: InstanceFacts, attempt: int) -> Admission:
    return Admission(
        facts=facts,
        attempt=attempt,
        phase=Phase.NOTICED,
        noticed_at=request.asked_at,
        deadline=request.deadline,
        reason=request.reason,
        notices=(request.id,),
        hooks=(request.hook,) if request.hook else (),
        labels=dict(request.labels),
        startup_taints=request.startup_taints,
        into_pool=request.into_pool,
    )


def _again(
    stored: Admission, request: Request, facts: InstanceFacts, reason: Reason
) -> RecordChange[Admission]:
    begun = _begun(request, facts, stored.attempt + 1)
    notices = append_notice_id(stored.notices, request.id)
    record = begun.model_copy(update={"version": stored.version + 1, "notices": notices})
    return RecordChange(record, True, True, reason)
