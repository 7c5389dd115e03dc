"""The Protocol of the durable engine."""

from collections.abc import Callable
from typing import Protocol


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
