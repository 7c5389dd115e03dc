"""Runs of the buyer: every pod that can have a node gets one, and none is launched twice."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from leeway.capacity_requests import CAPACITY_REQUEST
from leeway.disruption.return_capacity import WATCHED
from leeway.hibernation import SLEEPING
from leeway.instances.facts import InstanceFacts, ObservedInstance, Owner, OwnerKind
from leeway.launch.images import ImageVariant
from leeway.launch.intent import INTENT, JOIN_WITHIN
from leeway.manifests.in_cluster import KARPENTER_IS_RUNNING
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import RETIRING as RETIRING_NODE
from leeway.provision_run import NodeProvisioning
from leeway.provisioning.cluster_state import CORDONED, ClaimedNode, ObservedPod, UnreadableObject
from leeway.provisioning.kept_objects import OBJECT_NOT_READABLE
from leeway.provisioning.report import STATUS
from leeway.provisioning.tell import KEPT_FOR, MOST_EVENTS, TOLD
from leeway.reasons import Reason
from leeway.retirement.record import NODE_DELETED, RETIREMENT, ReturnTerms
from leeway.selection.labels import NODEPOOL, ZONE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Pod, Taint
from leeway.selection.resources import Resources
from leeway.table import Item, Record

from tests.disruption.clusters import facts
from tests.fakes.failing import failing
from tests.fakes.fleets import Shortage
from tests.launch.launching import NOW
from tests.launch.pools import ONE_POD_EACH, document, node_class, pods, pool
from tests.provisioning.buying import (
    NOT_READY,
    RETIRING,
    Buying,
    big_pods,
    node,
    request_of,
)
from tests.retirement.retirements import FACTS, interrupted


@pytest.fixture
def buying(catalog: Catalog) -> Buying:
    return Buying(catalog)


def test_pods_without_a_place_get_a_node_each(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    report = buying.run()
    assert report.result.code == "Provisioned"
    assert len(buying.fleets.running) == len(report.launched) == 3
    assert not report.without_node
    assert not report.retry
    assert sorted(buying.admitted()) == sorted(buying.fleets.running)


def test_a_repeated_or_late_message_launches_nothing(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    buying.run()
    for _ in range(3):
        buying.time += timedelta(minutes=2)
        assert not buying.run().launched
    buying.wait_for_nodes()
    buying.run("late")
    assert len(buying.fleets.running) == 3


@pytest.mark.parametrize(("ready", "labelled"), [(False, True), (False, False), (True, False)])
def test_nodes_that_have_joined_and_are_not_ready_keep_their_pods(
    buying: Buying, ready: bool, labelled: bool
) -> None:
    buying.wait_for_nodes(*big_pods(3))
    buying.run()
    buying.join(ready, labelled)
    buying.time += timedelta(minutes=14)
    assert not buying.run().launched
    assert len(buying.fleets.running) == 3


def test_a_node_that_is_not_ready_after_fifteen_minutes_counts_as_it_is(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.run()
    buying.join(ready=False)
    buying.time += timedelta(minutes=15)
    assert len(buying.run().launched) == 1


def test_a_gpu_node_keeps_its_pod_until_its_device_plugin_answers(catalog: Catalog) -> None:
    buying = Buying(catalog, pool(categories=["g"]), node_class())
    buying.offer_images(ImageVariant("x86_64", "nvidia"))
    (web,) = pods(1, cpu=1000)
    gpus = {**web.spec.requests, "nvidia.com/gpu": 1}
    pod = Pod(web.name, replace(web.spec, requests=type(web.spec.requests)(gpus)))
    buying.wait_for_nodes(pod)
    assert len(buying.run().launched) == 1
    buying.join()
    assert not buying.run().launched
    assert len(buying.fleets.running) == 1


def test_a_launched_instance_that_has_ended_does_not_hold_its_pods(buying: Buying) -> None:
    """A Spot interruption can end an instance before it joins, or a minute after."""
    buying.wait_for_nodes(*big_pods(2))
    buying.run()
    buying.time += timedelta(minutes=3)
    buying.fleets.ended.add(next(iter(buying.fleets.running)))
    assert len(buying.run().launched) == 1
    assert not buying.run().launched


def test_an_instance_whose_node_was_deleted_does_not_hold_its_pods(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(2))
    launched = buying.run().launched
    assert not buying.run().launched, "the first ones may still join"
    gone = launched[0].instance.instance
    terms = ReturnTerms(cause=NODE_DELETED)
    changed: dict[str, Any] = {"kind": NoticeKind.CAPACITY_RETURN, "terms": terms}
    changed["facts"] = FACTS.model_copy(update={"instance": gone})
    buying.table.records(RETIREMENT)[gone] = interrupted().model_copy(update=changed)
    assert len(buying.run().launched) == 1


def interrupt_unjoined(buying: Buying) -> str:
    """Interrupt an instance that has not joined, as its retirement reports it."""
    one = next(iter(buying.fleets.running.values()))
    request = request_of(one, "", buying.time, timedelta(minutes=2))
    buying.table.put(CAPACITY_REQUEST, request)
    return one.instance


def test_an_instance_that_is_interrupted_before_it_joins_does_not_hold_its_pods(
    buying: Buying,
) -> None:
    buying.wait_for_nodes(*big_pods(2))
    buying.run()
    buying.time += timedelta(seconds=5)
    interrupted = buying.fleets.running[interrupt_unjoined(buying)]
    (launched,) = buying.run().launched
    offering = (interrupted.instance_type, interrupted.zone, interrupted.capacity_type)
    other = launched.instance
    assert (other.instance_type, other.zone, other.capacity_type) != offering
    assert not buying.run().launched, "once"
    # The request has ended, and EC2 has ended the instance.
    buying.time += timedelta(minutes=2)
    buying.fleets.ended.add(interrupted.instance)
    assert not buying.run().launched


def test_an_interrupted_instance_counts_against_the_limit_until_it_has_ended(
    catalog: Catalog,
) -> None:
    buying = Buying(catalog, pool(only=ONE_POD_EACH, limits={"nodes": 2}), node_class())
    buying.wait_for_nodes(*big_pods(2))
    buying.run()
    instance = interrupt_unjoined(buying)
    assert {one.cause.code for one in buying.run().without_node} == {"PoolLimitReached"}
    buying.time += timedelta(minutes=2)
    buying.fleets.ended.add(instance)
    assert len(buying.run().launched) == 1


def test_pods_that_fit_on_nodes_that_exist_are_left_to_the_scheduler(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(2))
    state = buying.states.state
    buying.states.state = replace(state, nodes=(node("a"), node("b")))
    report = buying.run()
    assert not report.launched
    assert not report.without_node
    assert not buying.events.calls


def test_the_maximum_in_ten_minutes_stops_launches_and_lets_them_go_on(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(most_launches=2)
    buying.wait_for_nodes(*big_pods(5))
    report = buying.run()
    assert len(report.launched) == 2
    assert report.capped
    assert {one.cause.code for one in report.without_node} == {"LaunchesCapped"}
    assert len(report.without_node) == 3
    assert not report.retry
    assert not buying.run().launched
    assert {one.reason for one in buying.events.existing.values()} == {"LaunchesCapped"}
    buying.time += timedelta(minutes=10)
    buying.join()
    assert len(buying.run().launched) == 2


def test_at_most_zero_launches_nothing(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(most_launches=0)
    buying.wait_for_nodes(*big_pods(1))
    assert buying.run().capped
    assert not buying.fleets.running


def test_a_cluster_without_pools_gives_the_nodes_of_deleted_pools_back(buying: Buying) -> None:
    buying.manifests.written = ()
    buying.wait_for_nodes(*big_pods(1))
    assert buying.run().result.code == "ClusterWithoutPools"
    assert buying.table.get(WATCHED, cluster="prod") is None, "it looks at no node"
    owner = Owner(OwnerKind.LEEWAY, "web")
    launched = {"instance": "i-1", "owner": owner, "joined": True, "from_fleet": True}
    buying.own = {"i-1": FACTS.model_copy(update=launched)}
    report = buying.run()
    assert (report.result.code, report.without_node) == ("ClusterWithoutPools", ())
    assert buying.table.get(WATCHED, cluster="prod")
    assert not buying.events.calls


USD = 5.0
"""USD per hour: more than a node for one of `big_pods` costs, and less than two."""


def test_pods_wait_at_the_price_ceiling(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(usd_per_hour=USD)
    buying.wait_for_nodes(*big_pods(5))
    report = buying.run()
    count = len(report.launched)
    assert 0 < count < 5
    assert report.capped, "an alarm rings"
    assert {one.cause.code for one in report.without_node} == {"PriceCeilingReached"}
    assert {one.reason for one in buying.events.existing.values()} == {"PriceCeilingReached"}
    (group,) = buying.statuses["prod"].without_node
    assert (group.reason.code, group.count) == ("PriceCeilingReached", 5 - count)
    assert not buying.run().launched
    buying.manifests.policy = ClusterPolicy()
    assert len(buying.run().launched) == 5 - count


def test_the_limit_of_a_pool_in_money_holds_over_runs_and_rings_no_alarm(catalog: Catalog) -> None:
    limits = {"leeway.sh/usd-per-hour": str(USD)}
    buying = Buying(catalog, pool(only=ONE_POD_EACH, limits=limits), node_class())
    buying.wait_for_nodes(*big_pods(5))
    count = len(buying.run().launched)
    assert 0 < count < 5
    for _ in range(2):
        report = buying.run()
        assert not report.launched
        assert not report.capped
        buying.join()
    assert {one.reason for one in buying.events.existing.values()} == {"PoolPriceLimitReached"}
    (whole, own) = buying.statuses["prod"].spending
    assert (whole.pool, whole.most) == ("", 100.0)
    assert (own.pool, own.most) == ("web", USD)
    assert 0 < own.used == whole.used <= USD
    buying.retire(*big_pods(1, name="moving"))
    assert len(buying.run().launched) == 1, "a node that retires is replaced at its price"


def test_the_status_counts_what_the_run_has_launched(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.run()
    (first,) = buying.statuses["prod"].spending
    buying.run()
    (second,) = buying.statuses["prod"].spending
    assert 0 < first.used == second.used


def test_overlays_that_conflict_are_reported_and_others_apply(catalog: Catalog) -> None:
    overlays = [
        document("NodeOverlay", name, {"capacity": {f"example.com/{kind}": 1, "example.com/x": 1}})
        for name, kind in (("a", "left-out"), ("b", "kept"))
    ]
    buying = Buying(catalog, pool(only=ONE_POD_EACH), node_class(), *overlays)
    buying.wait_for_nodes(*asking("example.com/kept"), *asking("example.com/left-out"))
    report = buying.run()
    assert len(report.launched) == 1
    assert len(report.without_node) == 1
    (problem,) = [one for one in report.launch_problems if one.code == "OverlayConflict"]
    assert problem.message.startswith("NodeOverlay a is not applied: NodeOverlay b has the same")
    assert problem in buying.statuses["prod"].problems


def asking(resource: str) -> list[Pod]:
    """A pod that requests one of a resource."""
    (pod,) = big_pods(1, name=resource.rpartition("/")[2])
    asked = pod.spec.requests + Resources({resource: 1})
    return [replace(pod, spec=replace(pod.spec, requests=asked))]


def test_a_node_that_retires_is_replaced_at_the_price_ceiling_once(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(usd_per_hour=0.5)
    buying.wait_for_nodes(*big_pods(3, name="new"))
    buying.retire(*big_pods(1, name="moving"))
    assert len(buying.run().launched) == 1
    for _ in range(3):
        report = buying.run()
        assert not report.launched, "other pods may have taken the place"
        assert {one.cause.code for one in report.without_node} == {"PriceCeilingReached"}


def test_only_pods_of_a_retiring_node_get_its_place_at_the_price_ceiling(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(usd_per_hour=0.5)
    buying.wait_for_nodes(*big_pods(3, name="new"))
    buying.retire()
    assert not buying.run().launched


def test_a_paused_cluster_gets_nodes_for_its_pods(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(paused=True)
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == 1


def test_a_dry_run_reports_and_changes_nothing(buying: Buying) -> None:
    buying.manifests.policy = ClusterPolicy(dry_run=True)
    buying.wait_for_nodes(*big_pods(2), *pods(1, cpu=900_000, name="huge"))
    request = buying.retire()
    report = buying.run()
    assert report.result.code == "ProvisioningRehearsed"
    assert [one.pod for one in report.without_node] == ["shop/huge-0"]
    assert not buying.fleets.running
    written = {key for _, key in buying.table.items}
    records = {"STATUS", "WAITS", "WATCHED"}
    assert written == {f"RETIREMENT#{RETIRING}", *records}, "no launch intent"
    assert not buying.events.calls
    assert buying.requests[RETIRING] == request
    assert buying.statuses["prod"].dry_run


def test_a_cluster_whose_karpenter_runs_gets_no_node_and_loses_none(buying: Buying) -> None:
    said = KARPENTER_IS_RUNNING(cluster="prod", namespace="kube-system", at="12:00:00 UTC")
    buying.launch_block = said
    buying.wait_for_nodes(*big_pods(2))
    request = buying.retire()
    report = buying.run()
    assert report.result == said
    status = buying.statuses["prod"]
    assert (status.problems[0], status.dry_run) == (said, False)
    assert not report.launched
    assert not buying.fleets.running
    assert not buying.events.calls
    assert buying.requests[RETIRING] == request
    buying.launch_block = None
    assert len(buying.run().launched) == 2


def test_a_karpenter_that_starts_while_a_run_plans_is_the_only_buyer(buying: Buying) -> None:
    said = KARPENTER_IS_RUNNING(cluster="prod", namespace="kube-system", at="12:00:00 UTC")
    answers: list[Reason | None] = [None, said]
    buying.wait_for_nodes(*big_pods(2))
    deps = replace(buying.dependencies(), launch_block=lambda _cluster, _now: answers.pop(0))
    report = NodeProvisioning(deps).run("prod", "pods", buying.time + timedelta(minutes=1))
    assert not answers
    assert report.result == said
    assert not report.launched
    assert not buying.fleets.running
    assert report.launch_problems.count(said) == 1
    assert len(report.without_node) == 2


def test_a_round_of_which_nobody_knows_whether_it_may_launches_nothing(buying: Buying) -> None:
    asked = count()

    def block(_cluster: str, _now: datetime) -> None:
        if next(asked):
            raise ClusterUnavailable("429: too many requests")

    buying.wait_for_nodes(*big_pods(2))
    deps = replace(buying.dependencies(), launch_block=block)
    report = NodeProvisioning(deps).run("prod", "pods", buying.time + timedelta(minutes=1))
    assert not buying.fleets.running
    assert "429: too many requests" in report.without_node[0].reason.message


def test_without_pools_nothing_is_read_and_requests_are_answered(catalog: Catalog) -> None:
    buying = Buying(catalog, node_class())
    buying.retire(*big_pods(1))
    assert buying.run().result.code == "ClusterWithoutPools"
    assert not buying.states.reads
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert [one.code for one in answer.without_node] == ["ClusterWithoutPools"]


def test_without_a_catalog_the_run_is_repeated(buying: Buying) -> None:
    buying.catalog.catalog = None
    report = buying.run()
    assert (report.result.code, report.retry) == ("CatalogMissing", True)


def test_an_api_server_that_does_not_answer_launches_nothing(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.run()
    buying.states.down = True
    report = buying.run()
    assert (report.result.code, report.retry) == ("ProvisioningFailed", True)
    assert len(buying.fleets.running) == 1
    status = buying.statuses["prod"]
    assert status.failure is not None
    assert len(status.launched) == 1, "the status keeps what the last good run said"


@pytest.mark.parametrize(
    ("record", "body"),
    [(STATUS, "{}"), (SLEEPING, "[]"), (WATCHED, b"?"), (TOLD, b"?")],
    ids=lambda one: one.sk if isinstance(one, Record) else "",
)
def test_a_record_of_another_version_is_written_anew(
    buying: Buying, record: Record[Any], body: str | bytes
) -> None:
    """For example after a roll-back: the records only spare work, and report it."""
    key = record.key({"cluster": "prod"})
    buying.table.items[key] = Item(key, body, version=1)
    buying.wait_for_nodes(*big_pods(1), *pods(1, cpu=1_000_000, name="huge"))
    report = buying.run()
    assert (len(report.launched), report.result.code) == (1, "Provisioned")
    assert not report.failures
    assert not report.retry
    assert buying.table.get(record, cluster="prod") is not None


def test_a_status_that_cannot_be_built_ends_no_other_cluster(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.table.fail(ValueError("a defect"), "put", key="STATUS")
    report = buying.run()
    assert len(report.launched) == 1
    assert [one.code for one in report.failures] == ["ProvisioningNotWritten"]


def test_an_idle_run_does_not_read_ec2(buying: Buying) -> None:
    buying.networks.known.clear()  # a run that reads them says that no subnet is found
    report = buying.run()
    assert report.result.code == "Provisioned"
    assert not report.launch_problems


def test_pods_that_fit_nowhere_have_one_event_each_in_the_end(buying: Buying) -> None:
    huge = pods(450, cpu=900_000, name="huge")
    buying.wait_for_nodes(*huge)
    left = []
    for _ in range(4):
        left.append(buying.run().without_event)
        buying.time += timedelta(minutes=1)
    assert left == [250, 50, 0, 0]
    assert buying.events.calls == len(buying.events.existing) == 450
    told = buying.events.existing.values()
    assert {one.reason for one in told} == {"RequestTooLarge"}
    assert {one.about.uid for one in told} == {f"uid-{pod.name}" for pod in huge}


def test_a_thousand_pods_lead_to_two_hundred_events_a_minute(buying: Buying) -> None:
    buying.wait_for_nodes(*pods(1000, cpu=900_000, name="huge"))
    for seconds in (0, 10, 20, 60):
        buying.time += timedelta(seconds=seconds)
        report = buying.run()
        assert len(report.without_node) == 1000
        assert buying.events.calls == MOST_EVENTS * (2 if seconds == 60 else 1)
    status = buying.statuses["prod"]
    (group,) = status.without_node
    assert (group.count, len(group.some)) == (1000, 5)
    assert status.without_event == 1000 - 2 * MOST_EVENTS


def test_an_event_is_written_again_when_the_api_server_has_dropped_it(buying: Buying) -> None:
    buying.wait_for_nodes(*pods(1, cpu=900_000))
    buying.run()
    buying.events.existing.clear()
    buying.time += KEPT_FOR + timedelta(minutes=1)
    buying.run()
    assert len(buying.events.existing) == 1


def test_events_that_could_not_be_written_are_written_by_a_later_run(buying: Buying) -> None:
    buying.wait_for_nodes(*pods(2, cpu=900_000))
    buying.events.down = True
    report = buying.run()
    assert [one.code for one in report.failures] == ["ProvisioningNotWritten"]
    assert not report.retry
    buying.events.down = False
    assert not buying.run().failures
    assert len(buying.events.existing) == 2


def test_a_failing_launch_is_told_in_the_events_and_in_the_status(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.fleets.refused = "UnauthorizedOperation"
    report = buying.run()
    assert {one.cause.code for one in report.without_node} == {"LaunchRefused"}
    status = buying.statuses["prod"]
    assert [one.code for one in status.problems] == ["LaunchRefused"]
    assert {one.reason for one in buying.events.existing.values()} == {"LaunchRefused"}


def test_a_shortage_is_told_and_another_offering_is_used(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.fleets.shortages = [Shortage(capacity_type="spot")]
    report = buying.run()
    assert [one.instance.capacity_type for one in report.launched] == ["on-demand"]
    assert "CapacityUnavailable" in {one.code for one in report.launch_problems}


def test_objects_that_cannot_be_read_are_in_the_report_and_the_status(buying: Buying) -> None:
    reason = OBJECT_NOT_READABLE(kind="Pod", name="shop/hostile", problem="spec: of no shape")
    hostile = UnreadableObject("Pod", "shop/hostile", reason)
    buying.states.state = replace(buying.states.state, unreadable=(hostile,))
    report = buying.run()
    assert report.unreadable == (reason,)
    assert not report.retry
    status = buying.statuses["prod"]
    assert status.problems == (reason,)


def test_a_run_without_time_launches_nothing_and_says_so(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    report = buying.run(seconds=10)
    assert not report.launched
    assert {one.cause.code for one in report.without_node} == {"NodeNotLaunched"}


def test_a_retiring_nodes_pods_get_a_node_before_they_are_evicted(buying: Buying) -> None:
    moving = big_pods(1, "moving")
    buying.retire(*moving)
    report = buying.run()
    (launched,) = report.launched
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert answer.launched == (launched.instance.instance,)
    assert (answer.existing, answer.without_node) == (0, ())
    offering = (launched.instance.instance_type, launched.instance.zone)
    assert offering != ("m5.24xlarge", "us-east-1a")


def test_a_retiring_node_takes_no_pods_even_if_they_tolerate_every_taint(buying: Buying) -> None:
    buying.retire()
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == 1


def test_the_offering_of_a_retiring_node_is_not_launched(catalog: Catalog) -> None:
    only = pool(only={"family": ["m5"], "size": ["24xlarge"]}, capacity=["spot"])
    requirement = {
        "key": "topology.kubernetes.io/zone",
        "operator": "In",
        "values": ["us-east-1a"],
    }
    only["spec"]["template"]["spec"]["requirements"].append(requirement)
    buying = Buying(catalog, only, node_class())
    buying.retire(*big_pods(1, "moving"))
    assert not buying.run().launched
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert [one.code for one in answer.without_node] == ["PodWithoutNode"]
    assert not buying.events.calls, "the pod still runs"


def test_a_repeated_run_for_a_retirement_launches_nothing_and_keeps_its_answer(
    buying: Buying,
) -> None:
    buying.retire(*big_pods(1, "moving"))
    buying.run()
    first = buying.requests[RETIRING]
    buying.join(ready=False)
    for _ in range(2):
        buying.time += timedelta(minutes=1)
        assert not buying.run().launched
    assert buying.requests[RETIRING] == first


def test_a_retirement_whose_pods_have_moved_needs_nothing(buying: Buying) -> None:
    buying.retire()
    assert not buying.run().launched
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert (answer.launched, answer.existing, answer.without_node) == ((), 0, ())


def test_later_runs_name_the_nodes_that_were_launched_for_the_pods(buying: Buying) -> None:
    """While it is drained, pods are on the new nodes already."""
    request = buying.retire(*big_pods(2, "moving"))
    instances = {one.instance.instance for one in buying.run().launched}
    assert len(instances) == 2
    buying.join()
    state = buying.states.state
    moving = state.movable[request.node]
    for left in (moving[:1], ()):
        buying.states.state = replace(state, movable={request.node: left} if left else {})
        buying.run()
        answer = buying.requests[request.instance].answer
        assert answer is not None
        assert set(answer.launched) == instances, "the answer remains when all pods have moved"
        assert (answer.existing, answer.without_node) == (0, ())


@pytest.mark.parametrize("key", [CORDONED, RETIRING_NODE])
def test_a_launched_node_that_takes_no_pods_is_no_successor_any_more(
    buying: Buying, key: str
) -> None:
    request = buying.retire(*big_pods(1, "moving"))
    (lost,) = buying.run().launched
    buying.join()
    state = buying.states.state
    name = state.joined[lost.instance.instance]
    taint = Taint(key, "", "NoSchedule")
    nodes = tuple(replace(n, taints=(taint,)) if n.name == name else n for n in state.nodes)
    buying.states.state = replace(state, nodes=nodes)
    (launched,) = buying.run().launched
    answer = buying.requests[request.instance].answer
    assert answer is not None
    assert answer.launched == (launched.instance.instance,)


def test_pods_that_wait_in_place_of_evicted_ones_are_in_the_answer(buying: Buying) -> None:
    """An interruption evicts before the run reads the pods; each counts for one retirement."""
    request = buying.retire()
    own, others, earlier = big_pods(3)
    found = [
        ObservedPod(own, "1", buying.time, "replica-set"),
        ObservedPod(others, "2", buying.time, "replica-set"),
        ObservedPod(earlier, "3", buying.time - timedelta(hours=1), "another"),
    ]
    leaving = {request.node: ("replica-set", "another")}
    state = replace(buying.states.state, waiting=found, leaving=leaving)
    buying.states.state = state
    assert len(buying.run().launched) == 3
    stored = buying.requests.get(request.instance)
    assert stored is not None
    assert stored.answer is not None
    (named,) = stored.answer.launched
    (intent,) = buying.table.list(INTENT, cluster="prod")
    assert named in {one.instance for one in intent.instances}
    assert not stored.answer.without_node


def test_a_pod_that_was_evicted_and_created_again_counts_once(buying: Buying) -> None:
    """A StatefulSet's new pod has the name of the old one."""
    (moving,) = big_pods(1, "database")
    buying.retire(moving)
    buying.wait_for_nodes(moving)
    assert len(buying.run().launched) == 1


