"""A log of the changes that fakes of several ports make, in their common order."""

from dataclasses import dataclass, field
from datetime import datetime

from tests.fakes.clock import FakeClock


@dataclass
class ActionLog:
    """`done` are the changes, each with its time; `ended` are the hooks that were answered and the
    instances that were terminated."""

    clock: FakeClock
    done: list[tuple[str, datetime]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def add(self, what: str) -> None:
        self.done.append((what, self.clock.time))

    def order_of(self, *wanted: str) -> list[str]:
        """Return the changes among these, in order."""
        return [what for what, _ in self.done if what in wanted]

    def first(self, wanted: str) -> datetime:
        """Return the time of the first such change."""
        return next(at for what, at in self.done if what == wanted)
