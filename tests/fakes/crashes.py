"""A process that dies at any call of its ports, before the call or after it.

A process that dies before a call dies after the call before it, for all that others see: tests try
every call with `after`, and one case of theirs with `before`.
"""

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Any


class Crashed(BaseException):
    """The process died: a BaseException, so that no handler of errors catches it."""


class Crash:
    """Counts calls of ports, and crashes once: at the call with this number, `before` or `after`
    it."""

    def __init__(self, number: int, moment: str) -> None:
        self.calls, self.happened = 0, False
        self._number, self._moment = number, moment

    def call[T](self, work: Callable[[], T]) -> T:
        """Make a call."""
        self.calls += 1
        number = self.calls
        self._crash(number, "before")
        try:
            return work()
        finally:
            self._crash(number, "after")

    def _crash(self, number: int, moment: str) -> None:
        if (number, moment) == (self._number, self._moment) and not self.happened:
            self.happened = True
            raise Crashed


class Crashing:
    """A port whose calls a crash counts."""

    def __init__(self, port: Any, crash: Crash) -> None:
        self._port, self._crash = port, crash

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found
        return lambda *args, **more: self._crash.call(lambda: found(*args, **more))


def crashing(
    ports: Any, crash: Crash, only: Collection[str] = (), but: Collection[str] = ()
) -> dict[str, Any]:
    """These ports of a dataclass, all if none is named, as ports that crash."""
    names = only or {one.name for one in fields(ports)} - {*but}
    return {name: Crashing(getattr(ports, name), crash) for name in names}


def crashing_launches(deps: Any, crash: Crash) -> Any:
    """The dependencies of launches, which crash."""
    ports = crashing(deps, crash, but={"sources", "clock", "new_id", "intents"})
    sources = replace(deps.sources, **crashing(deps.sources, crash))
    return replace(deps, sources=sources, **ports)
