"""The admission record of an instance, and how requests for an admission change it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.execution.attempt import KEPT_FOR, OVERDUE, Phase, RecordChange, append_notice_id
from leeway.instances.facts import InstanceFacts
from leeway.notices import LifecycleHook, Notice
from leeway.ports.aws import HookResult
from leeway.ports.kubernetes_objects import Taint
from leeway.reasons import Reason, ReasonCode
from leeway.table import OPEN, Record

ADMISSION_BEGINS = ReasonCode("AdmissionBegins", "{why}: Leeway starts admit_node.")
ADMISSION_GOES_ON = ReasonCode("AdmissionGoesOn", "{why}: the admission stays as it is.")
ADMISSION_EXECUTION_DIED = ReasonCode(
    "AdmissionExecutionDied",
    "The previous admission should have ended by {time:%Y-%m-%d %H:%M} UTC: its execution is "
    "treated as dead.",
    "admitnodefailuresalarm",
)


class AdmissionResult(StrEnum):
    """How an admission ends."""

    ADMITTED = "admitted"
    POOLED = "pooled"
    NOT_READY = "not-ready"
    HOOK_ENDED = "hook-ended"
    NOT_OBSERVED = "not-observed"
    TERMINATED = "terminated"
    INSTANCE_ENDED = "instance-ended"
    OTHER_CLUSTER = "other-cluster"


class Launch(BaseModel):
    """The launch of an instance by Leeway: the id of its intent, its pool, and when the intent was
    written."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    intent: str
    pool: str
    at: AwareDatetime


class Admission(BaseModel):
    """The admission of one instance, in all its attempts.

    - `version`: counts writes (the optimistic lock).
    - `attempt`: counts starts of `admit_node`.
    - `launch`: the launch that it is from, None for an instance that Leeway did not launch.
    - `labels`, `annotations`, `taints`: those that Leeway adds to the node, once it has joined.
    - `startup_taints`: keys of taints that other controllers remove before the node is ready.
    - `promised`: resources that an overlay promises, and that the node offers when it is ready.
    - `hooks`: the lifecycle hooks that wait for the admission; may be empty.
    - `answer`: the answer for the hooks, None until the admission has ended or if it gives none.
    - `into_pool`: the instance enters the warm pool of its group, where it needs no node.
    - `ended_at`: when the record was closed. `result`: how the admission ended.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    facts: InstanceFacts
    attempt: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] = 1
    phase: Phase
    noticed_at: AwareDatetime
    deadline: AwareDatetime
    reason: Reason
    notices: tuple[str, ...] = ()
    hooks: tuple[LifecycleHook, ...] = ()
    launch: Launch | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    answer: HookResult | None = None
    into_pool: bool = False
    ended_at: AwareDatetime | None = None
    result: AdmissionResult | None = None

    @property
    def instance(self) -> str:
        """The id of the instance."""
        return self.facts.instance

    @property
    def cluster(self) -> str:
        """The cluster of the instance."""
        return self.facts.cluster

    @property
    def is_open(self) -> bool:
        """Whether the admission has not ended."""
        return self.phase is not Phase.FINISHED


LAUNCHES_KEPT_FOR = timedelta(days=800)
"""How long an admission of an instance that Leeway launched is kept after its last write. Leeway
gives a node back only if it has the record of its launch: longer than most nodes live, and than any
should."""

ADMISSION = Record(
    Admission,
    "ADMISSION#{cluster}#{instance}",
    "ADMISSION",
    versioned=True,
    kept_for=lambda one: LAUNCHES_KEPT_FOR if one.launch is not None else KEPT_FOR,
    indexes={OPEN: lambda one: one.cluster if one.is_open else None},
)


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request for an admission: from a notice of a launch hook, or from a launch.

    A repeated request has the same `id`.
    """

    id: str
    requested_at: datetime
    deadline: datetime
    reason: Reason
    hook: LifecycleHook | None = None
    launch: Launch | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    into_pool: bool = False


