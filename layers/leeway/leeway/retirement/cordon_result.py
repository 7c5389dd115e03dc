"""The result of a retirement's cordon step."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from leeway.reasons import Reason
from leeway.retirement.record import Retirement


class Course(StrEnum):
    """What a retirement does, as the cordon step decides it."""

    RETIRE = "retire"
    CORDON = "cordon"
    WAIT = "wait"
    DECLINE = "decline"
    DRY_RUN = "dry-run"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class CordonResult:
    """The result of a cordon step.

    `settled` says that the node is in the state that the course requires, or that the instance has
    no node (`node` is empty). There is no record if a newer attempt has superseded this one.
    `pause` is how many seconds to wait before the next try, if there is nothing else to do.
    """

    settled: bool
    record: Retirement | None = None
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: Reason | None = None
    course: Course = Course.RETIRE
    pause: int = 0
