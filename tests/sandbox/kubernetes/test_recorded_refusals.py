"""What a real API server refuses, counts and collects where a client expects less of it."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.sandbox.kubernetes.live import (
    BUDGETS,
    PODS,
    Live,
    bare_pod,
    budget,
    restricted_pod,
    running_cluster,
)
from tests.sandbox.kubernetes.recorded import Exchange, exchanges

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
NODE = "ip-10-0-0-1.ec2.internal"
WRITE_SECONDS = 1.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster in which an eviction takes a second to write its budget."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, "--budget-write", str(WRITE_SECONDS)) as cluster:
        cluster.add_nodes(1)
        yield cluster


def recorded(label: str) -> Exchange:
    (found,) = [one for one in exchanges("strict-writing") if label in one.label]
    return found


def guarded(live: Live, name: str, replicas: int, allowed: int) -> list[str]:
    names = [pod["metadata"]["name"] for pod in live.deploy(name, replicas)]
    live.create(BUDGETS, budget(name, name, maxUnavailable=allowed))
    live.until(lambda: live.budget_status(name).get("disruptionsAllowed") == allowed)
    return names


def test_an_eviction_writes_its_budget_again_after_a_conflict(live: Live) -> None:
    first, second, *_ = guarded(live, "both", 4, 2)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda name: live.evict(name).status_code, (first, second)))
    assert answers == [201, 201]
    # The slower one found the budget changed: it paused, and wrote it once more.
    at = sorted(
        e["at"]
        for e in live.journal("pod-deletion")
        if e["pod"].rpartition("/")[2] in (first, second)
    )
    assert at[1] - at[0] >= WRITE_SECONDS * 0.8


def test_the_budget_of_an_abandoned_eviction_is_still_written(live: Live) -> None:
    first, *_ = guarded(live, "left", 3, 1)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first}}
    with live.client(live.token) as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post(f"{PODS}/{first}/eviction", json=body, timeout=WRITE_SECONDS / 3)
    live.until(lambda: first in live.budget_status("left").get("disruptedPods", {}))
    assert "deletionTimestamp" not in live.api.get(f"{PODS}/{first}").json()["metadata"]


def test_a_second_eviction_of_a_pod_is_in_the_journal(live: Live) -> None:
    first, *_ = guarded(live, "again", 4, 3)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        list(threads.map(lambda _: live.evict(first), range(2)))
    assert [e["pod"] for e in live.journal("eviction-repeated")] == [f"default/{first}"]


def test_a_node_at_an_old_version_is_not_deleted(live: Live) -> None:
    exchange = recorded("old version")
    path = f"/api/v1/nodes/{NODE}"
    version = live.api.get(path).json()["metadata"]["resourceVersion"]
    answer = live.api.request("DELETE", path, json=exchange.sent)
    expected = json.dumps(exchange.answer).replace("ip-10-0-0-3.ec2.internal", NODE)
    expected = expected.replace("in record (224)", f"in record ({version})")
    assert (answer.status_code, answer.json()) == (exchange.status, json.loads(expected))


def test_pod_security_refuses_a_pod_and_the_pods_of_a_controller(live: Live) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    live.create("/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}})
    exchange = recorded("PodSecurity")
    answer = live.api.post("/api/v1/namespaces/strict/pods", json=exchange.sent)
    assert (answer.status_code, answer.json()) == (exchange.status, exchange.answer)
    allowed = restricted_pod("allowed")
    live.create("/api/v1/namespaces/strict/pods", allowed)
    host = {**allowed, "metadata": {"name": "host"}, "spec": {**allowed["spec"], "hostPID": True}}
    refused = live.api.post("/api/v1/namespaces/strict/pods", json=host)
    assert "host namespaces (hostPID=true)" in refused.json()["message"]


def test_a_pod_whose_owner_is_of_an_unknown_kind_stays(live: Live) -> None:
    of_resource = bare_pod("of-resource")
    owner = {"apiVersion": "example.com/v1", "kind": "Probe", "name": "one", "uid": "u-1"}
    of_resource["metadata"]["ownerReferences"] = [owner]
    live.create(PODS, of_resource)
    sent = json.loads(json.dumps(recorded("owner never existed is accepted").sent))
    sent["metadata"]["name"] = "later"
    live.create(PODS, sent)
    live.until(lambda: live.api.get(f"{PODS}/later").status_code == 404)
    assert live.api.get(f"{PODS}/of-resource").status_code == 200


def test_a_kind_whose_definition_is_absent_is_no_page(live: Live) -> None:
    exchange = recorded("CRD is absent")
    answer = live.api.get(exchange.path)
    assert (answer.status_code, answer.text) == (exchange.status, exchange.answer)


def test_a_claim_that_waits_for_the_scheduler_is_not_bound_by_a_pod_that_names_its_node(
    live: Live,
) -> None:
    for name, node in (("named", NODE), ("scheduled", None)):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        live.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        pod = bare_pod(f"with-{name}", volumes=[volume])
        if node:
            pod["spec"]["nodeName"] = node
        live.create(PODS, pod)

    def phase(name: str) -> str:
        found: str = live.api.get(f"{PODS}/with-{name}").json()["status"]["phase"]
        return found

    live.until(lambda: phase("scheduled") == "Running")
    assert phase("named") == "Pending"
    assert live.api.get(f"{CLAIMS}/named").json()["status"]["phase"] == "Pending"
