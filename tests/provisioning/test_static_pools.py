"""Static pools (spec.replicas): the buyer keeps their number of nodes, and launches none twice."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from leeway.capacity_requests import CAPACITY_REQUEST
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.launch.intent import INTENT
from leeway.manifests.node_pool import NodePool
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.retirement.record import NODE_DELETED, RETIREMENT, ReturnTerms
from leeway.selection.offers.catalog import Catalog

from tests.fakes.fleets import Shortage
from tests.launch.pools import ONE_POD_EACH, node_class, pool
from tests.provisioning.buying import Buying, big_pods
from tests.provisioning.cluster_life import ClusterHistory, Life, LivingCluster, live_through
from tests.retirement.retirements import FACTS, interrupted


def static(replicas: int = 2, name: str = "web", **spec: Any) -> dict[str, Any]:
    """A static pool."""
    return pool(name, only=ONE_POD_EACH, replicas=replicas, **spec)


def living(catalog: Catalog, replicas: int = 2, **limits: int) -> LivingCluster:
    """A cluster whose only pool is static, with its nodes."""
    cluster = LivingCluster(catalog, limits, replicas=replicas)
    cluster.run_now()
    join(cluster)
    return cluster


def join(cluster: LivingCluster) -> None:
    """Have all instances that run join, and be Ready."""
    for one in cluster.alive():
        cluster.register(one)
        cluster.admit(one)


def scale(cluster: Buying, replicas: int) -> None:
    """Apply the pool with another number."""
    web, *others = cluster.manifests.written
    assert isinstance(web.manifest, NodePool)
    spec = web.manifest.spec.model_copy(update={"replicas": replicas})
    changed = web.manifest.model_copy(update={"spec": spec})
    cluster.manifests.written = [replace(web, manifest=changed), *others]


def launched(cluster: LivingCluster) -> int:
    """Run twice, and return how many instances were launched."""
    before = len(cluster.lives)
    cluster.run_now()
    cluster.run_now()
    return len(cluster.lives) - before


def test_a_cluster_without_nodes_and_pods_gets_the_nodes_of_its_static_pool(
    catalog: Catalog,
) -> None:
    buying = Buying(catalog, static(3), node_class())
    report = buying.run()
    assert len(buying.fleets.running) == len(report.launched) == 3
    assert sorted(buying.admitted()) == sorted(buying.fleets.running)
    assert [(one.pool, one.replicas, one.nodes) for one in report.static_pools] == [("web", 3, 3)]
    assert [one.pods for one in buying.table.list(INTENT, cluster="prod")] == [()]
    assert not buying.run().launched


def test_a_settled_static_pool_reads_nothing_from_ec2(catalog: Catalog) -> None:
    cluster = living(catalog)
    requests, descriptions = len(cluster.fleets.requests), len(cluster.descriptions)
    assert launched(cluster) == 0
    assert (len(cluster.fleets.requests), len(cluster.descriptions)) == (requests, descriptions)


def test_a_pool_with_more_replicas_launches_the_difference(catalog: Catalog) -> None:
    cluster = living(catalog)
    scale(cluster, 5)
    assert launched(cluster) == 3


def test_nodes_on_their_way_count_until_they_are_too_late(catalog: Catalog) -> None:
    cluster = LivingCluster(catalog, {}, replicas=2)
    cluster.run_now()
    cluster.sleep(14 * 60)
    assert launched(cluster) == 0
    cluster.sleep(2 * 60)
    assert launched(cluster) == 2


@pytest.mark.parametrize("node_stays", [False, True])
def test_an_instance_that_ends_before_it_joins_is_replaced(
    catalog: Catalog, node_stays: bool
) -> None:
    cluster = LivingCluster(catalog, {}, replicas=2)
    cluster.run_now()
    cluster.sleep(70)
    cluster.end(cluster.alive()[0], node_stays=node_stays)
    assert launched(cluster) == 1


def test_a_node_that_retires_is_replaced_before_it_goes(catalog: Catalog) -> None:
    cluster = living(catalog)
    one = cluster.alive()[0]
    cluster.retire_instance(one)
    assert launched(cluster) == 1
    cluster.end(one, node_stays=False)
    assert launched(cluster) == 0


def test_a_broken_node_counts_until_its_repair_begins_and_is_replaced_once(
    catalog: Catalog,
) -> None:
    cluster = living(catalog)
    cluster.create_pods(1)
    cluster.schedule()
    (one,) = [
        life
        for life in cluster.alive()
        if any(p.on == life.instance for p in cluster.work.values())
    ]
    one.failed = True
    assert launched(cluster) == 0
    cluster.retire_instance(one)
    assert launched(cluster) == 1
    cluster.sleep(70)
    cluster.end(one, node_stays=False)
    assert launched(cluster) == 0


def test_a_node_that_is_being_deleted_is_replaced(catalog: Catalog) -> None:
    cluster = living(catalog)
    cluster.delete_node(cluster.alive()[0])
    assert launched(cluster) == 1


def test_the_limit_holds_while_a_node_retires(catalog: Catalog) -> None:
    cluster = living(catalog, nodes=2)
    one = cluster.alive()[0]
    cluster.retire_instance(one)
    cluster.states.state = cluster.observe()
    report = cluster.run()
    assert not report.launched
    (reason,) = [one for one in report.launch_problems if one.code == "StaticPoolShort"]
    assert "has 1 of its 2 nodes" in reason.message
    assert "limits.nodes is 2" in reason.message
    cluster.sleep(70)
    cluster.end(one, node_stays=False)
    assert launched(cluster) == 1


def test_instances_whose_nodes_the_api_server_has_lost_are_not_launched_again(
    catalog: Catalog,
) -> None:
    cluster = living(catalog)
    for one in cluster.alive():
        cluster.remove_node(one)
        cluster.own[one.instance] = facts(cluster, one)
    cluster.sleep(2 * 3600)  # their intents have gone
    assert launched(cluster) == 0
    one = cluster.alive()[0]
    terms = ReturnTerms(cause=NODE_DELETED)
    changed: dict[str, Any] = {"kind": NoticeKind.CAPACITY_RETURN, "terms": terms}
    changed["facts"] = FACTS.model_copy(update={"instance": one.instance})
    cluster.table.records(RETIREMENT)[one.instance] = interrupted().model_copy(update=changed)
    assert launched(cluster) == 1, "reconcile has found that its Node was deleted"


def facts(cluster: LivingCluster, one: Life) -> InstanceFacts:
    """The facts of an instance that has joined."""
    owner = Owner(OwnerKind.LEEWAY, "web")
    launched = cluster.fleets.running[one.instance]
    return InstanceFacts(
        instance=one.instance,
        cluster="prod",
        private_dns_name=f"{one.instance}.internal",
        zone=launched.zone,
        instance_type=launched.instance_type,
        capacity_type=launched.capacity_type,
        owner=owner,
        joined=True,
        from_fleet=True,
    )


def test_a_lost_answer_launches_nothing_twice(catalog: Catalog) -> None:
    cluster = LivingCluster(catalog, {}, replicas=3)
    cluster.fleets.lost = 20
    cluster.run_now()
    cluster.fleets.lost = 0
    cluster.run_now()
    cluster.run_now()
    assert len(cluster.lives) == 3


def test_what_one_fleet_does_not_launch_the_same_run_launches_from_others(
    catalog: Catalog,
) -> None:
    buying = Buying(catalog, static(3), node_class())
    buying.fleets.free = {"subnet-a": 1, "subnet-b": 1}
    assert len(buying.run().launched) == 3
    zones = sorted(one.zone for one in buying.fleets.running.values())
    assert zones[-1] == "us-east-1c"


def test_a_pool_without_capacity_says_why_and_goes_on_later(catalog: Catalog) -> None:
    buying = Buying(catalog, static(2), node_class())
    buying.fleets.shortages = [Shortage()]
    report = buying.run()
    assert not report.launched
    assert "StaticPoolShort" in {one.code for one in report.launch_problems}
    assert [(one.nodes, one.replicas) for one in report.static_pools] == [(0, 2)]
    buying.fleets.shortages = []
    buying.time += timedelta(minutes=10)
    assert len(buying.run().launched) == 2


def test_no_pod_launches_a_node_of_a_static_pool_and_pods_use_its_nodes(catalog: Catalog) -> None:
    buying = Buying(catalog, static(2), node_class())
    buying.wait_for_nodes(*big_pods(5))
    report = buying.run()
    assert len(report.launched) == 2
    assert len(report.without_node) == 3
    assert {one.cause.code for one in report.without_node} == {"NoNodePool"}


def test_pods_go_to_the_nodes_of_a_static_pool_before_others_are_launched(
    catalog: Catalog,
) -> None:
    buying = Buying(catalog, static(2), pool("other", only=ONE_POD_EACH), node_class())
    buying.wait_for_nodes(*big_pods(3))
    report = buying.run()
    assert sorted(one.pool for one in report.launched) == ["other", "web", "web"]
    assert not report.without_node


def test_the_maximum_of_launches_holds(catalog: Catalog) -> None:
    buying = Buying(catalog, static(5), node_class())
    buying.manifests.policy = ClusterPolicy(most_launches=2)
    report = buying.run()
    assert len(report.launched) == 2
    assert report.capped
    buying.time += timedelta(minutes=11)
    buying.join()
    assert len(buying.run().launched) == 2


def test_the_price_ceiling_holds_and_an_equal_node_replaces_one_that_retires(
    catalog: Catalog,
) -> None:
    cluster = LivingCluster(catalog, {}, replicas=2)
    cluster.run_now()
    join(cluster)
    scale(cluster, 3)
    cluster.manifests.policy = ClusterPolicy(usd_per_hour=0.01)
    assert launched(cluster) == 0
    scale(cluster, 2)
    cluster.retire_instance(cluster.alive()[0])
    assert launched(cluster) == 1


def test_a_dry_run_launches_nothing_and_says_what_is_missing(catalog: Catalog) -> None:
    buying = Buying(catalog, static(2), node_class())
    buying.manifests.policy = ClusterPolicy(dry_run=True)
    report = buying.run()
    assert not buying.fleets.running
    (reason,) = [one for one in report.launch_problems if one.code == "StaticPoolShort"]
    assert "only plans" in reason.message


def retire_in_place(cluster: LivingCluster, one: Life) -> None:
    """Retire an instance that waits until another one is in its place."""
    cluster.retire_instance(one)
    request = cluster.requests[one.instance]
    in_place = request.model_copy(update={"in_place": True, "version": request.version + 1})
    cluster.table.put(CAPACITY_REQUEST, in_place)


def test_a_node_that_goes_only_when_another_is_in_its_place_gets_that_one_as_its_answer(
    catalog: Catalog,
) -> None:
    cluster = living(catalog)
    one = cluster.alive()[0]
    retire_in_place(cluster, one)
    cluster.run_now()
    (new,) = cluster.lives.keys() - {each.instance for each in list(cluster.lives.values())[:2]}
    answer = cluster.requests[one.instance].answer
    assert answer is not None
    assert (answer.launched, answer.without_node) == ((new,), ())
    cluster.sleep(70)
    cluster.end(cluster.lives[new], node_stays=False)
    cluster.run_now()
    again = cluster.requests[one.instance].answer
    assert again is not None
    assert again.launched == (list(cluster.lives)[-1],)


def test_a_node_without_pods_waits_for_the_one_in_its_place_while_that_one_starts(
    catalog: Catalog,
) -> None:
    cluster = living(catalog)
    one = cluster.alive()[0]
    retire_in_place(cluster, one)
    cluster.run_now()
    new = list(cluster.lives.values())[-1]
    cluster.register(new)
    for minutes in (1, 3, 20):
        cluster.sleep(60 * minutes)
        assert launched(cluster) == 0
        answer = cluster.requests[one.instance].answer
        assert answer is not None
        assert (answer.launched, answer.without_node) == ((new.instance,), ())


def test_a_node_that_waits_for_its_place_gets_it_before_one_that_is_too_much(
    catalog: Catalog,
) -> None:
    cluster = living(catalog, replicas=3)
    surplus, waits, _ = sorted(cluster.lives.values(), key=lambda one: one.instance)
    scale(cluster, 2)
    cluster.retire_instance(surplus)
    retire_in_place(cluster, waits)
    assert launched(cluster) == 1
    answer = cluster.requests[waits.instance].answer
    assert answer is not None
    assert answer.launched == (list(cluster.lives)[-1],)


def test_a_node_whose_place_can_not_be_filled_gets_the_reason_as_its_answer(
    catalog: Catalog,
) -> None:
    cluster = living(catalog, nodes=2)
    one = cluster.alive()[0]
    retire_in_place(cluster, one)
    cluster.run_now()
    answer = cluster.requests[one.instance].answer
    assert answer is not None
    assert [each.code for each in answer.without_node] == ["StaticPoolShort"]


MOST = 3


class History(ClusterHistory):
    """Histories of a static pool: instances join, retire and end, and runs die."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = LivingCluster(self.catalog, {"nodes": MOST + 1}, replicas=2)
        self.replicas = 2
        self.run()

    @rule(replicas=st.integers(min_value=0, max_value=MOST))
    def scale(self, replicas: int) -> None:
        scale(self.cluster, replicas)
        self.replicas = replicas
        self.run()

    def _standing(self) -> int:
        """The instances that run, do not retire, and have joined or may join."""
        return sum(
            not one.retiring
            and (bool(one.node) or self.cluster.time - one.launched_at < timedelta(minutes=15))
            for one in self.cluster.alive()
        )

    def run(self, killed_at: int = 0, moment: str = "before") -> None:
        before, lacking = len(self.cluster.lives), max(0, self.replicas - self._standing())
        seen = [one for one in self.cluster.lives.values() if self._may_be_seen(one)]
        room = max(0, MOST + 1 - len({one.instance for one in [*seen, *self.cluster.alive()]}))
        stand = sum(not one.retiring for one in seen)
        report = self.cluster.run_now(killed_at, moment)
        launched = len(self.cluster.lives) - before
        assert launched <= lacking
        assert len(self.cluster.alive()) <= MOST + 1
        if report is not None:
            assert launched >= min(self.replicas - stand, room)

    def _may_be_seen(self, one: Life) -> bool:
        """Whether a run may count an instance: it has a Node, or may join."""
        return bool(one.node) or self.cluster.time - one.launched_at < timedelta(minutes=15)

    def teardown(self) -> None:
        """Whatever has happened, the pool gets its nodes as soon as those that go have ended."""
        cluster = self.cluster
        for one in list(cluster.alive()):
            if one.retiring or not one.node:
                cluster.end(one, node_stays=False)
        for one in cluster.lives.values():
            if one.instance in cluster.fleets.ended:
                cluster.remove_node(one)
        cluster.sleep(16 * 60)
        for _ in range(3):
            self.run()
            join(cluster)
        assert self._standing() >= self.replicas


def test_no_history_of_a_static_pool_launches_too_many_or_too_few(catalog: Catalog) -> None:
    live_through(History, catalog)
