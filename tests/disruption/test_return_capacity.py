"""Runs that give capacity back: a node goes once, confirmed, and only if it is Leeway's."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from leeway.aws.provision_queue import WAKES_APART
from leeway.disruption.watched_nodes import HELD_FOR
from leeway.execution.attempt import Phase
from leeway.instances.facts import Owner, OwnerKind
from leeway.launch.fleets import FleetInstance, Offers
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.manifests.node_pool import EXPIRATION
from leeway.notices import NoticeKind
from leeway.policy.repair import Unhealthy
from leeway.policy.rules import Action, ChurnCap, ClusterPolicy, OnBlocked, Replacement, Worth
from leeway.ports.kubernetes_objects import RETIRING
from leeway.provisioning.report import CapacityReturned
from leeway.retirement.disruption_budget import LEDGER, read_ledger
from leeway.retirement.record import NODE_DELETED, RETIREMENT, ReplacementIntent
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Pod, Taint

from tests.disruption.clusters import Cluster, facts
from tests.disruption.returning import RUN_EVERY, Returning
from tests.launch.conftest import catalog
from tests.launch.launching import NOW
from tests.launch.pools import node_class, pods, pool
from tests.manifests.texts import manifests

__all__ = ["catalog"]

EMPTY_AFTER_30S = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}


@pytest.fixture
def empty(catalog: Catalog) -> Returning:
    """A cluster with an empty node, whose pool gives empty nodes back after 30 seconds."""
    cluster = Cluster(catalog, disruption=EMPTY_AFTER_30S)
    cluster.add("spare")
    returning = Returning(cluster)
    returning.record_launches()
    return returning


def test_an_empty_node_goes_once_after_two_runs_agree(empty: Returning) -> None:
    first, second, third = empty.run(), empty.run(), empty.run()
    assert first == second == CapacityReturned()
    (told,) = third.begun
    assert told.code == "CapacityReturned"
    assert "spare" in told.message
    record = empty.retirements["i-spare"]
    assert (record.kind, record.phase) == (NoticeKind.CAPACITY_RETURN, Phase.NOTICED)
    assert (record.action, record.replacement) == (Action.RETIRE, Replacement.NONE)
    assert record.reason.code == "NodeEmpty"
    assert record.returns is not None
    assert (record.returns.cause, record.returns.pods) == ("Empty", 0)
    assert empty.runs(5) == [], "it retires already"
    assert empty.started() == ["i-spare"]
    assert not empty.requests


def test_a_lost_start_is_repeated(empty: Returning) -> None:
    empty.starts.failures = 1
    assert [one.failures[0].code for one in empty.runs(3)] == ["CapacityReturnFailed"]
    empty.runs(3)
    assert empty.started() == ["i-spare"]
    assert empty.retirements["i-spare"].attempt == 1


def test_environments_that_alternate_act_as_one(empty: Returning) -> None:
    started = []
    for _ in range(3):
        empty.restart()
        empty.run()
        started.append(empty.started())
    assert started == [[], [], ["i-spare"]]


def test_a_cold_function_knows_for_how_long_nodes_were_quiet(catalog: Catalog) -> None:
    after = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30m"}
    cluster = Cluster(catalog, disruption=after)
    cluster.add("spare")
    returning = Returning(cluster)
    returning.record_launches()
    for _ in range(5):
        returning.restart()
        returning.runs(6)
    assert returning.started() == []
    returning.restart()
    returning.runs(3)
    assert returning.started() == ["i-spare"]


def test_nothing_goes_while_the_run_launches_or_the_cluster_is_paused(empty: Returning) -> None:
    for _ in range(4):
        assert empty.run(launched=True) == CapacityReturned()
        assert empty.run(paused=True) == CapacityReturned()
    assert empty.run() == CapacityReturned(), "the first decision"
    assert empty.run().begun, "the nodes were watched meanwhile"


TEN_SECONDS = timedelta(seconds=10)


def expired(catalog: Catalog) -> Returning:
    """A cluster with a node that has expired, of a pool that has all of them go."""
    cluster = Cluster(catalog, template={"expireAfter": "1h"})
    cluster.annotate({EXPIRATION: "forceful"})
    cluster.add("old", *pods(1), created_at=NOW - timedelta(hours=2))
    returning = Returning(cluster)
    returning.record_launches()
    return returning


@pytest.mark.parametrize("launching", [1, 2, 5])
def test_runs_that_launch_between_two_others_keep_what_is_decided(
    empty: Returning, catalog: Catalog, launching: int
) -> None:
    for returning in (empty, expired(catalog)):
        for number in range(30):
            returning.run(launched=number % (launching + 1) > 0, after=TEN_SECONDS)
        assert len(returning.started()) == 1


def test_nodes_go_although_all_runs_launch_others(empty: Returning, catalog: Catalog) -> None:
    for returning in (empty, expired(catalog)):
        returning.run()
        began = returning.time
        while not returning.started():
            returning.restart()
            returning.run(launched=True, after=TEN_SECONDS)
            assert returning.time - began <= timedelta(minutes=5)


def test_a_run_without_time_decides_nothing_however_long_that_lasts(empty: Returning) -> None:
    empty.run()
    for _ in range(30):
        empty.run(launched=True, in_time=False)
    assert not empty.started()
    assert empty.run() == CapacityReturned(), "what was decided half an hour ago is forgotten"
    assert empty.run().begun


def test_a_run_that_launches_and_decides_counts_what_it_has_launched(catalog: Catalog) -> None:
    taints = [{"key": "new", "effect": "PreferNoSchedule"}]
    cluster = Cluster(catalog, limits={"nodes": 2}, template={"taints": taints})
    cluster.add("old", *pods(2))
    cluster.own["i-new"] = facts("i-new", joined=False)
    returning = Returning(cluster)
    returning.record_launches()
    new = FleetInstance("i-new", "m5.large", "us-east-1a", "spot")
    returning.table.put(
        INTENT,
        LaunchIntent(
            id="one",
            cluster="prod",
            pool="web",
            token="t",
            created_at=NOW,
            request=None,
            instances=(new,),
        ),
    )
    for _ in range(30):
        returning.run(launched=True, after=TEN_SECONDS)
    assert not returning.started(), "the pool has no room for one more node"
    returning.table.records(INTENT, by="id").clear()
    del cluster.own["i-new"]
    for _ in range(30):
        returning.run(launched=True, after=TEN_SECONDS)
    assert returning.started() == ["i-old"]


def test_a_dry_run_reports_a_return_once_and_begins_none(empty: Returning) -> None:
    empty.policy = ClusterPolicy(dry_run=True)
    (said,) = empty.runs(6)
    assert [one.code for one in said.rehearsed] == ["CapacityReturnRehearsed"]
    assert empty.started() == []
    assert not empty.retirements


def test_an_instance_without_the_record_of_its_launch_is_left_alone(empty: Returning) -> None:
    empty.admissions.clear()
    (said,) = empty.runs(8)
    assert [one.code for one in said.problems] == ["LaunchNotRecorded"]
    assert empty.started() == []


def test_no_node_goes_by_the_rules_of_a_pool_that_only_its_tag_names(catalog: Catalog) -> None:
    """Who may tag instances must not decide that a node of a pool which keeps its nodes expires."""
    cluster = Cluster(catalog, template={"expireAfter": "1h"})
    cluster.add("old", *pods(1), created_at=NOW - timedelta(hours=2))
    cluster.manifests += manifests(pool("prod", disruption={"consolidateAfter": "Never"}))
    returning = Returning(cluster)
    cluster.own["i-old"] = facts("i-old", owner=Owner(OwnerKind.LEEWAY, "prod"))
    returning.record_launches()
    cluster.own["i-old"] = facts("i-old")
    (said,) = returning.runs(8)
    (told,) = said.problems
    assert told.code == "LaunchNotRecorded"
    assert "for pool web" in told.message
    assert returning.started() == []
    cluster.own["i-old"] = facts("i-old", owner=Owner(OwnerKind.LEEWAY, "prod"))
    cluster.manifests = manifests(pool("prod", template={"expireAfter": "1h"}), node_class())
    returning.runs(3)
    assert returning.started() == ["i-old"], "the tag is put right, and its own pool expires it"


def test_the_churn_cap_counts_retirements_of_every_cause(catalog: Catalog) -> None:
    cluster = Cluster(catalog, template={"expireAfter": "1h"})
    cluster.add("old", *pods(1), created_at=NOW - timedelta(hours=2))
    returning = Returning(cluster)
    returning.record_launches()
    returning.policy = ClusterPolicy(churn=ChurnCap(percent=0, at_least=1))
    use_up(returning)
    assert returning.runs(8) == []
    returning.runs(4)
    assert returning.started() == ["i-old"]


def test_the_churn_cap_keeps_no_empty_node(empty: Returning) -> None:
    empty.policy = ClusterPolicy(churn=ChurnCap(percent=0, at_least=1))
    use_up(empty)
    empty.runs(3)
    assert empty.started() == ["i-spare"]


def use_up(returning: Returning) -> None:
    """Have another node retire, which is all that the churn cap allows in ten minutes."""
    ledger, _ = read_ledger(returning.table, "prod").request(
        "i-other", 5, returning.policy.churn, NOW
    )
    assert ledger is not None
    returning.table.put(LEDGER, ledger)


def test_a_declined_return_is_tried_again_after_ten_minutes(empty: Returning) -> None:
    empty.runs(3)
    decline(empty, "i-spare")
    empty.runs(10)
    assert empty.retirements["i-spare"].attempt == 1
    empty.runs(2)
    assert empty.retirements["i-spare"].attempt == 2


def decline(returning: Returning, instance: str) -> None:
    """End a retirement that has changed nothing."""
    record = returning.retirements[instance]
    declined = {"phase": Phase.FINISHED, "ended_at": returning.time, "version": record.version + 1}
    returning.table.put(RETIREMENT, record.model_copy(update=declined))


@pytest.mark.parametrize("cold", [False, True])
def test_a_declined_return_does_not_use_the_budget_of_others(catalog: Catalog, cold: bool) -> None:
    disruption = {**EMPTY_AFTER_30S, "budgets": [{"nodes": "1"}]}
    cluster = Cluster(catalog, disruption=disruption)
    for name in ("first", "second"):
        cluster.add(name)
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(3)
    assert returning.started() == ["i-first"]
    decline(returning, "i-first")
    for _ in range(3):
        if cold:
            returning.restart()
        returning.run()
    assert returning.started() == ["i-first", "i-second"]


def test_an_expired_node_requests_nodes_for_its_pods_before_it_goes(catalog: Catalog) -> None:
    bounded = {"expireAfter": "1h", "terminationGracePeriod": "5m"}
    cluster = Cluster(catalog, template=bounded)
    cluster.add("old", *pods(1, cpu=90_000), created_at=NOW - timedelta(hours=2))
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(2)
    record = returning.retirements["i-old"]
    assert (record.replacement, record.on_blocked) == (Replacement.BEFORE, OnBlocked.DELETE)
    assert record.deadline == record.noticed_at + timedelta(minutes=5)
    assert record.returns is not None
    assert record.returns.forced
    (request,) = returning.requests.values()
    assert (request.attempt, request.node, request.keeps_offering) == (1, "old", True)


def test_a_pod_that_comes_before_the_second_run_keeps_the_node(empty: Returning) -> None:
    empty.runs(2)
    (web,) = pods(1)
    empty.cluster.add("spare", web)
    assert empty.runs(3) == []
    assert empty.started() == []


def test_an_interruption_in_between_wins(empty: Returning) -> None:
    empty.runs(3)
    record = empty.retirements["i-spare"]
    interrupted = {"kind": NoticeKind.SPOT_INTERRUPTION, "version": record.version + 1}
    empty.table.put(RETIREMENT, record.model_copy(update=interrupted))
    assert empty.retirements["i-spare"].returns is None
    assert empty.runs(3) == []


def test_nodes_that_go_to_save_money_limit_the_price_of_their_successor(catalog: Catalog) -> None:
    cluster = Cluster(
        catalog, disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    )
    for name in ("one", "two"):
        cluster.add(name, *pods(1, name=name))
    returning = Returning(cluster)
    returning.record_launches()
    returning.policy = ClusterPolicy(worth=Worth(per_pod=0.0, least_age=timedelta(0)))
    returning.runs(5)
    (record,) = returning.retirements.values()
    (request,) = returning.requests.values()
    price = Offers(catalog).price("m5.large", "us-east-1a", "on-demand")
    assert record.returns is not None
    assert record.returns.cause == "Underutilized"
    assert (record.returns.optional, record.returns.forced) == (True, False)
    assert record.returns.price_limit == request.price_limit
    assert request.price_limit is not None
    assert (request.price_limit.below, request.price_limit.own) == (price, price)


@pytest.mark.parametrize("grace", [{}, {"terminationGracePeriod": "5m"}])
def test_an_expired_node_goes_in_any_case_and_at_any_price(
    catalog: Catalog, grace: dict[str, str]
) -> None:
    cluster = Cluster(catalog, template={"expireAfter": "1h", **grace})
    cluster.add("old", *pods(1))
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(2)
    returns = returning.retirements["i-old"].returns
    assert returns is not None
    assert (returns.optional, returns.price_limit) == (False, None)


@pytest.mark.parametrize("grace", [{}, {"terminationGracePeriod": "5m"}])
def test_a_drifted_node_stays_if_nothing_replaces_it_even_if_its_drain_is_bounded(
    catalog: Catalog, grace: dict[str, str]
) -> None:
    drifted = {"taints": [{"key": "new", "effect": "PreferNoSchedule"}]}
    cluster = Cluster(catalog, template={**drifted, **grace})
    cluster.add("old", *pods(1))
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(2)
    returns = returning.retirements["i-old"].returns
    assert returns is not None
    assert (returns.cause, returns.optional, returns.forced) == ("Drifted", True, bool(grace))


def test_a_forceful_expiration_begins_though_its_pods_are_protected(catalog: Catalog) -> None:
    closed = {"budgets": [{"nodes": "0"}]}
    cluster = Cluster(catalog, template={"expireAfter": "1h"}, disruption=closed)
    cluster.add("old", *pods(1), protected=True)
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(2)
    assert not returning.retirements
    cluster.annotate({EXPIRATION: "forceful"})
    returning.runs(3)
    record = returning.retirements["i-old"]
    assert record.returns is not None
    assert (record.returns.forced, record.ends_at_deadline) == (True, True)
    assert (record.deadline, record.on_blocked) == (None, OnBlocked.WAIT)


def test_the_status_names_an_unhealthy_node_until_it_retires(catalog: Catalog) -> None:
    cluster = Cluster(catalog, disruption=EMPTY_AFTER_30S)
    why = Unhealthy("Ready", "Unknown", NOW, NOW + timedelta(minutes=30))
    cluster.add("dead", ready=False, unhealthy=why)
    returning = Returning(cluster)
    returning.record_launches()
    said = {one.lasting[0].code for one in returning.runs(3)}
    assert said == {"NodeUnhealthy"}
    assert returning.started() == []


RETIRES_FOR = timedelta(seconds=4)


class Life:
    """A cluster in time: the runs of each minute, those that runs request, and retirements, which
    take some seconds. The Node of an instance stays after it."""

    def __init__(self, catalog: Catalog, nodes: int, budget: str, after: str = "1m") -> None:
        rules = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": after}
        self.cluster = Cluster(catalog, disruption={**rules, "budgets": [{"nodes": budget}]})
        for number in range(nodes):
            self.cluster.add(f"n{number}", *pods(1, name=f"web{number}"))
        self.returning = Returning(self.cluster)
        self.returning.record_launches()
        self.ends: dict[str, datetime] = {}
        self.gone: dict[str, datetime] = {}
        self.woken: list[datetime] = []
        self.alternating = False
        self._minute = NOW

    def empty(self, name: str, at: datetime) -> None:
        """Have the pods of a node end at a time, which the next read finds."""
        given, known = self.cluster.nodes[name]
        self.cluster.nodes[name] = given, replace(known, pods=(), changed_at=at)

    def live(self, until: datetime) -> None:
        """Let time pass."""
        while (at := min(self._next())) <= until:
            self.returning.time = at - RUN_EVERY
            later = self.returning.queue.later
            if at in later:
                later.remove(at)
                self.woken.append(at)
            for name in [name for name, end in self.ends.items() if end <= at]:
                self._end(name)
            if at == self._minute:
                self._minute += RUN_EVERY
            if self.alternating:
                self.returning.restart()
            self.returning.run()
            for instance in self.returning.started():
                self.ends.setdefault(instance, at + RETIRES_FOR)

    def _next(self) -> Iterator[datetime]:
        yield self._minute
        yield from self.returning.queue.later
        yield from (at for name, at in self.ends.items() if name not in self.gone)

    def _end(self, instance: str) -> None:
        if instance in self.gone:
            return
        self.gone[instance] = self.ends[instance]
        retirements = self.returning.retirements
        record = retirements[instance]
        intent = ReplacementIntent(
            method="nothing",
            reason=record.reason,
            requested_at=NOW,
            to_terminate=True,
            settled=True,
        )
        ended = {"phase": Phase.FINISHED, "replacement_intent": intent, "node_is_empty": True}
        retirements[instance] = record.model_copy(update=ended)
        name = instance.removeprefix("i-")
        given, known = self.cluster.nodes[name]
        taint = Taint(RETIRING, "", "NoSchedule")
        self.cluster.nodes[name] = replace(given, taints=(taint,)), known


@pytest.mark.parametrize("second", [0, 28, 56])
def test_an_empty_node_goes_half_a_minute_after_it_is_due_and_the_next_one_right_after_it(
    catalog: Catalog, second: int
) -> None:
    life = Life(catalog, nodes=4, budget="1")
    ended = NOW + timedelta(seconds=second)
    life.live(NOW)
    for name in life.cluster.nodes:
        life.empty(name, ended)
    life.live(NOW + timedelta(minutes=5))
    first, *others = sorted(life.gone.values())
    assert len(others) == 3
    due = ended + timedelta(minutes=1)
    assert due + HELD_FOR <= first - RETIRES_FOR, "confirmed, and not before it is due"
    assert first <= due + timedelta(seconds=30)
    apart = [later - before for before, later in pairwise([first, *others])]
    assert max(apart) <= RETIRES_FOR + timedelta(seconds=1), "as soon as the one before it is gone"
    assert len(life.woken) <= 3


@pytest.mark.parametrize("after", ["1m", "0s"])
def test_a_node_goes_in_time_if_another_environment_makes_each_run(
    catalog: Catalog, after: str
) -> None:
    life = Life(catalog, nodes=1, budget="1", after=after)
    life.alternating = True
    life.live(NOW)
    ended = NOW + timedelta(seconds=5)
    life.empty("n0", ended)
    life.live(NOW + timedelta(minutes=5))
    (gone,) = life.gone.values()
    assert gone <= ended + timedelta(seconds=90)


def test_pods_do_not_wait_for_an_instance_whose_node_was_deleted(empty: Returning) -> None:
    empty.runs(3)
    assert empty.returns.without_node("prod") == frozenset()
    record = empty.retirements["i-spare"]
    assert record.terms is not None
    terms = record.terms.model_copy(update={"cause": NODE_DELETED})
    empty.retirements["i-spare"] = record.model_copy(update={"terms": terms})
    assert empty.returns.without_node("prod") == frozenset({"i-spare"})


def test_runs_request_each_other_for_nodes_that_are_due_and_never_in_a_loop(
    catalog: Catalog,
) -> None:
    """Thirty nodes whose pods end one after the other, of which a budget keeps all but one."""
    life = Life(catalog, nodes=30, budget="0")
    life.live(NOW)
    for number, name in enumerate(life.cluster.nodes):
        life.empty(name, NOW + timedelta(seconds=number / 2))
    life.live(NOW + timedelta(minutes=10))
    assert not life.gone
    most = timedelta(minutes=1).total_seconds() / WAKES_APART
    minute = timedelta(minutes=1)
    assert all(sum(at <= one < at + minute for one in life.woken) <= most for at in life.woken)
    assert len(life.woken) <= 6, "15 seconds of nodes that are due, and nothing after that"


def test_a_table_or_queue_that_fails_delays_a_return_and_is_reported(empty: Returning) -> None:
    empty.queue.down = True
    found = [empty.run() for _ in range(3)]
    assert [one.code for run in found for one in run.failures] == ["CapacityReturnFailed"] * 2
    assert empty.started() == ["i-spare"], "the next minute's run finds it"


def of_deleted_pool(catalog: Catalog, nodes: int = 1, *some: Pod) -> Returning:
    """Nodes whose pool was deleted at the begin."""
    cluster = Cluster(catalog)
    for number in range(nodes):
        cluster.add(f"n-{number}", *some)
    returning = Returning(cluster)
    returning.record_launches()
    cluster.manifests = []
    returning.deleted = {"web": NOW}
    return returning


def test_the_nodes_of_a_deleted_pool_go_after_15_minutes_within_the_budget(
    catalog: Catalog,
) -> None:
    returning = of_deleted_pool(catalog, 3, *pods(1, cpu=500))
    begin, *later = returning.runs(14)
    (said,) = begin.problems
    assert said.code == "DeletedPoolHasNodes"
    assert {one.problems for one in later} == {()}, "it is logged once, and lasts"
    assert {one.lasting for one in later} == {(said,)}
    assert returning.started() == []
    returning.runs(4)
    (first,) = returning.started()
    record = returning.retirements[first]
    assert record.returns is not None
    assert (record.returns.cause, record.returns.optional) == ("PoolDeleted", False)
    assert record.replacement is Replacement.BEFORE, "its pods first get another place"
    assert returning.returns.has_nodes("prod")


def test_a_pool_that_is_applied_again_keeps_its_nodes(catalog: Catalog) -> None:
    returning = of_deleted_pool(catalog)
    returning.runs(14)
    returning.deleted = {}
    keeps = Cluster(catalog, disruption={"consolidateAfter": "Never"})
    returning.cluster.manifests = keeps.manifests
    returning.runs(10)
    assert returning.started() == []


def test_a_pool_without_a_manifest_that_nobody_deleted_keeps_its_nodes(catalog: Catalog) -> None:
    returning = of_deleted_pool(catalog)
    returning.deleted = {}
    found = returning.runs(40)
    assert returning.started() == []
    assert {one.code for each in found for one in each.problems} == {"PoolUnknown"}


def test_manifests_that_cannot_be_read_give_no_node_back(catalog: Catalog) -> None:
    returning = of_deleted_pool(catalog)
    returning.runs(14)
    returning.unread = True
    found = returning.runs(20)
    assert {one.code for each in found for one in each.failures} == {"CapacityReturnFailed"}
    assert returning.started() == []


def test_a_protected_node_of_a_deleted_pool_stays(catalog: Catalog) -> None:
    cluster = Cluster(catalog)
    cluster.add("n-0", protected=True)
    returning = Returning(cluster)
    returning.record_launches()
    cluster.manifests = []
    returning.deleted = {"web": NOW}
    returning.runs(30)
    assert returning.started() == []
