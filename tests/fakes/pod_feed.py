"""A node's pods for stand-ins of a cluster: listed each time, in time that a test lets pass."""

import math
from collections.abc import Callable
from types import TracebackType

from leeway.ports.kubernetes_objects import Pod


class ListedPods:
    """A feed without a watch; waiting is the test's own sleep."""

    def __init__(
        self, pods_on: Callable[[str], list[Pod]], node: str, sleep: Callable[[float], None]
    ) -> None:
        self._pods_on = pods_on
        self._node = node
        self._sleep = sleep

    def __enter__(self) -> "ListedPods":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to close."""

    def pods(self, seconds: float = math.inf) -> list[Pod]:
        return self._pods_on(self._node)

    def refresh(self, seconds: float = math.inf) -> list[Pod]:
        return self._pods_on(self._node)

    def wait(self, seconds: float) -> None:
        self._sleep(seconds)

    def wake(self) -> None:
        """Nobody waits for real."""
