"""Events about pods that get no node, in a living cluster."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.custom_resources import HttpPodEvents
from leeway.ports.kubernetes import ClusterRefused
from leeway.provisioning.tell import PodEvent
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.kubernetes.faulty_server import json_answer, running_faulty_server
from tests.sandbox.kubernetes.live import Live


@pytest.fixture
def events(kubeconfig: Path) -> Iterator[HttpPodEvents]:
    connection = kubeconfig_connection(kubeconfig)
    yield HttpPodEvents(connection)
    connection.close()


def test_an_event_is_written_once_and_says_which_pod(live: Live, events: HttpPodEvents) -> None:
    container = {"name": "c", "image": "x"}
    pod = live.create(
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "lonely"}, "spec": {"containers": [container]}},
    )
    event = PodEvent(
        "lonely.0011", "default", "lonely", pod["metadata"]["uid"], "RequestTooLarge", "m" * 5000
    )
    events.write(event)
    events.write(event)
    listed = live.api.get("/api/v1/namespaces/default/events").json()["items"]
    (found,) = [one for one in listed if one["reason"] == "RequestTooLarge"]
    assert found["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert found["type"] == "Warning"
    assert len(found["message"]) == 1024


def events_of(live: Live, pod: str) -> list[dict[str, Any]]:
    """The Events about pods of this name, of all namespaces."""
    listed = live.api.get("/api/v1/events").json()["items"]
    return [one for one in listed if one["involvedObject"]["name"] == pod]


def test_an_event_in_a_namespace_that_has_gone_is_no_error(
    live: Live, events: HttpPodEvents
) -> None:
    events.write(PodEvent("x.0011", "gone", "x", "uid", "NoNodePool", "no"))
    assert events_of(live, "x") == [], "it is dropped, and written to no other namespace"


def test_an_event_in_a_namespace_that_terminates_is_no_error(
    live: Live, events: HttpPodEvents
) -> None:
    leaving = "/api/v1/namespaces/leaving"
    live.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    kept = {"metadata": {"name": "kept", "finalizers": ["example.com/never"]}}
    live.create(f"{leaving}/configmaps", kept)
    live.api.delete(leaving)
    refused = live.api.post(f"{leaving}/configmaps", json={"metadata": {"name": "late"}})
    assert refused.json()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    events.write(PodEvent("x.0011", "leaving", "x", "uid", "NoNodePool", "no"))
    assert events_of(live, "x") == []
    events.write(PodEvent("y.0011", "default", "y", "uid", "NoNodePool", "no"))
    (written,) = events_of(live, "y")
    assert written["metadata"]["namespace"] == "default", "one that was dropped stops no later one"


def test_an_event_that_no_role_allows_is_an_error(tmp_path: Path) -> None:
    forbidden = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no role"}
    with running_faulty_server(tmp_path) as server:
        server.by_default(json_answer(forbidden, 403))
        event = PodEvent("x.0011", "shop", "x", "uid", "NoNodePool", "no")
        with (
            closing(kubeconfig_connection(server.kubeconfig)) as connection,
            pytest.raises(ClusterRefused, match="no role"),
        ):
            HttpPodEvents(connection).write(event)


def test_a_namespace_that_is_no_name_is_refused(events: HttpPodEvents) -> None:
    with pytest.raises(ClusterRefused):
        events.write(PodEvent("x.0011", "a/../b", "x", "uid", "NoNodePool", "no"))
