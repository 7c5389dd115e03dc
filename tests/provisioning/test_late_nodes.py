"""Instances that do not join: pods, pools and their status say so after five minutes."""

from datetime import timedelta

import pytest
from leeway.launch.intent import (
    DOUBTED_FOR,
    LATE_AFTER,
    doubted_pools,
    late_pools,
)
from leeway.pool_pauses import POOL, FailedInstance, PoolRecord
from leeway.selection.offers.catalog import Catalog

from tests.launch.launching import NOW
from tests.launch.pools import ONE_POD_EACH, node_class, pool
from tests.provisioning.buying import RETIRING, Buying, big_pods

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def buying(catalog: Catalog) -> Buying:
    return Buying(catalog)


def test_after_five_minutes_the_status_and_the_pods_name_the_usual_causes(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(2))
    buying.run()
    buying.time += LATE_AFTER - SECOND
    buying.run()
    assert (buying.statuses["prod"].late, buying.events.existing) == ((), {})
    buying.time += SECOND
    report = buying.run()
    (late,) = report.late
    assert (late.pool, late.count, late.since) == ("web", 2, NOW)
    for cause in ("user data", "security group", "subnet", "access entry"):
        assert cause in late.reason.message
    assert f"leeway explain instance {late.instances[0]} --console" in late.reason.message
    assert buying.statuses["prod"].late == report.late
    events = buying.events.existing.values()
    assert {one.reason for one in events} == {"NodesJoinLate"}
    about = {(one.about.namespace, one.about.name) for one in events}
    assert about == {("shop", "web-0"), ("shop", "web-1")}


def test_each_pod_gets_one_event_and_a_node_that_joins_ends_the_warning(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.run()
    for _ in range(5):
        buying.time += 2 * MINUTE
        buying.run()
    assert len(buying.events.existing) == 1
    buying.join(ready=False)
    assert buying.run().late == ()


def test_an_instance_that_has_ended_or_retires_is_not_awaited(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    (launched,) = buying.run().launched
    buying.wait_for_nodes()
    buying.time += LATE_AFTER
    buying.fleets.ended.add(launched.instance.instance)
    assert buying.run().late == ()
    buying.fleets.ended.clear()
    assert len(buying.run().late) == 1


def test_after_fifteen_minutes_the_admission_has_counted_the_failure(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    buying.run()
    intents = buying.launch_nodes._deps.table.list(buying.deps.intents, cluster="prod")
    assert late_pools(intents, (), NOW + timedelta(minutes=14))
    assert not late_pools(intents, (), NOW + timedelta(minutes=15))


def failed(name: str, ago: timedelta) -> PoolRecord:
    failure = FailedInstance(instance="i-1", launched_at=NOW - ago)
    return PoolRecord(cluster="prod", pool=name, failures=(failure,))


def test_a_pool_is_in_doubt_for_an_hour_after_a_failed_launch_and_while_it_is_paused() -> None:
    records = [failed("old", DOUBTED_FOR), failed("new", DOUBTED_FOR - SECOND)]
    assert doubted_pools(records, (), (), NOW) == {"new"}
    joined = PoolRecord(cluster="prod", pool="good", counted_from=NOW)
    assert doubted_pools([joined], (), (), NOW) == frozenset()


def two_pools(catalog: Catalog) -> Buying:
    """The pool `broken` comes first, by its weight."""
    given = (
        pool("broken", only=ONE_POD_EACH, weight=10),
        pool("healthy", only=ONE_POD_EACH),
        node_class(),
    )
    return Buying(catalog, *given)


def given_back(buying: Buying) -> None:
    """Let the retiring node be one that is given back."""
    request = buying.requests[RETIRING]
    giving_back = {"keeps_offering": True, "version": request.version + 1}
    buying.requests[RETIRING] = request.model_copy(update=giving_back)


@pytest.mark.parametrize("known", ["late", "failed"])
def test_pods_of_a_node_that_is_given_back_wait_for_no_instance_of_a_broken_pool(
    catalog: Catalog, known: str
) -> None:
    buying = two_pools(catalog)
    buying.wait_for_nodes(*big_pods(1))
    (broken,) = buying.run().launched
    assert broken.pool == "broken"
    buying.wait_for_nodes()
    if known == "late":
        buying.time += LATE_AFTER
    else:
        buying.table.put(POOL, failed("broken", MINUTE))
    buying.retire(*big_pods(1, "moving"))
    given_back(buying)
    (launched,) = buying.run().launched
    assert launched.pool == "healthy"
    answer = buying.requests[RETIRING].answer
    assert answer is not None
    assert answer.launched == (launched.instance.instance,)


def test_pods_without_a_node_and_those_of_an_interrupted_one_may_wait_for_it(
    catalog: Catalog,
) -> None:
    buying = two_pools(catalog)
    buying.wait_for_nodes(*big_pods(1))
    buying.run()
    buying.time += LATE_AFTER
    assert buying.run().launched == ()
    buying.wait_for_nodes()
    buying.retire(*big_pods(1, "moving"))
    assert buying.run().launched == ()


@pytest.mark.parametrize("known", ["late", "failed"])
def test_a_node_that_is_given_back_gets_one_instance_of_the_only_pool(
    catalog: Catalog, known: str
) -> None:
    buying = Buying(catalog, pool("web", only=ONE_POD_EACH), node_class())
    if known == "failed":
        buying.table.put(POOL, failed("web", MINUTE))
    buying.retire(*big_pods(1, "moving"))
    given_back(buying)
    launched = 0
    for _ in range(12):
        launched += len(buying.run().launched)
        buying.time += MINUTE
    assert launched == 1, "it runs, and may still join"
