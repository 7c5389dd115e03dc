"""Injected faults: kills, wrong clocks, short timeouts, late and repeated messages."""

from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

When = Literal["before", "after"]


class Fault(BaseModel):
    """One fault: ``kill`` kills a worker once, the others last until the faults are replaced.

    The worker is killed at the ``step``-th checkpoint request of a matching execution, counted over
    all its invocations. ``before``: the checkpoint is not recorded. ``after``: it is recorded, and
    its answer is not sent. Without a ``step`` the worker is killed when it gets the event
    (``before``), or when its answer arrives, which then does not count (``after``). ``clock`` is in
    seconds, and negative for a clock that is behind: it moves the clocks of all workers.
    ``timeout`` shortens the timeout of the function, in seconds. A function that consumes a queue
    gets each message ``latency`` seconds later, and ``copies`` times: a message that it has handled
    comes again, as if it was not deleted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: str = "*"
    execution: str = "*"
    kill: When | None = None
    step: int | None = Field(default=None, ge=1)
    clock: float | None = None
    timeout: float | None = Field(default=None, gt=0, le=900)
    latency: float | None = Field(default=None, ge=0)
    copies: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        given = (self.kill, self.clock, self.timeout, self.latency, self.copies)
        if sum(effect is not None for effect in given) != 1:
            raise ValueError("Expected one of kill, clock, timeout, latency and copies.")
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
        return sum(fault.clock or 0.0 for fault in self._of(function))

    def timeout_of(self, function: str, timeout: float) -> float:
        """Return the timeout of a function, in seconds."""
        given = [fault.timeout for fault in self._of(function) if fault.timeout is not None]
        return min([timeout, *given])

    def latency_of(self, function: str) -> float:
        """Return how many seconds late a function gets the messages of its queue."""
        return sum(fault.latency or 0.0 for fault in self._of(function))

    def copies_of(self, function: str) -> int:
        """Return how often a function gets each message of its queue."""
        return max([1, *(fault.copies or 1 for fault in self._of(function))])

    def _of(self, function: str) -> list[Fault]:
        return [fault for fault in self._faults if fnmatchcase(function, fault.function)]

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
