"""Events about pods that get no node, in a living cluster."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.events import write_event
from leeway.ports.kubernetes import ClusterRefused, Event, ObjectReference
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.kubernetes.faulty_server import json_answer, running_faulty_server
from tests.sandbox.kubernetes.live import Live


@pytest.fixture
def connection(kubeconfig: Path) -> Iterator[Connection]:
    with closing(kubeconfig_connection(kubeconfig)) as connection:
        yield connection


def no_node(pod: str, namespace: str) -> Event:
    about = ObjectReference("Pod", pod, "uid", namespace)
    return Event(f"{pod}.0011", about, "NoNodePool", "no")


def test_an_event_is_written_once_and_says_which_pod(live: Live, connection: Connection) -> None:
    container = {"name": "c", "image": "x"}
    pod = live.create(
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "lonely"}, "spec": {"containers": [container]}},
    )
    about = ObjectReference("Pod", "lonely", pod["metadata"]["uid"], "default")
    event = Event("lonely.0011", about, "RequestTooLarge", "m" * 5000)
    write_event(connection, event)
    write_event(connection, event)
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
    live: Live, connection: Connection
) -> None:
    write_event(connection, no_node("x", "gone"))
    assert events_of(live, "x") == [], "it is dropped, and written to no other namespace"


def test_an_event_in_a_namespace_that_terminates_is_no_error(
    live: Live, connection: Connection
) -> None:
    leaving = "/api/v1/namespaces/leaving"
    live.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    kept = {"metadata": {"name": "kept", "finalizers": ["example.com/never"]}}
    live.create(f"{leaving}/configmaps", kept)
    live.api.delete(leaving)
    refused = live.api.post(f"{leaving}/configmaps", json={"metadata": {"name": "late"}})
    assert refused.json()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    write_event(connection, no_node("x", "leaving"))
    assert events_of(live, "x") == []
    write_event(connection, no_node("y", "default"))
    (written,) = events_of(live, "y")
    assert written["metadata"]["namespace"] == "default", "one that was dropped stops no later one"


def test_an_event_that_no_role_allows_is_an_error(tmp_path: Path) -> None:
    forbidden = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no role"}
    with running_faulty_server(tmp_path) as server:
        server.by_default(json_answer(forbidden, 403))
        with (
            closing(kubeconfig_connection(server.kubeconfig)) as connection,
            pytest.raises(ClusterRefused, match="no role"),
        ):
            write_event(connection, no_node("x", "shop"))


def test_a_namespace_that_is_no_name_is_refused(connection: Connection) -> None:
    with pytest.raises(ClusterRefused):
        write_event(connection, no_node("x", "a/../b"))
