"""The durable engine without a store: every step runs once, every wait passes at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from tests.fakes.clock import FakeClock


@dataclass
class FakeSteps:
    """The Steps Protocol. `before_step` is called with the name of each step before it runs."""

    clock: FakeClock
    operations: int = 0
    waited: timedelta = timedelta(0)
    names: list[str] = field(default_factory=list)
    before_step: Callable[[str], None] = lambda _: None

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self._count(name)
        self.before_step(name)
        return work()

    def wait(self, name: str, seconds: int) -> None:
        self._count(name)
        self.waited += timedelta(seconds=seconds)
        self.clock.sleep(seconds)

    def _count(self, name: str) -> None:
        self.operations += 1
        self.names.append(name)
