"""The input of the durable functions, their steps, and how a request changes the record of an
instance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Protocol

from msgspec import Meta

from leeway.reasons import Reason
from leeway.typed_json import from_plain


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One attempt of the retirement or the admission of an instance: the input of a durable
    function."""

    instance: Annotated[str, Meta(pattern=r"^i-(?:[0-9a-f]{8}|[0-9a-f]{17})\Z")]
    cluster: Annotated[str, Meta(min_length=1)]
    attempt: Annotated[int, Meta(ge=1)]


def parse_attempt_id(event: Any) -> AttemptId:
    """Parse the event that a durable function was started with.

    Raises:
        ValueError: the event is not an AttemptId; the message names the field and what is expected.
    """
    return from_plain(AttemptId, event)


MAX_NOTICE_IDS = 50
"""How many notice ids a record keeps. EventBridge does not redeliver older notices."""


OVERDUE = timedelta(minutes=10)
"""How long after its latest end an open retirement or admission is treated as dead."""


KEPT_FOR = timedelta(days=30)
"""How long a retirement or an admission is kept after its last write: longer than Lambda reserves
the name of an execution. So the next one of the same instance does not reuse a reserved name."""


class Phase(StrEnum):
    """The phase of a retirement or an admission.

    - `noticed`: the record is written, and the start of its execution may be lost. The phase lasts
      until the replacement is requested or the drain begins; until then the retirement can be
      cancelled.
    - `running`: the replacement is requested, or the drain has begun.
    - `finished`: written before the last two actions, which answer the hooks and terminate the
      instance.
    - `undoing`: the instance stays, and Leeway removes its marks from the node.
    - `undone`: the marks are removed.
    """

    NOTICED = "noticed"
    RUNNING = "running"
    FINISHED = "finished"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class RecordChange[R]:
    """How a notice or a request changes the record of an instance, and why.

    - `record`: the record after the change.
    - `write`: whether the record differs from the stored record and must be written.
    - `start`: whether the execution of its attempt must be started. A repeated start does nothing.
    """

    record: R
    write: bool
    start: bool
    reason: Reason


def append_notice_id(notices: Sequence[str], notice: str) -> tuple[str, ...]:
    """Return the notice ids of a record with one more, without the oldest ones."""
    return (*notices, notice)[-MAX_NOTICE_IDS:]


class Steps(Protocol):
    """Runs the steps of one durable execution and stores their results.

    When the function is replayed, a step that has completed returns its stored result.
    """

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        """Call `work` and store its result, a `kind`. If the function exits before the result is
        stored, `work` runs again: it must be safe to repeat."""
        ...

    def wait(self, name: str, seconds: int) -> None:
        """Suspend the execution; no function runs meanwhile."""
        ...
