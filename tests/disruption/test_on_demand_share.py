"""The on-demand share of a pool: launches and returns keep it, and restore it after interruptions.

Capacity is the number of vCPUs.
"""

import random
from dataclasses import replace
from datetime import timedelta
from itertools import batched

import pytest
from leeway.disruption.consolidation import TURN
from leeway.disruption.decide import decide_returns
from leeway.disruption.rules import Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, Snapshot
from leeway.selection.labels import CAPACITY_TYPE, SPOT
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.on_demand import Balances
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, OnDemandShare, Pod
from leeway.selection.requirements import Requirements

from tests.disruption.snapshots import CATALOG, own_node, snapshot
from tests.selection.workloads import pods, spec

HALF = NodePool("plain", on_demand=OnDemandShare(percent=50))
WEB = spec(1500, labels={"app": "web"})
SPOT_ONLY = (Requirements.from_labels({CAPACITY_TYPE: "spot"}),)


def planned(waiting: list[Pod], pool: NodePool, *nodes: ExistingNode) -> Plan:
    return pack(waiting, Supply([pool], CATALOG), nodes)


def missing(plan: Plan, pool: NodePool, *nodes: ExistingNode) -> int:
    """The millicores that the pool misses after a plan."""
    found = Balances.among([pool], nodes)
    for new in plan.launches:
        offering, cpu = new.cheapest.offering, new.cheapest.type.capacity.of("cpu")
        found = found.plus(new.pool, offering.capacity_type, cpu)
    return found.missing(pool.name)


@pytest.mark.parametrize(
    ("share", "total", "least"),
    [
        (OnDemandShare(), 8000, 0),
        (OnDemandShare(percent=25), 8000, 2000),
        (OnDemandShare(percent=33), 1000, 330),
        (OnDemandShare(percent=33), 1, 1),
        (OnDemandShare(base=4000), 8000, 4000),
        (OnDemandShare(base=4000), 2000, 2000),
        (OnDemandShare(base=4000, percent=50), 8000, 6000),
        (OnDemandShare(percent=100), 8000, 8000),
    ],
)
def test_the_base_comes_first_and_the_percentage_is_of_what_is_above(
    share: OnDemandShare, total: int, least: int
) -> None:
    assert share.least(total) == least


@pytest.mark.parametrize("percent", [0, 1, 20, 50, 80, 100])
def test_as_many_new_nodes_are_on_demand_as_the_share_requires(percent: int) -> None:
    pool = replace(HALF, on_demand=OnDemandShare(percent=percent))
    plan = planned(pods("web", 10, WEB), pool)
    assert missing(plan, pool) == 0
    lasting = [new for new in plan.launches if new.cheapest.offering.capacity_type != SPOT]
    total = sum(new.cheapest.type.capacity.of("cpu") for new in plan.launches)
    largest = max(new.cheapest.type.capacity.of("cpu") for new in plan.launches)
    cpu = sum(new.cheapest.type.capacity.of("cpu") for new in lasting)
    assert cpu < total * percent / 100 + largest
    for new in lasting:
        assert {choice.capacity_type for choice in new.choices} == {"on-demand"}


def test_nodes_that_exist_count() -> None:
    web = spec(1500, labels={"app": "web"})
    full = own_node("a", spec(4000), kind="medium", capacity_type="on-demand").node
    assert {
        new.cheapest.offering.capacity_type
        for new in planned(pods("w", 1, web), HALF, full).launches
    } == {"spot"}
    going = full.closed()
    plan = planned(pods("w", 1, web), HALF, going)
    assert {new.cheapest.offering.capacity_type for new in plan.launches} == {"on-demand"}


def test_pods_that_need_spot_are_not_kept_waiting() -> None:
    needy = spec(1500, terms=SPOT_ONLY)
    plan = planned([*pods("needy", 3, needy), *pods("web", 3, WEB)], HALF)
    assert plan.unschedulable == ()
    free = [new for new in plan.launches if "web" in new.pods[0]]
    assert {new.cheapest.offering.capacity_type for new in free} == {"on-demand"}


def test_pods_get_spot_nodes_while_on_demand_is_not_available() -> None:
    none = [
        Unavailable(zone, "on-demand", kind)
        for zone in "abc"
        for kind in ("small", "medium", "large", "arm")
    ]
    plan = pack(pods("web", 3, WEB), Supply([HALF], CATALOG, none))
    assert plan.unschedulable == ()


def cluster(*own: OwnNode, rules: ReturnRules | None = None) -> Snapshot:
    return snapshot(*own, rules=rules, pools=(HALF,))


def test_an_empty_on_demand_node_stays_while_the_share_needs_it() -> None:
    needy = spec(3000, terms=SPOT_ONLY)
    given = cluster(own_node("a"), own_node("b", needy, capacity_type="spot"))
    found = decide_returns(given)
    assert found.returns == ()
    assert found.kept["a"].code == "OnDemandShare"
    assert "of the 8 vCPUs of pool plain 4 have to be: it has 4" in found.kept["a"].message


def test_pods_move_from_spot_to_an_on_demand_node_that_stays() -> None:
    given = cluster(own_node("a"), own_node("b", spec(3000), capacity_type="spot"))
    (one,) = decide_returns(given).returns
    assert one.nodes == ("b",)


def test_empty_nodes_go_together_if_none_is_left() -> None:
    given = cluster(own_node("a"), own_node("b", capacity_type="spot"))
    found = decide_returns(given)
    assert {name for one in found.returns for name in one.nodes} == {"a", "b"}


