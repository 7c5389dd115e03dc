"""What the durable functions are started with: an instance, its cluster, and which attempt."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from leeway.typed_json import adapter_of


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One attempt of an instance's retirement or admission."""

    instance: Annotated[str, Field(pattern=r"^i-(?:[0-9a-f]{8}|[0-9a-f]{17})$")]
    cluster: Annotated[str, Field(min_length=1)]
    attempt: Annotated[int, Field(ge=1)]


def parse_attempt_id(event: Any) -> AttemptId:
    """Read what a function was started with.

    Raises:
        ValueError: it is no order; the message names the field and what was expected.
    """
    return adapter_of(AttemptId).validate_python(event)


NOTICES_REMEMBERED = 50
"""How many notice ids a record keeps; older ones are no longer redelivered."""


OVERDUE = timedelta(minutes=10)
"""How long after it is due a retirement that has not ended counts as dead."""


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


@dataclass(frozen=True, slots=True)
class RecordChange[R]:
    """What somebody's asking does to an instance's record: its retirement, or its admission.

    `record` is what the record is now to be; `write` says whether that differs from what is
    stored, `start` whether an execution is (or is again) to be started for its attempt.
    """

    record: R
    write: bool
    start: bool
    reason: str


def remembered(notices: Sequence[str], id: str) -> tuple[str, ...]:  # noqa: A002
    """Return the ids that a record keeps, with one more."""
    return (*notices, id)[-NOTICES_REMEMBERED:]
