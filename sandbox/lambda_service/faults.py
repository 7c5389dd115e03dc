"""Faults on command: a worker is killed at a chosen point of its work."""

from fnmatch import fnmatchcase
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

When = Literal["before", "after"]


class Fault(BaseModel):
    """Kill the worker once, at the ``step``-th checkpoint request of a matching execution.

    ``before``: the checkpoint is not recorded. ``after``: it is, and its answer is never sent.
    Checkpoint requests are counted from the execution's start, over all its invocations.
    Without a ``step`` it is the invocation itself: killed when the worker gets the event, or
    when its answer arrives, before that answer counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: str = "*"
    execution: str = "*"
    kill: When
    step: int | None = Field(default=None, ge=1)


class Faults:
    """The faults still to come."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def replace(self, faults: list[Fault]) -> None:
        """Make these the faults to come."""
        self._faults = list(faults)

    def pending(self) -> list[Fault]:
        """The faults that have not fired."""
        return list(self._faults)

    def take(self, when: When, function: str, execution: str | None, step: int | None) -> bool:
        """Whether a fault fires here. One that does is used up."""
        for fault in self._faults:
            if (
                fault.kill == when
                and fault.step == step
                and fnmatchcase(function, fault.function)
                and fnmatchcase(execution or "", fault.execution)
            ):
                self._faults.remove(fault)
                return True
        return False
