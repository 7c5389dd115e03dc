"""The results of an admission's steps, which the durable engine stores."""

from dataclasses import dataclass, field
from datetime import datetime

from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.readiness import Readiness
from leeway.admission.record import Admission
from leeway.execution.attempt import AttemptId
from leeway.pool_pauses import PoolRecord
from leeway.reasons import Reason
from leeway.retirement.hooks import HeldHook, HookAnswers


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Result of the step `check-N`: the state of the admission after one read of the node.

    - `record`: None if a newer attempt has superseded this one.
    - `verdict`: how the admission ends, None if it continues.
    - `unmet`: the conditions that the node did not meet at the last read that succeeded.
    - `problem`: why the last read failed, empty if it succeeded.
    - `listed_at`: when the list of all nodes was last read.
    - `manufacturers`: those of the instance type's accelerators, None until EC2 has returned them.
    - `held`: the lifecycle hooks that wait for the admission.
    - `join_counted`: the record of the pool says that an instance of this launch has joined.
    - `wait_seconds`: the time until the next check.
    """

    record: Admission | None
    verdict: Readiness | None = None
    unmet: tuple[Reason, ...] = ()
    problem: str = ""
    node: str = ""
    node_uid: str = ""
    joined_at: datetime | None = None
    listed_at: datetime | None = None
    manufacturers: tuple[str, ...] | None = None
    held: tuple[HeldHook, ...] = ()
    join_counted: bool = False
    wait_seconds: int = 0


@dataclass(frozen=True, slots=True)
class UnjoinedResult:
    """Result of the step `end-N`, about a launched instance whose node has not joined in time.

    - `verdict`: how the admission ends; None if the node has joined after all.
    - `check_again`: the last read of the node failed.
    - `paused`: the record of its pool, if the failure of this instance has paused the pool.
    """

    verdict: Readiness | None = None
    check_again: bool = False
    paused: PoolRecord | None = None


@dataclass(frozen=True, slots=True)
class FinishResult:
    """Result of the step `finish-N`. `outcome` is None if a newer attempt has superseded this one,
    or if the node must be checked again (`check_again`): the last read before ABANDON failed.
    `paused` is the record of the pool, if this node has paused it."""

    outcome: AdmissionOutcome | None
    check_again: bool = False
    node_uid: str = ""
    paused: PoolRecord | None = None
    answers: HookAnswers = field(default_factory=HookAnswers)


STEP_RESULTS = (
    AttemptId,
    NodeCheck,
    UnjoinedResult,
    FinishResult,
    AdmissionOutcome,
    HookAnswers,
    PoolRecord,
)
"""The types that the durable engine stores between steps."""