def request_from_notice(notice: Notice, deadline: datetime, reason: Reason) -> AdmissionRequest:
    """Return the request of a notice of a launch hook."""
    return AdmissionRequest(
        notice.id, notice.time, deadline, reason, notice.hook, into_pool=notice.into_pool
    )


def repeated_launch_request(stored: Admission, now: datetime) -> AdmissionRequest:
    """Return the request that continues the admission of a launched instance after its execution
    has died. Its deadline is not in the past, so that its execution has the time of a first one
    until it counts as dead too."""
    return AdmissionRequest(
        id=f"again-{stored.instance}-{stored.attempt}",
        requested_at=now,
        deadline=max(stored.deadline, now),
        reason=stored.reason,
        launch=stored.launch,
        labels=stored.labels,
        annotations=stored.annotations,
        taints=stored.taints,
        startup_taints=stored.startup_taints,
        promised=stored.promised,
    )


def apply_request(
    stored: Admission | None, request: AdmissionRequest, facts: InstanceFacts
) -> RecordChange[Admission]:
    """Decide how a request changes the admission record of the instance.

    A repeated request begins no new attempt. If the start of the attempt may be lost, it is
    repeated: Lambda starts an execution name once. An instance can be admitted several times, for
    example after it leaves a warm pool or is started again.
    """
    if stored is None:
        return RecordChange(
            _new_record(request, facts, 1),
            True,
            True,
            _begins("It is the first admission of the instance"),
        )
    repeat_start = stored.phase is Phase.NOTICED
    if request.id in stored.notices:
        again = _goes_on("The request was received before")
        return RecordChange(stored, False, repeat_start, again)
    if stored.phase is Phase.FINISHED:
        if request.requested_at <= stored.noticed_at:
            return RecordChange(
                stored, False, False, _goes_on("The request is older than the last admission")
            )
        return _next_attempt(stored, request, facts, _begins("The previous one has ended"))
    if request.requested_at > stored.deadline + OVERDUE:
        died = ADMISSION_EXECUTION_DIED(time=stored.deadline + OVERDUE)
        return _next_attempt(stored, request, facts, died)
    if stored.into_pool and not request.into_pool:
        return _next_attempt(
            stored, request, facts, _begins("The instance leaves the warm pool of its group")
        )
    if request.hook is None or request.hook in stored.hooks:
        return RecordChange(stored, False, repeat_start, _goes_on("It covers this request"))
    with_hook = stored.model_copy(
        update={
            "hooks": (*stored.hooks, request.hook),
            "notices": append_notice_id(stored.notices, request.id),
            "version": stored.version + 1,
        }
    )
    return RecordChange(
        with_hook, True, repeat_start, _goes_on("Another lifecycle hook waits for it")
    )


def _begins(why: str) -> Reason:
    return ADMISSION_BEGINS(why=why)


def _goes_on(why: str) -> Reason:
    return ADMISSION_GOES_ON(why=why)


def _new_record(request: AdmissionRequest, facts: InstanceFacts, attempt: int) -> Admission:
    return Admission(
        facts=facts,
        attempt=attempt,
        phase=Phase.NOTICED,
        noticed_at=request.requested_at,
        deadline=request.deadline,
        reason=request.reason,
        notices=(request.id,),
        hooks=(request.hook,) if request.hook else (),
        launch=request.launch,
        labels=dict(request.labels),
        annotations=dict(request.annotations),
        taints=request.taints,
        startup_taints=request.startup_taints,
        promised=request.promised,
        into_pool=request.into_pool,
    )


def _next_attempt(
    stored: Admission, request: AdmissionRequest, facts: InstanceFacts, reason: Reason
) -> RecordChange[Admission]:
    begun = _new_record(request, facts, stored.attempt + 1)
    notices = append_notice_id(stored.notices, request.id)
    record = begun.model_copy(update={"version": stored.version + 1, "notices": notices})
    return RecordChange(record, True, True, reason)
