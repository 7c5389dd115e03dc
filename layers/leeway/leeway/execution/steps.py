"""The durable engine as use cases see it."""

from collections.abc import Callable
from typing import Protocol


class Steps(Protocol):
    """What a step returned is not done again when the function is replayed."""

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        """Do `work` once and remember its result, a `kind`; again if the function died first."""
        ...

    def wait(self, name: str, seconds: int) -> None:
        """Let time pass without a running function."""
        ...
