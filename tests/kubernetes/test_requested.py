"""What pods request of their nodes, as an API server lists it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leeway.costs import NodeUse, PodUse
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.requested import read_use
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.selection.resources import Resources
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.kubernetes.faulty_server import (
    FaultyServer,
    Request,
    json_answer,
    running_faulty_server,
)

FOUR = {"cpu": "4", "memory": "16Gi"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    with running_faulty_server(tmp_path) as server:
        yield server


@pytest.fixture
def connection(server: FaultyServer) -> Iterator[Connection]:
    with closing(kubeconfig_connection(server.kubeconfig)) as connection:
        yield connection


def serve(server: FaultyServer, nodes: list[Any] | None, pods: list[Any] | None) -> None:
    """Answer each list with one object a page."""

    def answer(request: Request) -> None:
        kind, items = ("NodeList", nodes) if "/nodes" in request.path else ("PodList", pods)
        number = int(request.query.get("continue", 0))
        more = items is not None and number + 1 < len(items)
        body: dict[str, Any] = {"kind": kind, "metadata": {"resourceVersion": "1"}}
        body["items"] = None if items is None else items[number : number + 1]
        if more:
            body["metadata"]["continue"] = str(number + 1)
        json_answer(body)(request)

    server.by_default(answer)


def node(name: str, provider_id: str | None = "aws:///us-east-1a/i-1") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"providerID": provider_id},
        "status": {"allocatable": FOUR},
    }


def pod(name: str, on: str | None, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    requests = {"cpu": "500m", "memory": "1Gi"}
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": {"team": "a", "tier": "b"}},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": requests}}], **spec},
        "status": {"phase": phase},
    }


def test_pods_are_read_with_their_nodes_page_by_page(
    server: FaultyServer, connection: Connection
) -> None:
    pods = [
        pod("runs", "n1"),
        pod("waits", None),
        pod("has-ended", "n1", "Succeeded"),
        pod("of-another-node", "n2"),
    ]
    serve(server, [node("n1"), node("n2", "aws:///us-east-1b/i-2")], pods)
    found = read_use(connection, ["team"])
    half = Resources({"cpu": 500, "memory": 2**30})
    four = Resources({"cpu": 4000, "memory": 16 * 2**30})
    assert found == {
        name: NodeUse(four, (PodUse("shop", half, {"team": "a"}),)) for name in ("i-1", "i-2")
    }


def test_an_instance_that_two_nodes_name_is_not_split(
    server: FaultyServer, connection: Connection
) -> None:
    serve(server, [node("n1"), node("copy")], [pod("one", "n1"), pod("two", "copy")])
    assert read_use(connection, []) == {}


def test_null_lists_other_providers_and_objects_of_another_shape_are_left_out(
    server: FaultyServer, connection: Connection
) -> None:
    broken = [
        node("other", "kind://docker/one"),
        node("none", None),
        {"metadata": None, "spec": None},
        node("n1"),
    ]
    odd = pod("odd", "n1", containers=[{"resources": {"requests": {"cpu": "many"}}}])
    serve(server, broken, [odd, {"metadata": None, "spec": None, "status": None}, {"spec": "x"}])
    assert [*read_use(connection, [])] == ["i-1"]
    serve(server, None, None)
    assert read_use(connection, []) == {}


@pytest.mark.parametrize(("status", "error"), [(403, ClusterRefused), (500, ClusterUnavailable)])
def test_an_api_server_that_does_not_answer_is_an_error(
    server: FaultyServer, connection: Connection, status: int, error: type[Exception]
) -> None:
    server.by_default(json_answer({"kind": "Status", "code": status}, status))
    with pytest.raises(error):
        read_use(connection, [])


def test_a_list_that_does_not_end_is_given_up(
    server: FaultyServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_more_page(request: Request) -> None:
        number = int(request.query.get("continue", 0)) + 1
        more = {} if number > 1_000 else {"continue": str(number)}
        json_answer({"kind": "PodList", "metadata": more, "items": [pod("a", "n1")]})(request)

    server.by_default(one_more_page)
    monkeypatch.setattr("leeway.kubernetes.requested.READ_FOR", 0.05)
    with pytest.raises(ClusterUnavailable):
        read_use(connection, [])
