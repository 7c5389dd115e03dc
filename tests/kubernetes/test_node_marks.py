"""The marks that Leeway sets on a node and removes, while others write the node as well."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leeway.clock import SystemClock
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.ports.kubernetes import Marks
from leeway.ports.kubernetes_objects import Node, Taint
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection

from tests.sandbox.kubernetes.live import Live, running_cluster

MARKS = Marks("rebalance", 2, "2026-11-20T09:46:55+00:00")
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
TEAM = {"key": "team", "value": "ml", "effect": "NoSchedule"}
NUMBERS = count(1)


def fresh_node(live: Live, **labels: str) -> str:
    (name,) = live.add_nodes(next(NUMBERS), **labels)
    return name


def raw(live: Live, name: str) -> dict[str, Any]:
    node: dict[str, Any] = live.api.get(f"/api/v1/nodes/{name}").json()
    return node


def read(cluster: HttpCluster, name: str) -> Node:
    node = cluster.node(name)
    assert node is not None
    return node


def lasting(node: dict[str, Any]) -> dict[str, Any]:
    """The fields of a node that users and controllers set, without its status."""
    taints = [t for t in node["spec"].get("taints", []) if "kubernetes.io" not in t["key"]]
    return {
        "unschedulable": node["spec"].get("unschedulable"),
        "taints": taints,
        "labels": node["metadata"].get("labels"),
        "annotations": node["metadata"].get("annotations") or {},
    }


def patch(live: Live, name: str, body: dict[str, Any]) -> None:
    assert live.patch(f"/api/v1/nodes/{name}", body).status_code == 200


@pytest.mark.parametrize(
    "theirs",
    [
        {},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [TEAM]}},
        {"metadata": {"labels": {EXCLUDE: "true"}, "annotations": {"team": "ml"}}},
    ],
    ids=["nothing", "a cordon", "a taint", "the load balancers' label"],
)
def test_a_release_reverts_only_leeways_changes(
    live: Live, cluster: HttpCluster, theirs: dict[str, Any]
) -> None:
    name = fresh_node(live)
    fresh_node(live)
    patch(live, name, theirs)
    before = lasting(raw(live, name))
    cluster.cordon(name, MARKS)
    cluster.exclude_from_load_balancers(name)
    # The cordon makes a controller taint the node, which may change it after it is read.
    assert live.until(lambda: cluster.mark_out_of_service(read(cluster, name)))
    taint = Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")
    assert taint in read(cluster, name).taints
    assert lasting(raw(live, name)) != before
    assert cluster.release(name)
    assert lasting(raw(live, name)) == before
    assert not cluster.release(name)


def test_a_release_keeps_the_marks_of_a_later_attempt(live: Live, cluster: HttpCluster) -> None:
    name = fresh_node(live)
    cluster.cordon(name, MARKS)
    assert not cluster.release(name, attempt=1)
    assert raw(live, name)["spec"]["unschedulable"] is True
    assert cluster.release(name, attempt=2)


def test_a_second_attempt_keeps_the_annotation_of_leeways_cordon(
    live: Live, cluster: HttpCluster
) -> None:
    name = fresh_node(live)
    before = lasting(raw(live, name))
    cluster.cordon(name, MARKS)
    cluster.cordon(name, Marks("spot-interruption", 3, None))
    assert cluster.release(name)
    assert lasting(raw(live, name)) == before


def test_concurrent_changes_of_others_are_kept(live: Live, cluster: HttpCluster) -> None:
    name = fresh_node(live)
    rounds = 12

    def annotate(number: int) -> None:
        patch(live, name, {"metadata": {"annotations": {f"other-{number}": "here"}}})

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(annotate, number) for number in range(rounds)]
        cluster.cordon(name, MARKS)
        cluster.release(name)
        for other in others:
            other.result()
    left = lasting(raw(live, name))
    assert len(left["annotations"]) == rounds
    assert not left["unschedulable"]


def test_a_missing_node_has_nothing_to_release(cluster: HttpCluster) -> None:
    assert not cluster.release("ip-10-99-99-99.ec2.internal")
    assert not cluster.exclude_from_load_balancers("ip-10-99-99-99.ec2.internal")


def test_nodes_are_listed_page_by_page_with_all_their_fields(
    live: Live, cluster: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {fresh_node(live) for _ in range(5)}
    one = min(names)
    patch(live, one, {"metadata": {"annotations": {"team": "ml"}}, "spec": {"taints": [TEAM]}})
    status = {"status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "4"}}}
    assert live.patch(f"/api/v1/nodes/{one}/status", status).status_code == 200
    monkeypatch.setattr("leeway.kubernetes.http_cluster.PAGE", 2)
    listed = {node.name: node for node in cluster.nodes()}
    assert names <= set(listed)
    assert (listed[one].ready, listed[one].unschedulable) == (True, False)
    assert listed[one].annotations["team"] == "ml"
    assert Taint("team", "ml", "NoSchedule") in listed[one].taints
    assert listed[one].devices == {"nvidia.com/gpu": 4}
    assert cluster.count_nodes().ready >= len(names)


def test_load_balancers_never_exclude_more_than_half_of_the_ready_nodes(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as live:
        nodes = live.add_nodes(*range(1, 10))
        live.report("i-00000000000000008", "terminated")
        live.until(lambda: not live.is_ready(nodes[8]))
        patch(live, nodes[7], {"metadata": {"labels": {EXCLUDE: ""}}})
        cluster = kubeconfig_cluster(live.kubeconfig())

        def retire(name: str) -> bool:
            cluster.cordon(name, MARKS)
            return cluster.exclude_from_load_balancers(name)

        assert [retire(name) for name in nodes[:4]] == [True, True, True, False]
        for name in nodes[:4]:
            cluster.release(name)
        with ThreadPoolExecutor(7) as pool:
            left_out = list(pool.map(retire, nodes[:7]))
        ready, left_out_now = cluster.count_nodes().ready, cluster.select_nodes(EXCLUDE)
        cluster.close()
    assert ready == 8
    assert sum(left_out) <= 3
    assert len(left_out_now) == sum(left_out) + 1


def test_in_a_storm_ready_nodes_are_counted_once_and_each_lists_only_retiring_nodes(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path) as live:
        nodes = live.add_nodes(*range(1, 9))
        counts: list[int] = []

        def for_all(count: Callable[[], int]) -> int:
            counts[:] = counts or [count()]
            return counts[0]

        connection = kubeconfig_connection(live.kubeconfig())
        cluster = HttpCluster(connection, SystemClock(), cache_count=for_all)
        left_out = []
        for name in nodes[:6]:
            cluster.cordon(name, MARKS)
            left_out.append(cluster.exclude_from_load_balancers(name))
        cluster.close()
    assert left_out == [True] * 4 + [False] * 2
    assert counts == [8]


def test_a_node_that_changed_after_the_lookup_is_read_again_and_cordoned(
    live: Live, cluster: HttpCluster
) -> None:
    name = fresh_node(live)
    instance = raw(live, name)["spec"]["providerID"].rsplit("/", 1)[-1]
    found = cluster.node_of(instance, (name,))
    assert found is not None
    assert not found.taints
    patch(live, name, {"spec": {"taints": [TEAM]}})
    cluster.cordon(name, MARKS)
    now = raw(live, name)["spec"]
    assert now["unschedulable"]
    assert {taint["key"] for taint in now["taints"]} >= {"team", "leeway.sh/retiring"}
