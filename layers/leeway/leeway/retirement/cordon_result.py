"""The result of a retirement's cordon step."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from leeway.reasons import Reason
from leeway.retirement.record import Retirement


class Course(StrEnum):
    """How a retirement continues after its cordon step."""

    RETIRE = "retire"
    CORDON = "cordon"
    WAIT = "wait"
    DECLINE = "decline"
    DRY_RUN = "dry-run"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class CordonResult:
    """The result of a retirement's cordon step.

    - `settled`: the node is in the state that the course requires, or does not exist (`node` is
      empty).
    - `record`: the latest record; None if a newer attempt has superseded this one.
    - `problem`: why the step is not settled, or why the retirement waits or is declined.
    - `pause`: seconds to wait before the step is repeated; 0 if the next step runs meanwhile.
    """

    settled: bool
    record: Retirement | None = None
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: Reason | None = None
    course: Course = Course.RETIRE
    pause: int = 0

    @property
    def known_node(self) -> str | None:
        """The name of the node, empty if the instance has none, None if it is not known."""
        return self.node if self.node or self.settled else None
