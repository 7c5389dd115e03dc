"""Nodes of a pool that hibernates go, by the rules for nodes that go for other reasons."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.disruption import reasons
from leeway.disruption.decide import decide_returns
from leeway.disruption.explain import explain_node
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, Snapshot
from leeway.execution.attempt import Phase
from leeway.hibernation import Hibernation
from leeway.policy.rules import OnBlocked, Replacement
from leeway.ports.aws import CloudUnavailable
from leeway.retirement.record import Retirement, ReturnTerms
from leeway.selection.labels import ZONE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Pod, Spread, Weighted
from leeway.selection.requirements import Requirement, Requirements
from leeway.table import Key

from tests.disruption.clusters import Cluster
from tests.disruption.returning import Returning
from tests.disruption.snapshots import NOW, ON_DEMAND, own_node, snapshot, with_pods
from tests.launch.conftest import catalog
from tests.launch.pools import pods
from tests.selection.workloads import spec, term

__all__ = ["catalog"]

DAY = timedelta(days=1)
ASLEEP = Hibernation("plain", NOW, NOW + timedelta(hours=9), ZoneInfo("Europe/Berlin"))


OTHER = replace(ON_DEMAND, name="other", labels={})


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
    assert going(replace(made, pools=(OTHER,))) == [("busy", Cause.HIBERNATION, True)]


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
    found = going(sleeping(*own, replicas=2))
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


def retired(cluster: Cluster) -> tuple[Retirement, ReturnTerms]:
    """The retirement of the node `busy` of a pool that hibernates, which awaits no other node."""
    cluster.sleeping = {"web": replace(ASLEEP, pool="web")}
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(3)
    record = returning.retirements["i-busy"]
    assert record.replacement is Replacement.NONE
    assert not returning.requests
    assert record.returns is not None
    return record, record.returns


def test_a_retirement_awaits_nodes_only_if_its_pods_fit_elsewhere(catalog: Catalog) -> None:
    cluster = Cluster(catalog)
    cluster.add("busy", *pods(1, cpu=500), created_at=NOW - DAY)
    _, terms = retired(cluster)
    assert (terms.cause, terms.optional) == ("Hibernation", False)


def test_a_bounded_drain_evicts_no_pod_of_a_node_that_goes_because_its_pool_hibernates(
    catalog: Catalog,
) -> None:
    cluster = Cluster(catalog, template={"terminationGracePeriod": "1h"})
    cluster.add("busy", *pods(1, cpu=500), created_at=NOW - DAY)
    record, terms = retired(cluster)
    assert terms.cause == "Hibernation"
    assert (record.on_blocked, record.deadline) == (OnBlocked.WAIT, None)


def test_an_expired_node_of_a_pool_that_hibernates_ends_within_the_bound_of_its_drain(
    catalog: Catalog,
) -> None:
    cluster = Cluster(catalog, template={"expireAfter": "12h", "terminationGracePeriod": "1h"})
    cluster.add("busy", *pods(1, cpu=500), created_at=NOW - DAY)
    record, terms = retired(cluster)
    assert (terms.cause, terms.forced) == ("Expired", True)
    assert record.on_blocked is OnBlocked.DELETE
    assert record.deadline is not None


def going_asleep(catalog: Catalog, **spec: Any) -> Returning:
    """A cluster whose pool `web` hibernates: its node `busy`, with a pod, is given back."""
    cluster = Cluster(catalog, **spec)
    cluster.add("busy", *pods(1, cpu=500), created_at=NOW - DAY)
    cluster.sleeping = {"web": replace(ASLEEP, pool="web")}
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(3)
    return returning


def test_a_node_stays_whose_pool_wakes_before_its_drain_has_ended(catalog: Catalog) -> None:
    returning = going_asleep(catalog)
    assert returning.returns.staying("prod", ["other"]) == frozenset()
    assert returning.retirements["i-busy"].phase is Phase.NOTICED
    returning.starts.failures = 1
    with pytest.raises(CloudUnavailable):
        returning.returns.staying("prod", ["web"])
    for _ in range(2):
        assert returning.returns.staying("prod", ["web"]) == {"i-busy"}, "also while it is undone"
    record = returning.retirements["i-busy"]
    assert (record.phase, record.attempt, record.reason.code) == (Phase.UNDOING, 2, "PoolIsAwake")


@pytest.mark.parametrize(
    ("grace", "nodes", "is_bounded"),
    [
        ({"terminationGracePeriod": "1h"}, "1", True),
        ({"terminationGracePeriod": "1h"}, "0", False),
        ({}, "1", False),
    ],
    ids=["bounded", "a budget keeps expired nodes", "no bound"],
)
def test_a_drain_that_waits_at_night_is_bounded_when_its_node_expires(
    catalog: Catalog, grace: dict[str, str], nodes: str, is_bounded: bool
) -> None:
    template = {"expireAfter": "25h", **grace}
    returning = going_asleep(catalog, template=template)
    budget = {"budgets": [{"nodes": nodes}]}
    returning.cluster.manifests = Cluster(catalog, template=template, disruption=budget).manifests
    record = returning.retirements["i-busy"]
    begun = {"phase": Phase.RUNNING, "drain_began_at": returning.time}
    returning.retirements["i-busy"] = record.model_copy(update=begun)
    returning.runs(3)
    assert returning.retirements["i-busy"].attempt == 1, "it has not expired"
    returning.time = NOW + timedelta(hours=2)
    returning.runs(3)
    record = returning.retirements["i-busy"]
    assert record.returns is not None
    if not is_bounded:
        assert (record.attempt, record.returns.cause) == (1, "Hibernation")
        return
    assert (record.attempt, record.phase) == (2, Phase.NOTICED)
    assert (record.returns.cause, record.returns.forced) == ("Expired", True)
    assert record.on_blocked is OnBlocked.DELETE
    assert record.deadline is not None
    assert record.deadline - record.noticed_at == timedelta(hours=1)
    assert [attempt for _, _, attempt in returning.starts.started][-1] == 2
    assert returning.returns.staying("prod", ["web"]) == frozenset(), "it goes in the window too"
    returning.runs(3)
    assert returning.retirements["i-busy"].attempt == 2


@pytest.mark.parametrize(
    ("phase", "stays"),
    [(Phase.FINISHED, False), (Phase.RUNNING, True), (Phase.UNDOING, True)],
    ids=["its drain ends", "its drain goes on", "another run undoes it"],
)
def test_a_node_stays_unless_its_drain_ends_meanwhile(
    catalog: Catalog, phase: Phase, stays: bool
) -> None:
    """Otherwise a run would launch a node for the pods that get room again."""
    returning = going_asleep(catalog)
    store = returning.table.before

    def write(operation: str, key: Key) -> None:
        store(operation, key)
        if operation == "put" and key[0].startswith("RETIREMENT#"):
            returning.table.before = store
            record = returning.retirements["i-busy"]
            written = {"phase": phase, "version": record.version + 1}
            returning.retirements["i-busy"] = record.model_copy(update=written)

    returning.table.before = write
    assert returning.returns.staying("prod", ["web"]) == ({"i-busy"} if stays else set())
    undone = Phase.UNDOING if stays else phase
    assert returning.retirements["i-busy"].phase is undone


def test_a_pod_without_a_controller_keeps_its_node_although_its_pool_hibernates() -> None:
    bare = MovablePod(Pod("default/bare", spec(100)), bare=True)
    made = sleeping(with_pods(own_node("kept", spec(100)), [bare]), own_node("goes", spec(100)))
    found = decide_returns(made)
    assert [one.nodes for one in found.returns] == [("goes",)]
    assert found.kept["kept"].code == reasons.POD_IS_BARE.name
    (blocker,) = explain_node("kept", made, found).blockers
    assert blocker.reason == found.kept["kept"]


HERE = Weighted(1, Requirements([Requirement.of(ZONE, "In", ["a"])]))
PREFERENCES: dict[str, dict[str, Any]] = {
    "affinity": {"preferred_terms": (HERE,)},
    "spread": {
        "labels": {"app": "web"},
        "spreads": (Spread(term(ZONE, app="web"), 1, required=False),),
    },
}


@pytest.mark.parametrize("preference", PREFERENCES.values(), ids=PREFERENCES.keys())
def test_pods_that_only_prefer_where_they_are_get_their_nodes_elsewhere_first(
    preference: dict[str, Any],
) -> None:
    own = [own_node(name, spec(1000, **preference), zone=name) for name in ("a", "b")]
    room = own_node("room", zone="b").node
    made = replace(sleeping(*own), others=(replace(room, pool=""),))
    assert going(made) == [("a", Cause.HIBERNATION, True), ("b", Cause.HIBERNATION, True)]


def test_a_pod_that_waits_for_another_reason_does_not_have_pods_evicted() -> None:
    made = sleeping(own_node("busy", spec(3000)))
    waiting = (Pod("default/stuck", spec(10**9)),)
    made = replace(made, pools=(OTHER,), waiting=waiting)
    assert going(made) == [("busy", Cause.HIBERNATION, True)]


def test_the_same_room_is_promised_to_one_node_only() -> None:
    own = [own_node("one", spec(3000)), own_node("two", spec(3000))]
    room = own_node("room").node
    made = replace(sleeping(*own), others=(replace(room, pool=""),))
    assert going(made) == [
        ("one", Cause.HIBERNATION, True),
        ("two", Cause.HIBERNATION, False),
    ]


def test_all_nodes_that_budgets_allow_go_in_one_run() -> None:
    own = [own_node(f"n-{number:02}", spec(100)) for number in range(30)]
    made = replace(sleeping(*own), pools=(OTHER,))
    assert going(made) == [(one.name, Cause.HIBERNATION, True) for one in own]
    few = going(replace(made, most=4))
    assert few == [(one.name, Cause.HIBERNATION, True) for one in own[:4]]


def kept_node(name: str, **fields: object) -> OwnNode:
    """A node with a pod that is protected until tomorrow."""
    pod = MovablePod(Pod(f"default/{name}", spec(100)), protected_until=NOW + DAY)
    return replace(with_pods(own_node(name, spec(100)), [pod]), **fields)  # type: ignore[arg-type]


DRIFT = ("Its AMI is another one.",)
OUTDATED_NODES = {
    Cause.EXPIRED: kept_node("expired", created_at=NOW - 40 * DAY),
    Cause.DRIFTED: kept_node("drifted", drift=DRIFT),
}
EXPIRES = {"expires": 30 * DAY}


@pytest.mark.parametrize("cause", OUTDATED_NODES)
def test_a_protected_node_that_a_bounded_drain_ends_in_its_window_goes_outside_of_it_too(
    cause: Cause,
) -> None:
    outdated, plain = OUTDATED_NODES[cause], kept_node("plain")
    bounded = {**EXPIRES, "drain_within": timedelta(hours=1)}
    assert going(sleeping(outdated, plain, **bounded)) == [(outdated.name, cause, False)]
    assert not going(sleeping(outdated, plain, **EXPIRES))
    made = sleeping(outdated, plain, **EXPIRES)
    blockers = explain_node(outdated.name, made, decide_returns(made)).blockers
    assert [one.reason.code for one in blockers] == [reasons.POD_IS_PROTECTED.name]


def test_forceful_expiration_ends_nodes_outside_of_the_window_whatever_budgets_say() -> None:
    made = sleeping(
        kept_node("old", created_at=NOW - 40 * DAY),
        own_node("young", spec(100)),
        **EXPIRES,
        forceful=True,
        budgets=(Budget("0"),),
    )
    assert going(made) == [("old", Cause.EXPIRED, False)]
    awake = replace(made, pools=(OTHER,))
    assert going(awake) == [("old", Cause.EXPIRED, True)]


@pytest.mark.parametrize("cause", OUTDATED_NODES)
def test_a_pod_without_a_controller_keeps_no_outdated_node(cause: Cause) -> None:
    bare = MovablePod(Pod("default/bare", spec(100)), bare=True)
    outdated = with_pods(OUTDATED_NODES[cause], [bare])
    assert going(sleeping(outdated, **EXPIRES)) == [(outdated.name, cause, False)]


def test_no_node_of_a_static_pool_is_launched_in_place_of_an_outdated_one_that_sleeps() -> None:
    own = [replace(one, pool="plain") for one in OUTDATED_NODES.values()]
    made = sleeping(*own, **EXPIRES, replicas=1, drain_within=timedelta(hours=1))
    found = decide_returns(made).returns
    assert {(one.cause, one.in_place, one.replaced) for one in found} == {
        (Cause.EXPIRED, False, False),
        (Cause.DRIFTED, False, False),
    }


AGES = st.integers(0, 60).map(lambda days: NOW - days * DAY)
NODES = st.tuples(AGES, st.booleans(), st.booleans(), st.booleans(), st.booleans())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(NODES, min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(
        [(), (Budget("0"),), (Budget("1"),), (Budget("0", frozenset({Cause.DRIFTED})),)]
    ),
)
def test_no_node_stays_because_its_pool_hibernates(
    made_of: list[tuple[datetime, bool, bool, bool, bool]],
    bounded: bool,
    forceful: bool,
    budgets: tuple[Budget, ...],
) -> None:
    """What goes as expired or drifted while the pool is awake, goes while it sleeps."""
    own = []
    for number, (created, drifts, protected, bare, node) in enumerate(made_of):
        pod = Pod(f"default/{number}", spec(100))
        movable = MovablePod(pod, protected_until=NOW + DAY if protected else None, bare=bare)
        one = with_pods(own_node(f"n-{number}", spec(100)), [movable])
        drift = DRIFT if drifts else ()
        own.append(replace(one, created_at=created, drift=drift, protected=node))
    within = timedelta(hours=1) if bounded else None
    asleep = sleeping(
        *own, **EXPIRES, drain_within=within, forceful=forceful, budgets=budgets, after=None
    )
    rules = {"plain": replace(asleep.rules["plain"], hibernates=None)}
    awake = {name for name, _, _ in going(replace(asleep, rules=rules, pools=(ON_DEMAND,)))}
    gone = {name for name, _, _ in going(asleep)}
    if Budget("1") in budgets:
        assert bool(gone) >= bool(awake)
    else:
        assert gone >= awake
