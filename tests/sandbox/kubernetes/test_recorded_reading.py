"""Every recorded read, discovery and watch is answered as by the real server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import BUDGETS, PODS, Live, budget
from tests.sandbox.kubernetes.recorded import Exchange, differences, document, exchanges

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_CONTINUE = re.compile(r"(?<=continue=)eyJ\w+")
_KNOWN_TO_ALL = [
    one for one in exchanges("discovery-and-access") if "without rights" not in one.label
]
_MANY = exchanges("reading")


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return the cluster of the recording: twelve pods on three nodes, three budgets."""
    live.add_nodes(1, 2, 3)
    for app, replicas in (("blocked", 3), ("free", 7), ("twice", 2)):
        live.deploy(app, replicas)
    live.create(BUDGETS, budget("blocked", "blocked", minAvailable=3))
    live.create(BUDGETS, budget("twice-a", "twice", maxUnavailable=1))
    live.create(BUDGETS, budget("twice-b", "twice", maxUnavailable=1))
    live.until(lambda: all(map(_is_counted, live.api.get(BUDGETS).json()["items"])))
    return live


def _is_counted(found: dict[str, Any]) -> bool:
    return "observedGeneration" in found.get("status", {})


@pytest.mark.parametrize("exchange", _MANY, ids=lambda one: one.label)
def test_a_read_is_answered_as_recorded(cluster: Live, exchange: Exchange) -> None:
    token = cluster.api.get("/api/v1/pods?limit=2").json()["metadata"]["continue"]
    path = _CONTINUE.sub(token, exchange.path)
    headers = {"Accept": _TABLE} if "table" in exchange.label else {}

    response = cluster.api.get(path, headers=headers)

    assert response.status_code == exchange.status
    assert response.headers["Content-Type"] == exchange.answer_type
    answer, recorded = response.json(), exchange.answer
    if "continue token" in recorded.get("message", ""):
        assert answer["message"].startswith("invalid continue token: continue key is not valid: ")
        answer["message"] = recorded["message"]
    assert differences(recorded, answer) == []


def test_budgets_have_the_recorded_status(cluster: Live) -> None:
    [recorded] = [one for one in _MANY if one.label == "budgets"]

    answer = cluster.api.get(recorded.path).json()

    assert recorded.answer["items"]
    for budget_then, budget_now in zip(recorded.answer["items"], answer["items"], strict=True):
        then, now = budget_then["status"], budget_now["status"]
        for status in (then, now):
            for one in status["conditions"]:
                del one["lastTransitionTime"]
        assert now == then


def test_pages_together_are_the_whole_list(cluster: Live) -> None:
    whole = [pod["metadata"]["name"] for pod in cluster.api.get(PODS).json()["items"]]

    paged: list[str] = []
    metadata = {"continue": ""}
    versions = set()
    while "continue" in metadata:
        params = {"limit": "5", "continue": metadata["continue"]}
        page = cluster.api.get(PODS, params=params).json()
        metadata = page["metadata"]
        versions.add(metadata["resourceVersion"])
        paged += [pod["metadata"]["name"] for pod in page["items"]]

    assert paged == whole
    assert len(versions) == 1


def test_a_later_page_shows_the_state_of_the_first_page(live: Live) -> None:
    maps = "/api/v1/namespaces/kube-public/configmaps"
    for name in ("a", "b", "c", "d"):
        live.create(maps, {"metadata": {"name": name}, "data": {"is": "old"}})

    first = live.api.get(maps, params={"limit": 1}).json()
    live.api.delete(f"{maps}/b")
    live.patch(f"{maps}/c", {"data": {"is": "new"}})
    live.create(maps, {"metadata": {"name": "bb"}})
    live.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    rest = live.api.get(maps, params={"continue": first["metadata"]["continue"]}).json()

    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert [(one["metadata"]["name"], one["data"]["is"]) for one in rest["items"]] == [
        ("b", "old"),
        ("c", "old"),
        ("d", "old"),
    ]


@pytest.mark.parametrize("exchange", _KNOWN_TO_ALL, ids=lambda one: one.label)
def test_discovery_and_access_are_answered_as_recorded(live: Live, exchange: Exchange) -> None:
    token = "nobody's" if exchange.label == "a bad token" else live.token

    with live.client(token) as client:
        response = client.request(exchange.method, exchange.path, json=exchange.sent)

    assert response.status_code == exchange.status
    assert response.headers["Content-Type"] == exchange.answer_type
    if isinstance(exchange.answer, str):
        assert response.text == exchange.answer
    else:
        assert differences(exchange.answer, response.json()) == []


def test_a_watch_reports_the_end_of_a_pod_as_recorded(cluster: Live) -> None:
    recorded = document("watching")["lines"]
    [first, *_] = cluster.running("app=free")
    node = first["spec"]["nodeName"]
    params = {"fieldSelector": f"spec.nodeName={node}"}
    version = cluster.api.get("/api/v1/pods", params=params).json()["metadata"]["resourceVersion"]
    watching = {**params, "watch": "1", "timeoutSeconds": "60", "resourceVersion": version}
    uid = first["metadata"]["uid"]

    cluster.evict(first["metadata"]["name"])
    ours: list[dict[str, Any]] = []
    with cluster.api.stream("GET", "/api/v1/pods", params=watching) as response:
        for line in response.iter_lines():
            event = json.loads(line)
            if event["object"]["metadata"]["uid"] == uid:
                ours.append(event)
                if event["type"] == "DELETED":
                    break

    assert [one["type"] for one in ours] == [one["type"] for one in recorded[:3]]
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in ours]
    assert versions == sorted(versions)
    assert all("deletionTimestamp" in one["object"]["metadata"] for one in ours)


def test_a_watch_from_too_old_a_version_ends_as_recorded(live: Live) -> None:
    [exchange] = exchanges("watching-too-old")

    with live.api.stream("GET", exchange.path) as response:
        [line] = list(response.iter_lines())

    assert response.status_code == exchange.status
    reasons, recorded = json.loads(line), exchange.answer
    assert reasons["type"] == recorded["type"]
    assert re.fullmatch(r"too old resource version: 1 \(\d+\)", reasons["object"]["message"])
    assert reasons["object"] | {"message": ""} == recorded["object"] | {"message": ""}


def test_a_watch_sends_a_bookmark_after_the_initial_events(live: Live) -> None:
    params = {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "1",
    }

    with live.api.stream("GET", "/api/v1/namespaces", params=params) as response:
        events = [json.loads(line) for line in response.iter_lines()]

    bookmarks = [index for index, one in enumerate(events) if one["type"] == "BOOKMARK"]
    assert {one["type"] for one in events[: bookmarks[0]]} == {"ADDED"}
    annotations = events[bookmarks[0]]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


def test_a_watch_can_send_table_rows(cluster: Live) -> None:
    params = {"watch": "1", "timeoutSeconds": "1"}

    with cluster.api.stream("GET", PODS, params=params, headers={"Accept": _TABLE}) as response:
        [first, *_] = [json.loads(line) for line in response.iter_lines()]

    assert first["type"] == "ADDED"
    assert first["object"]["kind"] == "Table"
    assert first["object"]["rows"][0]["cells"][1:3] == ["1/1", "Running"]
