"""The durable engine without a store: every step runs once, every wait passes at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from tests.fakes.clock import FakeClock
from tests.fakes.crashes import Crashed


@dataclass
class FakeSteps:
    """The Steps Protocol. `before_step` is called with the name of each step before it runs."""

    clock: FakeClock
    operations: int = 0
    waited: timedelta = timedelta(0)
    names: list[str] = field(default_factory=list)
    before_step: Callable[[str], None] = lambda _: None
    _at: dict[str, Callable[[], object]] = field(default_factory=dict)

    def at(self, step: str) -> Callable[[Callable[[], object]], None]:
        """Decorate what happens once, before the step of this name."""
        return partial(self._at.__setitem__, step)

    def crash_at(self, step: str) -> None:
        """Have the process die before this step."""

        @self.at(step)
        def die() -> None:
            raise Crashed

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self._count(name)
        self.begin(name)
        return work()

    def begin(self, name: str) -> None:
        """Do what a test wants before a step."""
        self._at.pop(name, lambda: None)()
        self.before_step(name)

    def wait(self, name: str, seconds: int) -> None:
        self._count(name)
        self.waited += timedelta(seconds=seconds)
        self.clock.sleep(seconds)

    def _count(self, name: str) -> None:
        self.operations += 1
        self.names.append(name)