def test_pods_that_fit_on_other_nodes_are_counted_in_the_answer(buying: Buying) -> None:
    state = buying.states.state
    buying.states.state = replace(state, nodes=(node("a"),))
    buying.retire(*big_pods(1, "moving"))
    assert not buying.run().launched
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert (answer.launched, answer.existing) == ((), 1)


def test_a_retirement_awaits_a_node_that_has_been_starting_for_too_long(buying: Buying) -> None:
    """A plan gives its pods a place there, and a startup taint may still keep them out."""
    one = node("a", labels={NODEPOOL: "web", ZONE: "us-east-1a"})
    state = buying.states.state
    buying.states.state = replace(state, nodes=(one,), joined={"i-a": "a"})
    buying.retire(*big_pods(1, "moving"))
    assert not buying.run().launched
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert (answer.launched, answer.existing) == (("i-a",), 0)


def test_the_request_of_a_node_that_was_replaced_under_its_name_moves_nothing(
    buying: Buying,
) -> None:
    buying.retire(*big_pods(1, "moving"))
    state = buying.states.state
    buying.states.state = replace(state, joined={"i-another": "ip-retiring"})
    assert not buying.run().launched


def test_a_request_that_has_ended_or_is_written_meanwhile_is_not_answered(
    buying: Buying,
) -> None:
    request = buying.retire(*big_pods(1, "moving"))
    buying.requests[RETIRING] = request.ended(buying.time)
    assert not buying.run().launched
    assert buying.requests[RETIRING].answer is None


