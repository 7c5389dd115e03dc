"""Kubeconfigs are found and merged as kubectl does."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.ports.kubernetes import ClusterRefused
from leeway_cli.kubeconfig import BadKubeconfig, kubeconfig_cluster, kubeconfig_connection

type Write = Callable[..., Path]


def kubeconfig(name: str, current: str = "", **user: Any) -> dict[str, Any]:
    """One context, cluster and user of this name."""
    return {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example"}}],
        "users": [{"name": name, "user": user or {"token": "t"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": current,
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(document: Any, name: str) -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, without a kubeconfig, and nothing in the environment that names one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def host(path: Path | None = None, context: str | None = None) -> str:
    with closing(kubeconfig_connection(path, context)) as connection:
        return connection.plain.base_url.host


def test_the_first_of_several_kubeconfigs_that_sets_a_value_wins(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(kubeconfig("blue"), "first")
    second = kubeconfig("green", current="green")
    second["clusters"].append({"name": "blue", "cluster": {"server": "https://other.example"}})
    files = [str(first), str(first.parent / "not-there"), str(write(second, "second")), ""]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
    assert host() == "green.example"
    assert host(context="blue") == "blue.example"
    assert host(first, "blue") == "blue.example"


def test_the_users_kubeconfig_is_the_default(write: Write, home: Path) -> None:
    (home / ".kube").mkdir(parents=True)
    write(kubeconfig("mine", current="mine"), "home/.kube/config")
    assert host() == "mine.example"


def test_a_kubeconfig_wins_over_the_service_account_of_the_pod(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    calls: list[object] = []
    monkeypatch.setattr(
        "lightkube.KubeConfig.from_service_account", lambda *_: calls.append(1), raising=True
    )
    monkeypatch.setenv("KUBECONFIG", str(write(kubeconfig("far", current="far"), "far")))
    assert host() == "far.example"
    assert calls == []


def test_paths_in_a_kubeconfig_are_relative_to_its_folder(write: Write) -> None:
    document = kubeconfig("blue", current="blue")
    document["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    path = write(document, "folder")
    with pytest.raises(BadKubeconfig) as refused:
        kubeconfig_connection(path)
    missing = f"{path.parent / 'ca.crt'}: No such file or directory"
    assert str(refused.value) == f"{path}: {missing}"


def test_only_the_cluster_with_a_proxy_url_is_refused(write: Write) -> None:
    document = kubeconfig("blue", current="blue")
    document["clusters"][0]["cluster"]["proxy-url"] = "socks5://127.0.0.1:1080"
    for part, entries in kubeconfig("green").items():
        document[part] += entries
    path = write(document, "config")
    with pytest.raises(BadKubeconfig, match="config: cluster blue has a proxy-url"):
        kubeconfig_connection(path)
    assert host(path, "green") == "green.example"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a kubeconfig"),
        (b"[]", "expected a kubeconfig"),
        (b"\x80\x81", "expected a kubeconfig in UTF-8"),
        (b"a: 1\nb: [1,\nc: }", "expected YAML, got an error in line 3: "),
        (b"current-context: gone", "Context 'gone' not found"),
        (b"contexts: []", "No current context set"),
        (b"clusters: [1]", "clusters: expected entries with a name"),
        (b"users: [{user: {token: x}}]", "users: expected entries with a name"),
        (
            b"{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}]}",
            "refers to 'b', which it does not define",
        ),
    ],
)
def test_an_invalid_kubeconfig_is_named_with_its_error(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(BadKubeconfig) as refused:
        kubeconfig_connection(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)


def test_a_missing_kubeconfig_lists_the_searched_places(tmp_path: Path) -> None:
    with pytest.raises(BadKubeconfig, match=r"expected --kubeconfig, \$KUBECONFIG or ~/.kube"):
        kubeconfig_connection(None)
    with pytest.raises(BadKubeconfig, match="nowhere: No such file or directory"):
        kubeconfig_connection(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("command", "message"),
    [("false", "Exec false returned 1"), ("no-such-command", "no-such-command")],
)
def test_a_kubeconfig_command_without_a_token_is_refused(
    write: Write, command: str, message: str
) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": command}
    path = write(kubeconfig("blue", current="blue", exec=plugin), "config")
    with closing(kubeconfig_cluster(path)) as cluster, pytest.raises(ClusterRefused, match=message):
        cluster.node("any")
