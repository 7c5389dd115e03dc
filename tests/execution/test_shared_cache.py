"""The shared cache: how often functions read a value."""

from datetime import datetime, timedelta

import pytest
from leeway.execution.shared_cache import CACHED, FRESH_FOR, READ_WITHIN, CachedValue, SharedCache
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.table import Key

from tests.fakes.clock import FakeClock
from tests.fakes.table import TableInMemory

NAME = "group/ng"
NOON = datetime.fromisoformat("2026-11-20T12:00:00Z")


class World:
    """A table, and the reads of a value that counts them. `refuses` says that its source does."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.table = TableInMemory(self.clock)
        self.reads = 0
        self.refuses = False

    def read(self) -> int:
        if self.refuses:
            raise CloudRefused("AccessDenied")
        self.reads += 1
        return self.reads

    def cached(self, cache: SharedCache | None = None) -> int:
        """Return the value as a function gets it that has just started."""
        return (cache or SharedCache(self.table, self.clock)).get_or_read(NAME, int, self.read)

    def claim(self) -> None:
        """Let another function claim the read."""
        assert self.table.claim(NAME, self.clock.time + READ_WITHIN)

    def store(self, body: str, off: timedelta = timedelta(0)) -> None:
        self.table.put(CACHED, CachedValue(body, self.clock.time + off), what=NAME)

    def took(self) -> timedelta:
        return self.clock.time - NOON


def test_a_value_is_read_once_within_some_seconds() -> None:
    world = World()
    assert [world.cached() for _ in range(10)] == [1] * 10
    world.clock.sleep(FRESH_FOR.total_seconds())
    assert world.cached() == 2


def test_a_value_of_several_is_read_once_too() -> None:
    world, reads = World(), list[str]()

    def read() -> tuple[str, ...]:
        reads.append("read")
        return ("a", "b")

    for _ in range(2):
        function = SharedCache(world.table, world.clock)
        assert function.get_or_read(NAME, tuple[str, ...], read) == ("a", "b")
    assert reads == ["read"]


def test_a_cache_waits_for_another_function_that_reads_the_value() -> None:
    world, gets, claims = World(), list[Key](), list[Key]()
    world.claim()

    def other_function_writes(operation: str, key: Key) -> None:
        (gets if operation == "get" else claims).append(key)
        if len(gets) == 8:
            world.table.before = lambda *_: None
            world.store("7")

    world.table.before = other_function_writes
    assert world.cached() == 7
    assert world.reads == 0
    assert len(claims) == 1, "not at every poll"


def test_a_cache_reads_the_value_itself_if_the_other_function_takes_too_long() -> None:
    world = World()
    world.claim()
    assert world.cached() == 1
    assert world.took() < READ_WITHIN + timedelta(seconds=1)


def refuse_claims(world: World) -> None:
    """Let every read fail, and yet another function claim it each time."""

    class Claimed(TableInMemory):
        def claim(self, task: str, until: datetime) -> bool:
            return False

    world.table = Claimed(world.clock)


def test_a_cache_reads_the_value_itself_if_all_other_reads_fail() -> None:
    world = World()
    refuse_claims(world)
    assert world.cached() == 1
    assert world.took() < 2 * READ_WITHIN + timedelta(seconds=1)


def test_a_cache_that_waited_in_vain_does_not_wait_again_at_once() -> None:
    world = World()
    refuse_claims(world)
    world.refuses = True
    cache = SharedCache(world.table, world.clock)
    with pytest.raises(CloudRefused):
        world.cached(cache)
    began = world.clock.time
    with pytest.raises(CloudRefused):
        world.cached(cache)
    assert world.clock.time - began < timedelta(seconds=1)
    world.refuses = False
    assert world.cached(cache) == 1


@pytest.mark.parametrize(
    ("body", "off"),
    [("7", timedelta(minutes=-1)), ("7", timedelta(hours=1)), ('{"name": "ng"}', timedelta(0))],
    ids=["old", "from the future", "of another shape"],
)
def test_a_value_that_is_not_fresh_or_not_readable_is_read_again(body: str, off: timedelta) -> None:
    world = World()
    world.store(body, off)
    assert [world.cached(), world.cached()] == [1, 1]


def test_a_throttled_table_does_not_prevent_a_read() -> None:
    world = World()
    world.table.fail(CloudUnavailable("ThrottlingException"))
    assert [world.cached(), world.cached()] == [1, 2]
