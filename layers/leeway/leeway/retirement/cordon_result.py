"""The result of a retirement's cordon step."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from leeway.retirement.record import Retirement


class Course(StrEnum):
    """What a retirement comes to, when its turn is decided."""

    RETIRE = "retire"
    CORDON = "cordon"
    WAIT = "wait"
    DECLINE = "decline"
    REHEARSE = "rehearse"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class CordonResult:
    """Where a retirement stands with its node.

    `settled` says that the node is as the course asks, or known not to exist (`node` empty). There
    is no record where a newer attempt has taken over; so with the results below. `rest` is how
    many seconds to wait before trying again, where nothing else is to be done meanwhile.
    """

    settled: bool
    record: Retirement | None = None
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: str = ""
    course: Course = Course.RETIRE
    rest: int = 0
