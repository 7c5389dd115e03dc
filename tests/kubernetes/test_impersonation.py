"""User impersonation by a kubeconfig or by kubectl's flags."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leeway_cli import main
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.kubernetes.faulty_server import (
    Answer,
    FaultyServer,
    Request,
    json_answer,
    pod,
    pods,
    running_faulty_server,
    watch_answer,
)

NODE = "/api/v1/nodes/node-1"
PODS = "/api/v1/pods"
EVICTION = "/api/v1/namespaces/shop/pods/web/eviction"

type Names = list[tuple[str, str]]


class RecordingServer:
    """An API server with one node and one pod. It records the impersonation headers of requests
    and removes the pod after its eviction."""

    def __init__(self, server: FaultyServer) -> None:
        self.kubeconfig = server.kubeconfig
        self.requests: list[tuple[str, Names]] = []
        self._pods = [pod("web")]
        self._evicted = threading.Event()
        metadata = {"name": "node-1", "uid": "u", "resourceVersion": "1"}
        node = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}}
        server.on("GET", NODE, self._recorded(json_answer(node)))
        server.on("PATCH", NODE, self._recorded(json_answer(node)))
        server.on(
            "GET", PODS, self._recorded(lambda request: json_answer(pods(*self._pods))(request))
        )
        server.on("WATCH", PODS, self._recorded(self._watch))
        server.on("POST", EVICTION, self._recorded(self._evict))

    def _recorded(self, answer: Answer) -> Answer:
        def record(request: Request) -> None:
            names = [
                (name, value)
                for name, value in request.headers.items()
                if name.lower().startswith("impersonate-")
            ]
            self.requests.append((request.command, names))
            answer(request)

        return record

    def _watch(self, request: Request) -> None:
        """Answer with the end of the pod when it has been evicted."""
        self._evicted.wait(30)
        watch_answer(("DELETED", pod("web")))(request)

    def _evict(self, request: Request) -> None:
        self._pods = []
        self._evicted.set()
        status = {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
        json_answer(status, 201)(request)

    def write(self, **user: Any) -> Path:
        """Write a kubeconfig with these fields of its user."""
        content = json.loads(self.kubeconfig.read_text())
        content["users"][0]["user"] |= user
        path = self.kubeconfig.with_name("impersonating")
        path.write_text(json.dumps(content))
        return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RecordingServer]:
    with running_faulty_server(tmp_path) as server:
        yield RecordingServer(server)


def drain(path: Path, *flags: str) -> int:
    return main.run(["drain", "node-1", "--force", "--kubeconfig", str(path), *flags])


def test_every_request_of_a_drain_impersonates_the_kubeconfigs_user(
    server: RecordingServer,
) -> None:
    path = server.write(
        **{
            "as": "jane",
            "as-groups": ["developers", "on-call"],
            "as-uid": "42",
            "as-user-extra": {"scopes": ["view", "deploy"], "acme.com/team é": ["blue"]},
        }
    )
    assert drain(path) == 0
    expected = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "42"),
        ("Impersonate-Group", "developers"),
        ("Impersonate-Group", "on-call"),
        ("Impersonate-Extra-scopes", "view"),
        ("Impersonate-Extra-scopes", "deploy"),
        ("Impersonate-Extra-acme.com%2Fteam%20%C3%A9", "blue"),
    ]
    assert {verb for verb, _ in server.requests} == {"GET", "PATCH", "POST"}
    assert all(names == expected for _, names in server.requests), server.requests


def test_a_kubeconfig_without_as_does_not_impersonate(server: RecordingServer) -> None:
    assert drain(server.kubeconfig) == 0
    assert server.requests
    assert all(names == [] for _, names in server.requests)


def test_each_flag_overrides_its_field_of_the_kubeconfig(server: RecordingServer) -> None:
    path = server.write(**{"as": "jane", "as-groups": ["developers"], "as-uid": "42"})
    assert drain(path, "--as", "joe", "--as-uid=7") == 0
    kept = [
        ("Impersonate-User", "joe"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "developers"),
    ]
    assert server.requests
    assert all(names == kept for _, names in server.requests)


def test_flags_impersonate_without_the_kubeconfig(server: RecordingServer) -> None:
    flags = ("--as=system:serviceaccount:ops:drainer", "--as-group=ops", "--as-group", "all")
    assert drain(server.kubeconfig, *flags) == 0
    assert server.requests
    expected = [
        ("Impersonate-User", "system:serviceaccount:ops:drainer"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "all"),
    ]
    assert all(names == expected for _, names in server.requests)


def test_the_retry_after_a_401_impersonates_the_same_user(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with running_faulty_server(tmp_path) as server:
        requests: list[Names] = []

        def refuse(request: Request) -> None:
            names = [item for item in request.headers.items() if item[0].startswith("Imp")]
            requests.append(names)
            json_answer({"kind": "Status", "code": 401, "message": "Unauthorized"}, 401)(request)

        server.by_default(refuse)
        content = json.loads(server.kubeconfig.read_text())
        content["users"][0]["user"] = {"tokenFile": str(token), "as": "jane"}
        server.kubeconfig.write_text(json.dumps(content))
        with closing(kubeconfig_connection(server.kubeconfig)) as connection:
            assert connection.plain.get("/api/v1/nodes").status_code == 401
    assert requests == [[("Impersonate-User", "jane")]] * 2


INVALID: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"as-groups": ["a"]}, (), "expected a user, too"),
    ({}, ("--as-group", "a"), "expected a user, too"),
    ({}, ("--as-uid", "7"), "expected a user, too"),
    ({"as": 5}, (), "as: expected text, got 5"),
    ({"as": "a", "as-groups": "b"}, (), "as-groups: expected a list, got 'b'"),
    ({"as": "a", "as-groups": [1]}, (), "as-groups: expected text, got 1"),
    ({"as": "a", "as-user-extra": ["b"]}, (), "as-user-extra: expected lists"),
    ({"as": "a", "as-user-extra": {"k": "v"}}, (), "k: expected a list, got 'v'"),
    ({"as": "a\r\nImpersonate-Group: system:masters"}, (), "a control character"),
]


def test_an_invalid_impersonation_is_bad_input(
    server: RecordingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for user, flags, words in INVALID:
        assert drain(server.write(**user), *flags) == 2, words
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1
    assert server.requests == []
