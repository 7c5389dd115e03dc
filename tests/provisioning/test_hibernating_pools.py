"""Pools outside of the windows of their schedule: nothing is launched from them."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.hibernation import POOL_HIBERNATES, SLEEPING, woken
from leeway.manifests.configuration import MANIFEST
from leeway.manifests.in_cluster import KARPENTER_IS_RUNNING, MANIFESTS_HELD
from leeway.manifests.node_pool import SCHEDULE
from leeway.notices import NoticeKind
from leeway.pool_pauses import JOIN_TIME, POOL, JoinTime
from leeway.ports.kubernetes_objects import RETIRING
from leeway.provision_run import CLUSTER_WITHOUT_POOLS, NodeProvisioning
from leeway.provisioning.cluster_state import CORDONED
from leeway.provisioning.report import STATUS
from leeway.reasons import Reason, ReasonCode
from leeway.retirement.record import RETIREMENT, ReturnTerms
from leeway.selection.labels import INSTANCE_TYPE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Taint
from leeway.switched import SWITCHED_TO_KARPENTER

from tests.aws.stored import manifest
from tests.disruption.clusters import facts
from tests.launch.launching import NOW
from tests.launch.pools import ONE_POD_EACH, node_class, pods, pool
from tests.provisioning.buying import Buying, big_pods, node
from tests.retirement.retirements import take

HOUR = timedelta(hours=1)
NIGHTS = [{"timezone": "Europe/Berlin", "start": "0 20 * * *", "end": "0 6 * * *"}]
"""It is a Friday morning."""


def asleep(name: str = "web", **more: Any) -> dict[str, Any]:
    """A pool that hibernates."""
    document = pool(name, only=ONE_POD_EACH, **more)
    document["metadata"]["annotations"] = {SCHEDULE: json.dumps(NIGHTS)}
    return document


def wake(buying: Buying, time: timedelta) -> None:
    stored = buying.table.get(POOL, cluster="prod", pool="web")
    buying.table.put(POOL, woken(stored, "prod", "web", time, buying.time, "alice"))


def recorded(buying: Buying) -> dict[str, str]:
    """The record of the pools that hibernate, and until when."""
    stored = buying.table.get(SLEEPING, cluster="prod")
    return {} if stored is None else {one.pool: one.until for one in stored.at(buying.time)}


def test_pods_of_a_pool_that_hibernates_stay_pending_with_the_reason(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    buying.wait_for_nodes(*big_pods(2))
    report = buying.run()
    assert not report.launched
    assert not buying.fleets.requests
    assert {one.cause.code for one in report.without_node} == {POOL_HIBERNATES.name}
    assert "hibernates until 20:00 Europe/Berlin" in report.without_node[0].reason.message
    assert (report.launch_problems, report.capped, report.failures) == ((), False, ())
    assert recorded(buying) == {"web": "20:00 Europe/Berlin"}
    status = buying.table.get(STATUS, cluster="prod")
    assert status is not None
    assert not status.problems


def test_a_pod_that_fits_another_pool_is_launched_there(catalog: Catalog) -> None:
    other = pool("other", only=ONE_POD_EACH)
    buying = Buying(catalog, asleep(weight=90), other, node_class())
    buying.wait_for_nodes(*big_pods(2))
    assert {one.pool for one in buying.run().launched} == {"other"}


def test_a_woken_pool_launches_until_its_time_is_over(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    wake(buying, 2 * HOUR)
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == 1
    buying.time += 2 * HOUR
    buying.wait_for_nodes(*big_pods(1, name="late"))
    assert not buying.run().launched


def test_a_pool_that_is_woken_during_a_run_launches_in_the_next_one(catalog: Catalog) -> None:
    """A run that found it asleep has not looked for nodes of the pool that stay."""
    buying = Buying(catalog, asleep(), node_class())
    buying.wait_for_nodes(*big_pods(1))
    deps = replace(buying.dependencies(), launch_block=lambda *_: wake(buying, HOUR))
    report = NodeProvisioning(deps).run("prod", "pods are pending", buying.time + HOUR)
    assert ([*report.sleeping], report.launched) == (["web"], ())
    assert len(buying.run().launched) == 1


def test_a_pool_is_launched_from_as_long_before_its_window_as_its_nodes_take(
    catalog: Catalog,
) -> None:
    buying = Buying(catalog, asleep(), node_class())
    slow = JoinTime(cluster="prod", pool="web", instance="i-1", seconds=300)
    buying.table.put(JOIN_TIME, slow)
    buying.wait_for_nodes(*big_pods(1))
    opens = NOW.replace(hour=19, minute=0)
    buying.time = opens - timedelta(minutes=7)
    assert not buying.run().launched
    assert recorded(buying) == {"web": "20:00 Europe/Berlin"}
    buying.time = opens - timedelta(minutes=6)
    assert len(buying.run().launched) == 1
    assert recorded(buying) == {}


def test_a_static_pool_that_hibernates_lacks_no_nodes(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(replicas=2), node_class())
    report = buying.run()
    assert (report.launched, report.static_pools, report.launch_problems) == ((), (), ())
    buying.time += 10 * HOUR
    assert len(buying.run().launched) == 2


def test_no_pool_sleeps_any_more_after_the_last_one_was_deleted(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    buying.run()
    assert recorded(buying)
    buying.manifests.written = []
    assert buying.run().result.code == CLUSTER_WITHOUT_POOLS.name
    assert not recorded(buying)


@pytest.mark.parametrize(
    ("code", "late"),
    [
        (KARPENTER_IS_RUNNING, False),
        (KARPENTER_IS_RUNNING, True),
        (MANIFESTS_HELD, True),
        (SWITCHED_TO_KARPENTER, True),
    ],
)
def test_no_pool_sleeps_while_something_else_keeps_leeway_from_launching(
    catalog: Catalog, code: ReasonCode, late: bool
) -> None:
    """`late`: it is found right before a fleet is requested."""
    buying = Buying(catalog, asleep(), pool("other", only=ONE_POD_EACH), node_class())
    buying.wait_for_nodes(*big_pods(1))
    blocked = Reason(code.name, "Somebody else launches.")
    answers = iter([None] if late else [])
    deps = replace(buying.dependencies(), launch_block=lambda *_: next(answers, blocked))
    until = buying.time + HOUR
    report = NodeProvisioning(deps).run("prod", "pods are pending", until)
    assert (report.result.code, report.sleeping, recorded(buying)) == (code.name, {}, {})
    assert set(buying.run().sleeping) == set(recorded(buying)) == {"web"}


def test_the_record_is_right_whichever_instance_of_the_function_runs(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    first, second = (NodeProvisioning(buying.dependencies()) for _ in range(2))
    for one, sleeps in ((first, True), (second, False), (first, True)):
        wake(buying, timedelta(0) if sleeps else HOUR)
        one.run("prod", "pods are pending", buying.time + HOUR)
        assert bool(recorded(buying)) is sleeps
        buying.time += HOUR


def test_pods_of_a_woken_pool_use_the_node_whose_drain_did_not_end(catalog: Catalog) -> None:
    """A PodDisruptionBudget has kept one of its two pods all night."""
    cordon = (Taint(RETIRING, "capacity-return", "NoSchedule"), Taint(CORDONED, "", "NoSchedule"))
    kept, *evicted = pods(3, cpu=30_000)
    buying = Buying(catalog, asleep(), node_class())
    state = buying.states.state
    held = node("ip-held", kept, labels={**node("x").labels, INSTANCE_TYPE: "m5.24xlarge"})
    held = replace(held, taints=cordon)
    buying.own["i-held"] = facts("i-held")
    buying.states.state = replace(state, nodes=(held,), joined={"i-held": "ip-held"})
    terms = ReturnTerms(cause="Hibernation")
    record = take(None, NoticeKind.CAPACITY_RETURN, "n-1").record
    drains = {"facts": facts("i-held"), "phase": Phase.RUNNING, "terms": terms}
    buying.table.put(RETIREMENT, record.model_copy(update=drains))
    buying.wait_for_nodes(*evicted)
    report = buying.run()
    assert (report.launched, len(report.without_node)) == ((), 2)
    assert buying.table.records(RETIREMENT)["i-held"].phase is Phase.RUNNING
    wake(buying, HOUR)
    report = buying.run()
    assert (report.launched, report.without_node) == ((), ())
    record = buying.table.records(RETIREMENT)["i-held"]
    assert (record.phase, record.attempt) == (Phase.UNDOING, 2)


def test_a_pool_that_is_created_again_sleeps_by_its_own_schedule(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), pool("other", only=ONE_POD_EACH), node_class())
    wake(buying, 100 * HOUR)
    other = woken(None, "prod", "other", HOUR, buying.time, "alice")
    buying.table.put(POOL, other)
    buying.run()
    assert recorded(buying) == {}
    written = buying.manifests.written
    buying.manifests.written = [one for one in written if one.manifest.metadata.name != "web"]
    buying.manifests.deleted = True
    buying.time += HOUR
    deleted = manifest("web", resource="nodepool.karpenter.sh", deleted_at=buying.time)
    buying.table.put(MANIFEST, deleted, replaces=0, cluster="prod")
    for _ in range(2):
        buying.run()
    buying.manifests.written = written
    buying.run()
    assert recorded(buying) == {"web": "20:00 Europe/Berlin"}
    assert buying.table.get(POOL, cluster="prod", pool="other") == other
    buying.time += HOUR
    wake(buying, HOUR)
    buying.run()
    assert recorded(buying) == {}, "it was woken after the deletion"
