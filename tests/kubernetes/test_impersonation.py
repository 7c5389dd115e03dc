"""Requests in somebody else's name, as a kubeconfig or kubectl's flags ask for it."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.kubeconfig import kubeconfig_connection

from cli import main
from tests.kubernetes.wayward import Answer, Asked, Wayward, pod, pods, said, watched
from tests.kubernetes.wayward import wayward_server as running

NODE = "/api/v1/nodes/node-1"
PODS = "/api/v1/pods"
EVICTION = "/api/v1/namespaces/shop/pods/web/eviction"

type Names = list[tuple[str, str]]


class Drained:
    """An API server with one node and one pod on it, which writes down in whose name it is asked.

    The pod is gone when it has been evicted.
    """

    def __init__(self, wayward: Wayward) -> None:
        self.kubeconfig = wayward.kubeconfig
        self.asked: list[tuple[str, Names]] = []
        self._there = [pod("web")]
        metadata = {"name": "node-1", "uid": "u", "resourceVersion": "1"}
        node = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}}
        wayward.on("GET", NODE, self._noted(said(node)))
        wayward.on("PATCH", NODE, self._noted(said(node)))
        wayward.on("GET", PODS, self._noted(lambda asked: said(pods(*self._there))(asked)))
        wayward.on("WATCH", PODS, self._noted(watched()))
        wayward.on("POST", EVICTION, self._noted(self._evict))

    def _noted(self, answer: Answer) -> Answer:
        def noting(asked: Asked) -> None:
            names = [
                (name, value)
                for name, value in asked.headers.items()
                if name.lower().startswith("impersonate-")
            ]
            self.asked.append((asked.command, names))
            answer(asked)

        return noting

    def _evict(self, asked: Asked) -> None:
        self._there = []
        said({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)(asked)

    def write(self, **user: Any) -> Path:
        """Write a kubeconfig whose user impersonates so."""
        content = json.loads(self.kubeconfig.read_text())
        content["users"][0]["user"] |= user
        path = self.kubeconfig.with_name("impersonating")
        path.write_text(json.dumps(content))
        return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Drained]:
    with running(tmp_path) as wayward:
        yield Drained(wayward)


def drain(path: Path, *flags: str) -> int:
    return main.run(["drain", "node-1", "--force", "--kubeconfig", str(path), *flags])


def test_a_kubeconfigs_as_is_in_every_request_of_a_drain(server: Drained) -> None:
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
    assert {verb for verb, _ in server.asked} == {"GET", "PATCH", "POST"}
    assert all(names == expected for _, names in server.asked), server.asked


def test_without_it_nobody_is_impersonated(server: Drained) -> None:
    assert drain(server.kubeconfig) == 0
    assert server.asked
    assert all(names == [] for _, names in server.asked)


def test_flags_go_before_the_kubeconfig_one_by_one(server: Drained) -> None:
    path = server.write(**{"as": "jane", "as-groups": ["developers"], "as-uid": "42"})
    assert drain(path, "--as", "joe", "--as-uid=7") == 0
    kept = [
        ("Impersonate-User", "joe"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "developers"),
    ]
    assert server.asked
    assert all(names == kept for _, names in server.asked)


def test_flags_alone_are_enough(server: Drained) -> None:
    flags = ("--as=system:serviceaccount:ops:drainer", "--as-group=ops", "--as-group", "all")
    assert drain(server.kubeconfig, *flags) == 0
    assert server.asked
    expected = [
        ("Impersonate-User", "system:serviceaccount:ops:drainer"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "all"),
    ]
    assert all(names == expected for _, names in server.asked)


def test_an_answer_of_401_has_the_request_repeated_in_the_same_name(
    server: Drained, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with running(tmp_path) as wayward:
        asked: list[Names] = []

        def refuse(request: Asked) -> None:
            names = [item for item in request.headers.items() if item[0].startswith("Imp")]
            asked.append(names)
            said({"kind": "Status", "code": 401, "message": "Unauthorized"}, 401)(request)

        wayward.otherwise(refuse)
        content = json.loads(wayward.kubeconfig.read_text())
        content["users"][0]["user"] = {"tokenFile": str(token), "as": "jane"}
        wayward.kubeconfig.write_text(json.dumps(content))
        with closing(kubeconfig_connection(wayward.kubeconfig)) as connection:
            assert connection.plain.get("/api/v1/nodes").status_code == 401
    assert asked == [[("Impersonate-User", "jane")]] * 2


@pytest.mark.parametrize(
    ("user", "flags", "words"),
    [
        ({"as-groups": ["a"]}, (), "expected a user, too"),
        ({}, ("--as-group", "a"), "expected a user, too"),
        ({}, ("--as-uid", "7"), "expected a user, too"),
        ({"as": 5}, (), "as: expected text, got 5"),
        ({"as": "a", "as-groups": "b"}, (), "as-groups: expected a list, got 'b'"),
        ({"as": "a", "as-groups": [1]}, (), "as-groups: expected text, got 1"),
        ({"as": "a", "as-user-extra": ["b"]}, (), "as-user-extra: expected lists"),
        ({"as": "a", "as-user-extra": {"k": "v"}}, (), "k: expected a list, got 'v'"),
        ({"as": "a\r\nImpersonate-Group: system:masters"}, (), "a control character"),
    ],
)
def test_whom_nobody_can_impersonate_is_bad_input(
    server: Drained,
    user: dict[str, Any],
    flags: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drain(server.write(**user), *flags) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert server.asked == []