WEB = Owner(OwnerKind.AUTO_SCALING_GROUP, "web")
MANAGED = "eks-web-01234567-89ab-cdef-0123-456789abcdef"


def of_group(
    instance: str, kind: str = "m5.24xlarge", owner: Owner = WEB, group: str = "web"
) -> ObservedInstance:
    """An instance that a group has just launched."""
    facts = InstanceFacts(
        instance=instance,
        cluster="prod",
        private_dns_name="",
        zone="us-east-1b",
        instance_type=kind,
        capacity_type="spot",
        owner=owner,
    )
    return ObservedInstance(facts, "running", NOW, group)


def with_group(buying: Buying, *launched: ObservedInstance, group: str = "web") -> None:
    """A group with one Ready node, which is full, and instances that it has just launched."""
    labels = {"node.kubernetes.io/instance-type": "m5.24xlarge", "kubernetes.io/hostname": "a"}
    full = node("a", *big_pods(1), labels=labels, pool="")
    state = buying.states.state
    buying.states.state = replace(state, nodes=(full,), joined={"i-old": "a"})
    buying.groups.launched = [*launched]
    buying.groups.running = {group: frozenset({"i-old"})}


def test_instances_that_a_group_launches_take_pods_before_they_join(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    with_group(buying, of_group("i-new"), of_group("i-other", "c5.large"))
    assert len(buying.run().launched) == 2, "a type without a node in the group does not count"


def test_instances_of_a_managed_node_group_take_pods_before_they_join(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    owner = Owner(OwnerKind.MANAGED_NODE_GROUP, "web")
    with_group(buying, of_group("i-new", owner=owner, group=MANAGED), group=MANAGED)
    assert len(buying.run().launched) == 2


@pytest.mark.parametrize(
    ("state", "launched"),
    [
        ("", 2),
        ("Pending:Wait", 2),
        ("InService", 2),
        ("Warmed:Pending", 3),
        ("Warmed:Running", 3),
        ("Terminating:Wait", 3),
    ],
)
def test_an_instance_that_a_group_keeps_out_of_service_takes_no_pods(
    buying: Buying, state: str, launched: int
) -> None:
    buying.wait_for_nodes(*big_pods(3))
    with_group(buying, of_group("i-new"))
    buying.groups.states = {"i-new": state} if state else {}
    assert len(buying.run().launched) == launched


def test_an_instance_on_its_way_counts_while_auto_scaling_does_not_answer(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    with_group(buying, of_group("i-new"))
    failing(buying.groups, "lifecycle_states", CloudUnavailable("RequestLimitExceeded"))
    assert len(buying.run().launched) == 2


READINESS = Taint("readiness.k8s.io/cni-ready", "", "NoSchedule")


@pytest.mark.parametrize("taint", [NOT_READY, READINESS])
def test_a_node_of_a_group_that_has_just_joined_keeps_its_pod(buying: Buying, taint: Taint) -> None:
    buying.wait_for_nodes(*big_pods(1))
    with_group(buying, of_group("i-new"))
    state = buying.states.state
    fresh = node("b", taints=(taint,), pool="", labels={})
    buying.states.state = replace(
        state, nodes=(*state.nodes, fresh), joined={**state.joined, "i-new": "b"}
    )
    assert not buying.run().launched
    buying.groups.states = {"i-new": "Warmed:Pending"}
    assert len(buying.run().launched) == 1, "it stops when it has started"


def claimed(instance: str, **changes: Any) -> ClaimedNode:
    """The node of an instance that Karpenter launched a minute ago, with room for one pod."""
    labels = {NODEPOOL: "karpenters", ZONE: "us-east-1a"}
    fields: dict[str, Any] = {
        "created_at": NOW - timedelta(minutes=1),
        "node": node("claim-1", labels=labels, pool="karpenters"),
        "startup_taints": frozenset({"example.com/agent"}),
    }
    return ClaimedNode(instance=instance, **(fields | changes))


def test_instances_that_karpenter_launches_take_pods_before_they_join(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    old = claimed("i-old", created_at=NOW - JOIN_WITHIN)
    tainted = claimed("i-tainted", node=node("claim-2", taints=(Taint("team", "a"),)))
    buying.states.state = replace(
        buying.states.state, claimed=(claimed("i-new"), claimed("i-new"), old, tainted)
    )
    assert len(buying.run().launched) == 2


@pytest.mark.parametrize(
    "taint", [NOT_READY, READINESS, Taint("example.com/agent", "", "NoSchedule")]
)
def test_a_node_of_karpenter_that_has_just_joined_keeps_its_pod(
    buying: Buying, taint: Taint
) -> None:
    buying.wait_for_nodes(*big_pods(1))
    fresh = node("b", taints=(taint,), pool="karpenters", labels={NODEPOOL: "karpenters"})
    state = replace(buying.states.state, nodes=(fresh,), joined={"i-new": "b"})
    buying.states.state = replace(state, claimed=(claimed("i-new"),))
    assert not buying.run().launched
    buying.states.state = state
    assert len(buying.run().launched) == 1


def test_a_ready_node_of_karpenter_that_is_full_takes_no_further_pod(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    full = node("b", *big_pods(1, "other"), pool="karpenters", labels={NODEPOOL: "karpenters"})
    buying.states.state = replace(
        buying.states.state, nodes=(full,), joined={"i-new": "b"}, claimed=(claimed("i-new"),)
    )
    assert len(buying.run().launched) == 1


def test_a_node_that_karpenter_disrupts_while_it_starts_takes_no_pods(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    taints = (NOT_READY, Taint("karpenter.sh/disrupted", "", "NoSchedule"))
    going = node("b", taints=taints, pool="karpenters", labels={NODEPOOL: "karpenters"})
    buying.states.state = replace(
        buying.states.state, nodes=(going,), joined={"i-new": "b"}, claimed=(claimed("i-new"),)
    )
    assert len(buying.run().launched) == 1


def test_the_successor_of_a_group_is_the_answer_to_a_retirement(buying: Buying) -> None:
    with_group(buying, of_group("i-new"))
    buying.retire(*big_pods(1, "moving"))
    assert not buying.run().launched
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert answer.launched == ("i-new",)


def test_a_node_of_a_group_that_has_been_not_ready_for_long_takes_no_pods(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    state = buying.states.state
    stranger = node("a", taints=(NOT_READY,))
    buying.states.state = replace(state, nodes=(stranger,), joined={"i-of-a-group": "a"})
    assert len(buying.run().launched) == 1


@pytest.mark.parametrize("in_index", [True, False])
def test_a_node_that_has_gone_counts_in_no_status(buying: Buying, in_index: bool) -> None:
    """Its instance was launched a few minutes ago, and is no instance that will still join."""
    buying.wait_for_nodes(*big_pods(1))
    (launched,) = buying.run().launched
    instance = launched.instance.instance
    buying.wait_for_nodes()
    starts = buying.run().usage
    assert starts is not None
    assert starts["web"].nodes == 1
    if in_index:
        buying.own[instance] = facts(instance)
    buying.time += timedelta(minutes=4)
    buying.states.state = replace(buying.states.state, read_at=buying.time)
    report = buying.run()
    assert report.usage == {}
    assert report.spending[0].used == 0.0
