"""Injected faults: a worker is killed at a chosen point, or its clock is wrong."""

from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

When = Literal["before", "after"]


class Fault(BaseModel):
    """One fault: ``kill`` kills a worker once, ``clock`` moves the clocks of a function's workers.

    The worker is killed at the ``step``-th checkpoint request of a matching execution, counted over
    all its invocations. ``before``: the checkpoint is not recorded. ``after``: it is recorded, and
    its answer is not sent. Without a ``step`` the worker is killed when it gets the event
    (``before``), or when its answer arrives, which then does not count (``after``). ``clock`` is in
    seconds, and negative for a clock that is behind.
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
            raise ValueError("Expected either kill or clock.")
        return self


class Faults:
    """The pending faults, and the wrong clocks."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def replace(self, faults: list[Fault]) -> None:
        """Replace all faults."""
        self._faults = list(faults)

    def pending(self) -> list[Fault]:
        """Return the pending faults."""
        return list(self._faults)

    def clock_of(self, function: str) -> float:
        """Return how many seconds the clock of a function is ahead."""
        return sum(f.clock or 0.0 for f in self._faults if fnmatchcase(function, f.function))

    def take(self, when: When, function: str, execution: str | None, step: int | None) -> bool:
        """Whether a fault applies here; it is then removed."""
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
