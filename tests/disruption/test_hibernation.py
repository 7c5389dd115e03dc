"""Nodes of a pool that hibernates go, by the rules for nodes that go for other reasons."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

from leeway.disruption import reasons
from leeway.disruption.decide import decide_returns
from leeway.disruption.explain import explain_node
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, Snapshot
from leeway.hibernation import Hibernation
from leeway.policy.rules import OnBlocked, Replacement
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Pod

from tests.disruption.clusters import Cluster
from tests.disruption.returning import Returning
from tests.disruption.snapshots import NOW, ON_DEMAND, own_node, snapshot, with_pods
from tests.launch.conftest import catalog
from tests.launch.pools import pods
from tests.selection.workloads import spec

__all__ = ["catalog"]

DAY = timedelta(days=1)
ASLEEP = Hibernation("plain", NOW, NOW + timedelta(hours=9), ZoneInfo("Europe/Berlin"))


def sleeping(*own: OwnNode, **rules: object) -> Snapshot:
    """A cluster whose only pool hibernates: nothing is launched from it."""
    given = ReturnRules(**{"budgets": (), "hibernates": ASLEEP, **rules})  # type: ignore[arg-type]
    return snapshot(*own, rules=given, pools=())


def going(made: Snapshot) -> list[tuple[str, Cause, bool]]:
    found = decide_returns(made).returns
    return [(name, one.cause, one.replaced) for one in found for name in one.nodes]


def test_all_nodes_of_a_pool_that_hibernates_go_and_await_no_others() -> None:
    own = [own_node("busy", spec(3000)), own_node("empty", quiet=timedelta(0))]
    found = decide_returns(sleeping(*own, after=None, only_empty=True))
    assert [(one.nodes, one.cause, one.replaced) for one in found.returns] == [
        (("empty",), Cause.HIBERNATION, False),
        (("busy",), Cause.HIBERNATION, False),
    ]
    assert "hibernates until 22:00 Europe/Berlin" in found.returns[0].reason.message
    assert found.returns[0].saving == own[1].price


def test_pods_that_fit_another_pool_get_their_nodes_there_first() -> None:
    made = sleeping(own_node("busy", spec(3000)))
    other = replace(ON_DEMAND, name="other", labels={})
    assert going(replace(made, pools=(other,))) == [("busy", Cause.HIBERNATION, True)]


def test_budgets_of_the_pool_and_of_the_cluster_hold_nodes_back() -> None:
    own = [own_node(f"n-{number}", spec(100)) for number in range(4)]
    assert len(going(sleeping(*own, budgets=(Budget("1"),)))) == 1
    assert len(going(replace(sleeping(*own), most=2))) == 2
    assert not going(sleeping(*own, budgets=(Budget("0"),)))


def test_what_is_protected_stays_although_the_drain_of_the_pool_is_bounded() -> None:
    pod = MovablePod(Pod("default/kept", spec(100)), protected_until=NOW + DAY)
    blocked = MovablePod(Pod("default/held", spec(100)), blocked_by=("default/pdb",))
    own = [
        replace(own_node("node"), protected=True),
        with_pods(own_node("pod", spec(100)), [pod]),
        with_pods(own_node("budget", spec(100)), [blocked]),
        own_node("goes", spec(100)),
    ]
    found = decide_returns(sleeping(*own, drain_within=timedelta(hours=1)))
    assert [one.nodes for one in found.returns] == [("goes",)]
    assert {name: one.code for name, one in found.kept.items()} == {
        "node": reasons.NODE_IS_PROTECTED.name,
        "pod": reasons.POD_IS_PROTECTED.name,
        "budget": reasons.POD_IS_BLOCKED.name,
    }


def test_nodes_of_a_static_pool_go_too_and_no_drifted_one_is_replaced_in_its_place() -> None:
    own = [own_node("one", spec(100)), replace(own_node("old", spec(100)), drift=("AMI.",))]
    found = going(sleeping(*own, replicas=2, expires=DAY / 2))
    assert {(name, cause) for name, cause, _ in found} == {
        ("one", Cause.HIBERNATION),
        ("old", Cause.HIBERNATION),
    }


def test_no_pod_of_another_pool_is_moved_to_a_node_that_goes() -> None:
    asleep = replace(own_node("asleep"), protected=True)
    awake = own_node("awake", spec(100))
    awake = replace(awake, pool="other", node=replace(awake.node, pool="other"))
    made = sleeping(asleep, awake)
    rules = {**made.rules, "other": ReturnRules(budgets=())}
    assert not going(replace(made, rules=rules))


def test_a_retirement_awaits_nodes_only_if_its_pods_fit_elsewhere(catalog: Catalog) -> None:
    cluster = Cluster(catalog)
    cluster.add("busy", *pods(1, cpu=500), created_at=NOW - DAY)
    cluster.sleeping = {"web": replace(ASLEEP, pool="web")}
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(3)
    record = returning.retirements["i-busy"]
    assert record.returns is not None
    assert (record.returns.cause, record.returns.optional) == ("Hibernation", False)
    assert record.replacement is Replacement.NONE
    assert not returning.requests


def test_a_bounded_drain_evicts_no_pod_of_a_node_that_goes_because_its_pool_hibernates(
    catalog: Catalog,
) -> None:
    cluster = Cluster(catalog, template={"terminationGracePeriod": "1h"})
    cluster.add("busy", *pods(1, cpu=500), created_at=NOW - DAY)
    cluster.sleeping = {"web": replace(ASLEEP, pool="web")}
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(3)
    record = returning.retirements["i-busy"]
    assert record.returns is not None
    assert record.returns.cause == "Hibernation"
    assert (record.on_blocked, record.deadline) == (OnBlocked.WAIT, None)


def test_a_pod_without_a_controller_keeps_its_node_although_its_pool_hibernates() -> None:
    bare = MovablePod(Pod("default/bare", spec(100)), bare=True)
    made = sleeping(with_pods(own_node("kept", spec(100)), [bare]), own_node("goes", spec(100)))
    found = decide_returns(made)
    assert [one.nodes for one in found.returns] == [("goes",)]
    assert found.kept["kept"].code == reasons.POD_IS_BARE.name
    (blocker,) = explain_node("kept", made, found).blockers
    assert blocker.reason == found.kept["kept"]
