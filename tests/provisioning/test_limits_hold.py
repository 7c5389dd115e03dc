"""Limits of pools hold, and no pod gets two nodes, whatever becomes of instances and runs."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from leeway.launch.intent import INTENT
from leeway.launch.prices import ROUNDING, Prices
from leeway.selection.offers.catalog import Catalog

from tests.provisioning.cluster_life import (
    LIMITS,
    MOST,
    NUMBERS,
    ClusterHistory,
    Life,
    LivingCluster,
    live_through,
)

USD = 5.0
"""USD per hour: more than one node of the pool costs."""


class History(ClusterHistory):
    """Histories of a cluster whose pool is full from the beginning."""

    limits: Mapping[str, Any] = {**LIMITS[0], **LIMITS[1]}

    def __init__(self) -> None:
        super().__init__()
        self.cluster = LivingCluster(self.catalog, self.limits)
        self.cluster.create_pods(MOST + 1)
        self.cluster.run_now()

    @rule(exits=st.booleans())
    def evict(self, exits: bool) -> None:
        self.cluster.evict()
        self.run()
        if exits:
            self.cluster.exit_pods()

    @rule(number=NUMBERS, held=st.booleans())
    def delete_node(self, number: int, held: bool) -> None:
        if one := self.one(number):
            (self.cluster.delete_node if held else self.cluster.remove_node)(one)
        self.run()

    def run(self, killed_at: int = 0, moment: str = "before") -> None:
        """Run, and check that no more is launched than the limit allows and pods need."""
        cluster = self.cluster
        needed = max(0, cluster.needy() - cluster.places())
        before = len(cluster.lives)
        cluster.run_now(killed_at, moment)
        launched = len(cluster.lives) - before
        assert launched <= needed, f"{launched} nodes for {needed} pods without a place"
        self.check_limit()

    def check_limit(self) -> None:
        assert len(self.cluster.alive()) <= MOST, self.cluster.alive()


class HistoryOfSpending(History):
    """The same with a limit in money. A node that retires does not count any more."""

    limits: Mapping[str, Any] = {"leeway.sh/usd-per-hour": str(USD)}

    def check_limit(self) -> None:
        alive = [one for one in self.cluster.alive() if not one.retiring]
        running = (self.cluster.fleets.running[one.instance] for one in alive)
        assert sum(map(Prices(self.catalog).of_instance, running)) <= USD + ROUNDING, alive


@pytest.mark.parametrize("history", [History, HistoryOfSpending])
def test_a_limit_holds_and_no_pod_gets_two_nodes_in_any_history(
    catalog: Catalog, history: type[History]
) -> None:
    live_through(history, catalog)


@pytest.fixture(params=LIMITS, ids=["nodes", "cpu"])
def full(catalog: Catalog, request: pytest.FixtureRequest) -> LivingCluster:
    """A cluster whose pool has reached its limit, and in which one more pod waits."""
    cluster = LivingCluster(catalog, request.param)
    cluster.create_pods(MOST + 1)
    cluster.run_now()
    assert len(cluster.alive()) == MOST
    return cluster


def launched(cluster: LivingCluster) -> int:
    """Run twice, and return how many instances were launched."""
    before = len(cluster.lives)
    cluster.run_now()
    cluster.run_now()
    return len(cluster.lives) - before


def end(cluster: LivingCluster, one: Life) -> None:
    """End an instance, so that EC2 shows it."""
    cluster.sleep(70)
    cluster.end(one, node_stays=False)


@pytest.mark.parametrize("admitted", [False, True])
@pytest.mark.parametrize("goes", [LivingCluster.retire_instance, LivingCluster.delete_node])
def test_a_node_that_goes_as_soon_as_it_has_joined_counts_until_its_instance_has_ended(
    full: LivingCluster, goes: Callable[[LivingCluster, Life], None], admitted: bool
) -> None:
    one = full.alive()[0]
    full.register(one)
    if admitted:
        full.admit(one)
    goes(full, one)
    assert launched(full) == 0
    end(full, one)
    assert launched(full) == 1


@pytest.mark.parametrize("after", [60, 1200])
def test_an_instance_without_a_node_counts_until_it_has_ended(
    full: LivingCluster, after: int
) -> None:
    for one in full.alive():
        full.register(one)
        full.admit(one)
    one = full.alive()[0]
    full.remove_node(one)
    full.sleep(after)
    assert launched(full) == 0
    end(full, one)
    assert launched(full) == 1


def test_a_node_that_admission_never_labelled_counts(full: LivingCluster) -> None:
    for one in full.alive():
        full.register(one)
    full.sleep(1200)
    assert launched(full) == 0


def left_without_an_answer(catalog: Catalog) -> LivingCluster:
    """A full cluster whose run was killed between the launch and the write of its answer."""
    for call in range(1, 60):
        cluster = LivingCluster(catalog, LIMITS[0])
        cluster.create_pods(MOST)
        cluster.run_now(call, "after")
        if cluster.lives:
            assert not any(one.is_answered for one in cluster.table.list(INTENT, cluster="prod"))
            return cluster
    raise AssertionError("no run launched")


def test_a_retiring_node_of_a_killed_run_takes_no_pods_and_counts(catalog: Catalog) -> None:
    cluster = left_without_an_answer(catalog)
    for one in cluster.alive():
        cluster.register(one)
    cluster.retire_instance(cluster.alive()[0])
    report = cluster.run_now()
    assert report is not None
    assert {one.cause.code for one in report.without_node} == {"PoolLimitReached"}
    assert len(cluster.alive()) == MOST


def test_a_node_that_cannot_be_read_counts(full: LivingCluster) -> None:
    one = full.alive()[0]
    full.register(one)
    full.unreadable = {one.node}
    assert launched(full) == 0