def test_of_two_nodes_of_which_one_is_enough_the_on_demand_one_stays() -> None:
    given = cluster(
        own_node("a", spec(500)),
        own_node("b", spec(500), capacity_type="spot"),
        own_node("c", spec(500), capacity_type="spot"),
    )
    gone = {name for one in decide_returns(given).returns for name in one.nodes}
    assert gone == {"b", "c"}


def test_a_spot_node_is_replaced_if_the_share_misses_capacity() -> None:
    given = cluster(
        own_node("a", spec(3500), capacity_type="spot"),
        own_node("b", spec(3600), capacity_type="spot"),
    )
    (one,) = decide_returns(given).returns
    assert (one.nodes, one.cause, one.replaced) == (("a",), Cause.DRIFTED, True)
    assert "the on-demand share of the pool misses vCPUs: 4." in one.reason.message


def test_spot_nodes_whose_pods_need_spot_do_not_keep_the_share_from_being_restored() -> None:
    needy = [own_node(name, spec(3500, terms=SPOT_ONLY), capacity_type="spot") for name in "abcd"]
    able = own_node("e", spec(3500), capacity_type="spot")
    given = cluster(*needy, able, rules=ReturnRules(budgets=(), only_empty=True))
    times = [given.now + turn * TURN for turn in range(4)]
    went = {one.nodes for at in times for one in decide_returns(replace(given, now=at)).returns}
    assert went == {("e",)}


@pytest.mark.parametrize(
    "lone",
    [
        own_node("a", spec(3500), capacity_type="spot", age=timedelta(minutes=30)),
        own_node("a", spec(3500), capacity_type="spot", quiet=timedelta(0)),
    ],
)
def test_a_young_or_restless_node_is_not_replaced_for_the_share(lone: OwnNode) -> None:
    rules = ReturnRules(after=timedelta(minutes=5), budgets=())
    assert decide_returns(cluster(lone, rules=rules)).returns == ()


def test_a_node_is_not_replaced_if_its_pods_need_spot() -> None:
    lone = own_node("a", spec(3500, terms=SPOT_ONLY), capacity_type="spot")
    assert decide_returns(cluster(lone)).returns == ()


class World:
    """A cluster to which things happen, one after another."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311
        percent = self.dice.choice([10, 30, 50, 70, 100])
        self.pool = replace(HALF, on_demand=OnDemandShare(self.dice.choice([0, 0, 3000]), percent))
        self.own: dict[str, OwnNode] = {}
        self._made = 0

    @property
    def missing(self) -> int:
        return Balances.among([self.pool], [one.node for one in self.own.values()]).missing("plain")

    def launch(self, waiting: list[Pod], *going: ExistingNode) -> Plan:
        """Launch nodes for pods, and bind the pods."""
        nodes = [one.node for one in self.own.values()]
        plan = planned(waiting, self.pool, *nodes, *going)
        by_name = {pod.name: pod for pod in waiting}
        for place in plan.existing:
            self._bind(place.node, [by_name[name] for name in place.pods])
        for new in plan.launches:
            self._made += 1
            name, offering = f"node-{self._made}", new.cheapest.offering
            kind = new.cheapest.type.name
            made = own_node(
                name, kind=kind, capacity_type=offering.capacity_type, zone=offering.zone
            )
            self.own[name] = made
            self._bind(name, [by_name[each] for each in new.pods])
        return plan

    def _bind(self, name: str, some: list[Pod]) -> None:
        one = self.own[name]
        node = replace(one.node, pods=(*one.node.pods, *(pod.spec for pod in some)))
        self.own[name] = replace(one, node=node, pods=(*one.pods, *map(MovablePod, some)))

    def arrive(self) -> None:
        self._made += 1
        size = self.dice.choice([200, 700, 1500])
        self.launch(pods(f"set-{self._made}", self.dice.randint(1, 6), spec(size)))

    def leave(self) -> None:
        """Half of the pods of some nodes end."""
        for name, one in list(self.own.items()):
            if self.dice.random() < 0.4:
                kept = one.pods[: len(one.pods) // 2]
                node = replace(one.node, pods=tuple(each.pod.spec for each in kept))
                self.own[name] = replace(one, node=node, pods=kept)

    def interrupt(self) -> None:
        """A node ends, mostly Spot; its pods wait."""
        spot = [name for name, one in self.own.items() if one.capacity_type == SPOT]
        names = spot if spot and self.dice.random() < 0.7 else list(self.own)
        if names:
            gone = self.own.pop(self.dice.choice(names))
            self.launch([each.pod for each in gone.pods], gone.node.closed())

    def give_back(self) -> bool:
        """Carry out what is decided; return whether anything was."""
        found = decide_returns(snapshot(*self.own.values(), pools=(self.pool,)))
        for one in found.returns:
            gone = [self.own.pop(name) for name in one.nodes]
            self.launch(
                [each.pod for node in gone for each in node.pods],
                *(node.node.closed() for node in gone),
            )
        return bool(found.returns)


SEEDS = list(batched(range(60), 15, strict=True))


@pytest.mark.parametrize("seeds", SEEDS)
def test_any_sequence_of_launches_returns_and_interruptions_keeps_the_share(
    seeds: tuple[int, ...],
) -> None:
    for seed in seeds:
        world = World(seed)
        for _ in range(12):
            before = world.missing
            step = world.dice.choice(["arrive", "arrive", "leave", "interrupt", "give back"])
            match step:
                case "arrive":
                    world.arrive()
                    assert world.missing <= before, seed
                case "leave":
                    world.leave()
                case "interrupt":
                    world.interrupt()
                case _:
                    world.give_back()
                    assert world.missing <= before, seed
        rounds = 0
        while world.give_back():
            rounds += 1
            assert rounds < 60, f"{seed}: it does not settle"
        assert world.missing == 0, seed
