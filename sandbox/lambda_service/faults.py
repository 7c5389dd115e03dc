"""Faults on command: a worker is killed at a chosen point of its work, or its clock is wrong."""

from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

When = Literal["before", "after"]


class Fault(BaseModel):
    """Kill the worker once, at the ``step``-th checkpoint request of a matching execution; or
    let the clocks of a function's workers be ``clock`` seconds ahead (behind where negative).

    ``before``: the checkpoint is not recorded. ``after``: it is, and its answer is never sent.
    Checkpoint requests are counted from the execution's start, over all its invocations.
    Without a ``step`` it is the invocation itself: killed when the worker gets the event, or
    when its answer arrives, before that answer counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: str = "*"
    execution: str = "*"
    kill: When | None = None
    step: int | None = Field(default=None, ge=1)
    clock: float | None = None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if (self.kill is None) == (self.clock is None):
            raise ValueError("expected either kill or clock")
        return self


class Faults:
    """The faults still to come, and the clocks that are wrong."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def replace(self, faults: list[Fault]) -> None:
        """Make these the faults to come."""
        self._faults = list(faults)

    def pending(self) -> list[Fault]:
        """The faults that have not fired."""
        return list(self._faults)

    def clock_of(self, function: str) -> float:
        """How many seconds a function's clock is ahead."""
        return sum(f.clock or 0.0 for f in self._faults if fnmatchcase(function, f.function))

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
