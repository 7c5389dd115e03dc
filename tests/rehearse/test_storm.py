"""What a rehearsal says about pods, budgets and services."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.retirement.progress import RemovalMethod, Stage
from leeway_cli.rehearse.pace import Pace
from leeway_cli.rehearse.rounds import below
from leeway_cli.rehearse.series import moments_below

from tests.rehearse.documents import (
    NOW,
    PACE,
    Object,
    budget,
    fates,
    node,
    pod,
    read,
    storm_of,
    workload,
)

THREE = (node("a"), node("b"), node("c"))


def test_a_pod_is_evicted_at_once_and_ready_elsewhere_after_its_start() -> None:
    fate = fates(storm_of(*THREE, pod("web-1", "a"), lost="a"))["web-1"]

    assert fate.progress is not None
    assert (fate.progress.stage, fate.progress.method) == (Stage.GONE, RemovalMethod.EVICT)
    assert fate.ended_at == PACE.reaction + 2
    assert fate.ready_at == pytest.approx(PACE.reaction + PACE.control_loop + 5)
    assert not fate.cut
    assert not fate.died


def test_a_grace_period_that_outlasts_the_deadline_is_cut_to_what_is_left() -> None:
    pace = Pace(pod_stop=None)
    fate = fates(storm_of(*THREE, pod("web-1", "a", grace=300), lost="a", pace=pace))["web-1"]

    assert fate.cut
    assert fate.granted == 114
    assert fate.ended_at == 115


def test_a_pod_that_ends_sooner_than_its_grace_period_is_not_cut() -> None:
    fate = fates(storm_of(*THREE, pod("web-1", "a", grace=300), lost="a"))["web-1"]

    assert not fate.cut
    assert fate.ended_at == 3


def test_a_budget_that_never_allows_leads_to_a_deletion_at_the_latest_moment() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "b")]
    storm = storm_of(
        *THREE, *pods, workload("Deployment", "web", 2), budget(minAvailable=2), lost="a"
    )
    fate = fates(storm)["web-1"]

    assert fate.progress is not None
    assert fate.progress.method is RemovalMethod.DELETE
    assert fate.progress.budgets == ("web",)
    assert fate.ended_at == 115 - 30 + 2


def test_two_lost_nodes_share_the_disruptions_that_a_budget_allows() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "b"), pod("web-3", "c")]
    objects = [*THREE, *pods, workload("Deployment", "web", 3), budget(maxUnavailable=1)]
    storm = storm_of(*objects, lost="a b")
    first, second = sorted(one.ready_at or 0.0 for one in fates(storm).values())

    assert first == pytest.approx(6.05)
    # The second eviction waits until the first successor is Ready, and for its next try.
    assert 11 < second < 6.05 + 5 + 6
    assert min(number for _, number in storm.ready["Deployment shop/web"].steps) == 2


def test_a_statefulset_creates_its_pod_again_after_the_old_one_is_gone() -> None:
    db = pod("db-0", "a", "db", owner="StatefulSet", grace=60)
    pace = Pace(pod_start=5.0, pod_stop=20.0)
    objects = [*THREE, db, workload("StatefulSet", "db", 1)]
    fate = fates(storm_of(*objects, lost="a", pace=pace))["db-0"]

    assert fate.ended_at == 21
    assert fate.ready_at == pytest.approx(21.05 + 5)


@pytest.mark.parametrize(
    ("policy", "at"), [("Parallel", [8.05, 8.05]), ("OrderedReady", [8.05, 13.05])]
)
def test_the_pods_of_an_ordered_statefulset_start_one_after_the_other(
    policy: str, at: list[float]
) -> None:
    pods = [pod(f"db-{n}", "a", "db", owner="StatefulSet") for n in range(2)]
    owner = workload("StatefulSet", "db", 2, podManagementPolicy=policy)
    found = fates(storm_of(*THREE, *pods, owner, lost="a"))

    assert [found[f"db-{n}"].ready_at for n in range(2)] == pytest.approx(at)


def test_a_pod_without_a_controller_is_not_created_again() -> None:
    fate = fates(storm_of(*THREE, pod("by-hand", "a", owner=""), lost="a"))["by-hand"]

    assert fate.ended_at == 3
    assert fate.ready_at is None


def test_a_statefulset_does_not_replace_a_pod_that_finalizers_keep() -> None:
    db = pod("db-0", "a", "db", owner="StatefulSet", metadata={"finalizers": ["example.com/a"]})
    fate = fates(storm_of(*THREE, db, workload("StatefulSet", "db", 1), lost="a"))["db-0"]

    assert fate.progress is not None
    assert fate.progress.kept_by == ("example.com/a",)
    assert fate.ended_at == 3
    assert fate.ready_at is None


def test_a_pod_that_tolerates_every_taint_comes_back_and_dies_with_the_node() -> None:
    stubborn = pod("web-1", "a", tolerations=[{"operator": "Exists"}])
    storm = storm_of(*THREE, stubborn, lost="a")

    assert [one.died for one in storm.fates] == [False, False, True]
    assert fates(storm)["web-1"].ready_at is not None, "created elsewhere after the node's end"


def test_a_pod_that_tolerates_only_the_cordon_does_not_come_back() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    storm = storm_of(*THREE, pod("web-1", "a", tolerations=[cordon]), lost="a")

    assert len(storm.fates) == 1


def test_pods_of_daemonsets_and_static_pods_stay() -> None:
    daemon = pod("cni", "a", "cni", owner="DaemonSet")
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    static = pod("static", "a", "a", owner="Node", metadata=mirror)
    storm = storm_of(*THREE, daemon, static, workload("DaemonSet", "cni", 1), lost="a")

    assert all(one.left for one in storm.fates)


def test_critical_pods_are_evicted_after_the_ordinary_ones() -> None:
    dns = pod("dns", "a", "dns", priorityClassName="system-cluster-critical")
    found = fates(storm_of(*THREE, dns, pod("web-1", "a"), lost="a"))

    assert found["web-1"].ended_at == 3
    assert found["dns"].ended_at == pytest.approx(5, abs=0.1)


def test_a_volume_delays_the_successor_until_it_is_detached() -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    fate = fates(storm_of(*THREE, pod("web-1", "a", volumes=[volume]), lost="a"))["web-1"]

    assert fate.progress is not None
    assert fate.progress.detached_at is not None
    assert fate.ready_at == pytest.approx(3 + PACE.detach + 5)


def test_a_pod_without_room_waits_for_the_node_that_replaces_the_lost_one() -> None:
    pods = [pod("web-1", "a", cpu="3"), pod("web-2", "b", cpu="3")]
    storm = storm_of(node("a"), node("b"), *pods, lost="a")

    assert [one.instead_of for one in storm.placements.launches] == ["a"]
    assert fates(storm)["web-1"].ready_at == PACE.node_start + 5


def test_a_pod_that_no_node_has_room_for_is_not_ready_again() -> None:
    pods = [pod("web-1", "a", cpu="3", nodeSelector={"disk": "fast"})]
    storm = storm_of(node("a"), node("b"), *pods, lost="a")

    assert list(storm.placements.without) == ["shop/web-1"]
    assert fates(storm)["web-1"].ready_at is None


def test_a_service_is_below_its_budget_while_its_only_pod_is_missing() -> None:
    owner = workload("Deployment", "web", 1)
    objects = [*THREE, pod("web-1", "a"), owner, budget(minAvailable=1)]
    cluster, storm = read(*objects), storm_of(*objects, lost="a")
    series = storm.ready["Deployment shop/web"]

    assert below(storm, cluster.budgets["shop/web"]) == pytest.approx(5.05)
    assert moments_below(series, 1, storm.until)[0] == pytest.approx(5.05)


def test_several_budgets_of_one_pod_are_named() -> None:
    two = [budget(maxUnavailable=1), budget(name="again", maxUnavailable=1)]
    fate = fates(storm_of(*THREE, pod("web-1", "a"), *two, lost="a"))["web-1"]

    assert fate.progress is not None
    assert set(fate.progress.budgets) == {"web", "again"}
    assert fate.progress.method is RemovalMethod.DELETE


any_pod = st.fixed_dictionaries(
    {
        "app": st.sampled_from(["w0", "w1", "w2"]),
        "on": st.sampled_from("abcd"),
        "grace": st.sampled_from([0, 1, 30, 60, 300, 10**12]),
        "owner": st.sampled_from(["ReplicaSet", "ReplicaSet", "StatefulSet", "DaemonSet", ""]),
        "cpu": st.sampled_from(["10m", "1", "3"]),
        "metadata": st.sampled_from([{}, {}, {}, {"finalizers": ["example.com/keep"]}]),
        "tolerations": st.sampled_from([[], [], [{"operator": "Exists"}]]),
    }
)
any_rule = st.sampled_from(
    [
        {},
        {"maxUnavailable": 0},
        {"maxUnavailable": "30%"},
        {"minAvailable": 1},
        {"minAvailable": "x"},
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    pods=st.lists(any_pod, min_size=1, max_size=12),
    rules=st.dictionaries(st.sampled_from(["w0", "w1", "w2"]), any_rule),
    lost=st.sets(st.sampled_from("abcd"), min_size=1),
    stop=st.sampled_from([None, 1.0, 400.0]),
)
def test_every_pod_ends_by_the_reclaim_and_no_eviction_breaks_a_budget(
    pods: list[dict[str, Any]], rules: dict[str, Any], lost: set[str], stop: float | None
) -> None:
    made = [pod(f"{one['app']}-{n}", **one) for n, one in enumerate(pods)]
    budgets: list[Object] = [budget(app, **rule) for app, rule in rules.items()]
    objects = [*(node(name) for name in "abcd"), *made, *budgets]
    cluster = read(*objects, pace=Pace(pod_stop=stop))
    storm = storm_of(*objects, lost=" ".join(sorted(lost)), pace=Pace(pod_stop=stop))

    on_lost = [one for one in cluster.pods if one.node in lost]
    assert len(fates(storm)) == len(on_lost)
    for fate in storm.fates:
        assert fate.ended_at is not None
        assert fate.ended_at <= 120
        assert fate.died or fate.left or fate.granted is not None or fate.returned
    for key, series in storm.healthy.items():
        least = cluster.budgets[key].desired
        before = series.steps[0][1]
        forced = [
            one.ended_at - (one.granted or 0)
            for one in storm.fates
            if one.ended_at is not None
            and one.progress is not None
            and (one.progress.method is not RemovalMethod.EVICT or one.died)
        ]
        until = min(forced, default=120.0)
        for at, number in series.steps:
            if (at - NOW).total_seconds() < until:
                assert number >= min(least, before)
