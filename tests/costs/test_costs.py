"""Costs: what instances cost is counted once, split by pods, and gaps are named."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.costs import (
    COST,
    MOST_NAMESPACES,
    MOST_OWNERS,
    OTHER,
    CostHour,
    CostRecorder,
    Look,
    NodeUse,
    OwnerCost,
    PodUse,
    Price,
    Recorded,
    Returned,
    SpotPool,
    counted,
    prices_of,
    shares,
)
from leeway.execution.attempt import Phase
from leeway.hibernation import SLEEPING, SleepingPool, SleepingPools
from leeway.instances.facts import (
    InstanceFacts,
    ObservedInstance,
    ObservedInterruption,
    Owner,
    OwnerKind,
)
from leeway.notices import InterruptionAction, NoticeKind
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.retirement.reasons import RETIREMENT_STARTED
from leeway.retirement.record import RETIREMENT, Method, ReplacementIntent, ReturnTerms
from leeway.selection.resources import Resources
from leeway_cli.cost import sum_up
from leeway_cli.selection.sources import sandbox_catalog

from tests.fakes.table import TableInMemory
from tests.reconciliation.account import facts
from tests.retirement.retirements import interrupted

NOON = datetime(2026, 11, 23, 12, 0, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WEB = Owner(OwnerKind.LEEWAY, "web")
NODE = Resources({"cpu": 4000, "memory": 16 * 2**30, "pods": 58})


def instance(number: int, owner: Owner = WEB, capacity_type: str = "spot") -> InstanceFacts:
    return facts(number, owner=owner).model_copy(update={"capacity_type": capacity_type})


def a_dollar(_: InstanceFacts) -> tuple[float, float]:
    return 1.0, 3.0


def pod(namespace: str, cpu: int = 0, memory: int = 0, **labels: str) -> PodUse:
    return PodUse(namespace, Resources({"cpu": cpu, "memory": memory * 2**30}), labels)


@dataclass
class World:
    """A cluster at a time, and the function that records its costs."""

    now_: datetime = NOON
    running: dict[str, InstanceFacts] = field(default_factory=dict)
    gone: dict[str, InstanceFacts] = field(default_factory=dict)
    uses: dict[str, NodeUse] = field(default_factory=dict)
    interruptions: list[ObservedInterruption] = field(default_factory=list)
    down: bool = False
    price: Price = a_dollar
    labels: tuple[str, ...] = ()
    reads: int = 0

    def __post_init__(self) -> None:
        self.table = TableInMemory(self)
        self.start_anew()

    def start_anew(self) -> None:
        """Another environment of the function remembers nothing."""
        self.recorder = CostRecorder(self.table, lambda: self.price, self.read, self)

    def now(self) -> datetime:
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=seconds)

    def read(self, _cluster: str, _labels: Collection[str]) -> Mapping[str, NodeUse]:
        self.reads += 1
        if self.down:
            raise ClusterUnavailable("the API server does not answer")
        return self.uses

    def run(self, minutes: int = 1) -> None:
        """Run the function once a minute."""
        for _ in range(minutes):
            self.record()
            self.now_ += MINUTE

    def record(self) -> Recorded:
        listed = [ObservedInstance(one, "running", NOON) for one in self.running.values()]
        listed += [ObservedInstance(one, "terminated", NOON) for one in self.gone.values()]
        return self.recorder.record("prod", listed, self.labels, self.interruptions)

    @property
    def hours(self) -> list[CostHour]:
        return list(self.table.list(COST, cluster="prod"))


def start(*instances: InstanceFacts) -> World:
    return World(running={one.instance: one for one in instances})


def test_an_hour_of_two_nodes_costs_two_hours() -> None:
    world = start(instance(1), instance(2, Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")))
    world.run(61)
    report = sum_up(world.hours, NOON, world.now_)
    assert report.owners["leeway/web"].hours == pytest.approx(1)
    assert report.owners["auto-scaling-group/ng"].usd == pytest.approx(1)
    assert report.usd == pytest.approx(2)
    assert report.gaps == ()
    assert report.spot_saved == pytest.approx(2), "the group is not a decision of Leeway"


def test_a_write_happens_once_in_five_minutes() -> None:
    world = start(instance(1))
    world.run(61)
    assert len(world.table.written) == 13
    assert world.reads == 12, "the first look counts no time"


def test_a_second_run_in_a_minute_and_a_second_function_count_nothing_twice() -> None:
    world = start(instance(1))
    for _ in range(31):
        world.record()
        world.start_anew()
        world.record()
        world.now_ += MINUTE
    assert sum_up(world.hours, NOON, world.now_).hours == pytest.approx(0.5)


def test_of_two_runs_at_once_one_counts() -> None:
    world = start(instance(1))
    world.run(5)
    other = CostRecorder(world.table, lambda: world.price, world.read, world)

    def interleaved(_cluster: str, _labels: Collection[str]) -> Mapping[str, NodeUse]:
        world.read = lambda *_: {}  # type: ignore[method-assign]
        other.record("prod", [ObservedInstance(instance(1), "running", NOON)], ())
        return {}

    world.read = interleaved  # type: ignore[method-assign]
    world.record()
    assert sum_up(world.hours, NOON, world.now_).hours == pytest.approx(5 / 60)


def test_a_node_that_lives_for_three_minutes_counts() -> None:
    world = start()
    world.run(6)
    world.running["i-1"] = instance(1)
    world.run(3)
    del world.running["i-1"]
    world.run(6)
    assert sum_up(world.hours, NOON, world.now_).hours == pytest.approx(3 / 60)


def test_a_late_run_stands_for_the_time_since_the_last_one() -> None:
    world = start(instance(1))
    world.run(1)
    world.now_ += 12 * MINUTE
    world.run(1)
    report = sum_up(world.hours, NOON, world.now_)
    assert report.hours == pytest.approx(13 / 60)
    assert report.gaps == ()


@pytest.mark.parametrize("missing", [20 * MINUTE, timedelta(hours=5)])
def test_a_gap_is_named_and_costs_nothing(missing: timedelta) -> None:
    world = start(instance(1))
    world.run(11)
    world.now_ += missing
    world.run(11)
    report = sum_up(world.hours, NOON, world.now_)
    ((begin, end),) = report.gaps
    assert (begin, end) == (NOON + 10 * MINUTE, NOON + 11 * MINUTE + missing)
    counted_since = world.hours[-1].through - end
    assert counted_since > 5 * MINUTE
    assert report.hours * 60 == pytest.approx(10 + counted_since / MINUTE)


def test_a_function_that_runs_no_more_leaves_a_gap_up_to_now() -> None:
    world = start(instance(1))
    world.run(11)
    now = world.now_ + timedelta(hours=2)
    assert sum_up(world.hours, NOON, now).gaps == ((NOON + 10 * MINUTE, now),)
    assert sum_up(world.hours, NOON, world.now_).gaps == ()


def test_a_table_that_does_not_answer_costs_no_time() -> None:
    world = start(instance(1))
    world.run(6)

    def down(*_: object) -> None:
        raise ConnectionError

    world.table.before = down
    for _ in range(14):
        with suppress(ConnectionError):
            world.record()
        world.now_ += MINUTE
    world.table.before = lambda *_: None
    world.run(1)
    assert sum_up(world.hours, NOON, world.now_).hours == pytest.approx(20 / 60)


def test_costs_are_split_by_the_larger_share_of_cpu_and_memory() -> None:
    one = instance(1)
    world = start(one)
    world.labels = ("team",)
    world.uses = {
        one.instance: NodeUse(
            NODE, (pod("shop", cpu=1000, memory=1, team="a"), pod("ops", cpu=100, memory=8))
        )
    }
    world.run(61)
    report = sum_up(world.hours, NOON, world.now_)
    assert report.namespaces == pytest.approx({"shop": 0.25, "ops": 0.5})
    assert report.labels == {"team": pytest.approx({"a": 0.25, "": 0.5})}
    assert report.idle == pytest.approx(0.25)
    assert report.unsplit == 0


def test_shares_of_more_than_the_node_are_scaled_to_it() -> None:
    assert shares(NodeUse(NODE, (pod("a", cpu=4000), pod("b", memory=16)))) == [0.5, 0.5]
    assert shares(NodeUse(Resources(), (pod("a", cpu=1),))) == [0.0]


def test_a_pod_with_the_gpus_of_a_node_has_the_node() -> None:
    node = NodeUse(
        NODE + Resources({"nvidia.com/gpu": 1}),
        (PodUse("train", Resources({"cpu": 100, "nvidia.com/gpu": 1})),),
    )
    assert shares(node) == [1.0]


def test_costs_without_an_answer_of_the_api_server_are_not_split() -> None:
    world = start(instance(1))
    world.run(1)
    world.down = True
    world.run(5)
    report = sum_up(world.hours, NOON, world.now_)
    assert report.unsplit == report.usd == pytest.approx(5 / 60)
    assert report.idle == 0


def test_hours_without_a_price_are_counted_apart() -> None:
    world = start(instance(1))
    world.price = prices_of(None)
    world.run(61)
    report = sum_up(world.hours, NOON, world.now_)
    assert report.usd == 0
    assert report.unpriced_hours == pytest.approx(1)


def test_prices_are_those_of_the_catalog() -> None:
    price = prices_of(sandbox_catalog("us-east-1"))
    spot, reserved = instance(1), instance(2, capacity_type="reserved")
    paid, listed = price(spot) or (0.0, 0.0)
    assert 0 < paid < listed
    assert price(reserved) == (listed, listed)
    assert price(spot.model_copy(update={"instance_type": "m99.large"})) is None
    assert price(spot.model_copy(update={"zone": "mars-1a"})) is None


def test_thousands_of_namespaces_stay_within_an_item() -> None:
    pods = [pod(f"team-{n:04}-{'x' * 50}", cpu=n) for n in range(1, 3001)]
    one = instance(1)
    uses = {one.instance: NodeUse(Resources({"cpu": 10_000_000}), pods)}
    before = CostHour("prod", "2026-11-23", "12", NOON)
    hour = before
    for number in range(1, 4):
        hour = counted(hour, [Look(NOON + number * 5 * MINUTE, [one])], uses, a_dollar)
    assert len(hour.namespaces) == MOST_NAMESPACES
    total = sum(hour.namespaces.values()) + hour.idle
    assert total == pytest.approx(hour.owners["leeway/web"].usd) == pytest.approx(0.25)
    assert hour.namespaces[OTHER] > 0
    item = COST.write(hour, {}, NOON)
    assert isinstance(item.body, bytes)
    assert len(item.body) < 100_000
    assert COST.read(item) == hour


@pytest.mark.parametrize("minutes", [21, 58])
def test_an_owner_whose_last_node_is_gone_is_told_once_also_in_a_new_hour(minutes: int) -> None:
    world = start(instance(1), instance(2, Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")))
    world.run(minutes)
    del world.running[instance(1).instance]
    told = []
    for _ in range(30):
        told += [one for one in world.record().nodes if one.owner == "leeway/web"]
        world.now_ += MINUTE
    assert [(one.nodes, one.usd_per_hour) for one in told] == [(0, 0.0)]


def give_back(world: World, one: InstanceFacts, cause: str, saving: float) -> None:
    """Leeway ends an instance now."""
    del world.running[one.instance]
    world.gone[one.instance] = one
    record = interrupted(Phase.FINISHED).model_copy(
        update={
            "facts": one,
            "kind": NoticeKind.CAPACITY_RETURN,
            "terms": ReturnTerms(cause=cause, saving=saving),
            "ended_at": world.now_,
            "replacement_intent": ReplacementIntent(
                method=Method.NOTHING,
                requested_at=world.now_,
                to_terminate=True,
                settled=True,
                reason=RETIREMENT_STARTED("It ends."),
            ),
        }
    )
    world.table.records(RETIREMENT)[one.instance] = record


def test_what_was_given_back_counts_once() -> None:
    nodes = [instance(number) for number in range(4)]
    world = start(*nodes)
    world.run(7)
    give_back(world, nodes[0], "Empty", 0.5)
    world.run(1)
    world.start_anew()
    give_back(world, nodes[1], "Empty", 0.25)
    give_back(world, nodes[2], "Underutilized", 0.125)
    world.run(60)
    assert [one.returned for one in world.hours if one.returned] == [
        {"Empty": Returned(2, 0.75), "Underutilized": Returned(1, 0.125)}
    ]
    report = sum_up(world.hours, NOON, NOON + timedelta(days=7))
    assert [(one.cause, one.nodes) for one in report.saved] == [("Empty", 2), ("Underutilized", 1)]
    assert [one.usd for one in report.saved] == pytest.approx([0.75 * 24, 0.125 * 24])


def interrupt(world: World, one: InstanceFacts) -> None:
    """EC2 has marked an instance two minutes ago, and terminates it now."""
    world.gone[one.instance] = world.running.pop(one.instance)
    mark = ObservedInterruption(one.instance, InterruptionAction.TERMINATE, world.now_)
    world.interruptions.append(mark)


def test_interruptions_count_once_by_type_and_zone() -> None:
    nodes = [instance(number) for number in range(4)]
    world = start(*nodes, instance(4, capacity_type="on-demand"))
    world.run(58)
    interrupt(world, nodes[0])
    world.interruptions *= 2  # EC2 may list an instance under two requests
    world.run(2)
    interrupt(world, nodes[1])
    world.start_anew()
    world.run(4)
    elsewhere = ObservedInterruption("i-of-another", InterruptionAction.TERMINATE, world.now_)
    world.interruptions.append(elsewhere)
    world.run(60)
    key = f"{nodes[0].instance_type} {nodes[0].zone}"
    assert {pool for hour in world.hours for pool in hour.spot} == {key}
    report = sum_up(world.hours, NOON, NOON + timedelta(days=1))
    assert report.spot[key].interruptions == 2
    assert report.spot[key].hours == pytest.approx(report.hours - 124 / 60, abs=0.2)


def test_a_mark_is_not_counted_while_the_instance_runs() -> None:
    (node,) = [instance(0)]
    world = start(node)
    world.interruptions.append(
        ObservedInterruption(node.instance, InterruptionAction.TERMINATE, NOON)
    )
    world.run(60)
    assert [one.interruptions for hour in world.hours for one in hour.spot.values()] == [0]


def test_the_interruptions_of_two_runs_at_once_count_once() -> None:
    node = instance(0)
    world = start(node)
    world.run(6)
    interrupt(world, node)
    other = CostRecorder(world.table, lambda: world.price, world.read, world)
    for _ in range(20):
        world.record()
        listed = [ObservedInstance(node, "terminated", NOON)]
        other.record("prod", listed, (), world.interruptions)
        world.now_ += MINUTE
    found = [one.interruptions for hour in world.hours for one in hour.spot.values()]
    assert sum(found) == 1


def test_many_types_and_zones_stay_within_an_item() -> None:
    nodes = [
        facts(number).model_copy(update={"instance_type": f"x{number}.large"})
        for number in range(MOST_OWNERS + 20)
    ]
    hour = CostHour("prod", "2026-11-23", "12", NOON)
    found = counted(hour, [Look(NOON + 5 * MINUTE, nodes)], {}, a_dollar)
    assert len(found.spot) == MOST_OWNERS
    assert found.spot[OTHER].hours == pytest.approx(21 / 12)
    later = counted(found, [], {}, a_dollar, interrupted={"x0.large us-east-1z": 2})
    assert sum((one for one in later.spot.values()), SpotPool()).interruptions == 2


def test_a_pool_that_hibernates_saves_until_it_is_awake() -> None:
    nodes = [instance(number) for number in range(3)]
    world = start(*nodes)
    asleep = SleepingPools(pools=(SleepingPool(pool="web", until="07:30 Europe/Berlin"),))
    world.table.put(SLEEPING, asleep, cluster="prod")
    world.run(6)
    give_back(world, nodes[0], "Hibernation", 0.5)
    world.run(30)
    give_back(world, nodes[1], "Hibernation", 0.25)
    world.run(60)
    world.start_anew()
    world.run(64)
    world.table.put(SLEEPING, SleepingPools(), cluster="prod")
    world.run(120)
    report = sum_up(world.hours, NOON, world.now_)
    (saved,) = report.saved
    assert (saved.cause, saved.nodes, saved.usd_per_hour) == ("Hibernation", 2, 0.75)
    slept = 0.5 * 154 / 60 + 0.25 * 124 / 60
    assert slept - 0.75 / 6 <= saved.usd <= slept, "within ten minutes, and never too much"
    assert all(not one.asleep for one in world.hours[-1:])


def test_no_pool_saves_after_its_window_has_opened_although_no_run_has_recorded_that() -> None:
    node = instance(0)
    world = start(node)
    opens = world.now_ + timedelta(hours=1)
    asleep = SleepingPool(pool="web", until="13:00 UTC", opens=opens)
    world.table.put(SLEEPING, SleepingPools(pools=(asleep,)), cluster="prod")
    world.run(6)
    give_back(world, node, "Hibernation", 0.5)
    world.run(200)
    (saved,) = sum_up(world.hours, NOON, world.now_).saved
    assert 0 < saved.usd <= 0.5 * 54 / 60


lifetimes = st.lists(
    st.tuples(st.floats(0, 7000), st.floats(30, 7000)).map(lambda one: (one[0], sum(one))),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(lifetimes, st.sets(st.integers(0, 130), max_size=6), st.sets(st.integers(0, 130)))
def test_the_total_is_that_of_the_instance_hours(
    lives: list[tuple[float, float]], restarts: set[int], doubled: set[int]
) -> None:
    """Each life of an instance is counted to a minute at both ends, or to the five minutes before a
    restart of the function."""
    world = World()
    for minute in range(131):
        at = minute * 60.0
        world.running = {
            f"i-{number}": facts(number)
            for number, (begin, end) in enumerate(lives)
            if begin <= at < end
        }
        if minute in restarts:
            world.start_anew()
        for _ in range(2 if minute in doubled else 1):
            world.record()
        world.now_ += MINUTE
    lived = sum(min(end, 7800) - min(begin, 7800) for begin, end in lives) / 3600
    report = sum_up(world.hours, NOON, world.now_)
    per_life = 60 + 300 * len(restarts)
    assert report.gaps == ()
    assert abs(report.hours - lived) <= len(lives) * per_life / 3600
    assert report.usd == pytest.approx(report.hours)
    assert report.usd == pytest.approx(report.idle + report.unsplit)


def test_owner_costs_add_up() -> None:
    assert OwnerCost(1, 2, 3, 4) + OwnerCost(1, 1, 1, 1) == OwnerCost(2, 3, 4, 5)
