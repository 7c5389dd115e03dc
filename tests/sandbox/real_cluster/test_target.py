"""Which clusters a sandbox uses, and which it refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_cli.main import run
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.real_cluster.target import RealCluster, find_cluster, is_on_this_machine

from tests.sandbox.kubernetes.live import Live


def config(server: str, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        **changes,
    }


def written(folder: Path, content: object) -> Path:
    path = folder / "kubeconfig"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("server", "own"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://localhost:6443", True),
        ("https://[::1]:6443", True),
        ("https://192.0.2.7:6443", False),
        ("https://0123456789.gr7.us-east-1.eks.invalid", False),
        ("", False),
    ],
)
def test_only_addresses_of_this_machine_are_its_own(server: str, own: bool) -> None:
    assert is_on_this_machine(server) is own


def test_a_cluster_that_is_elsewhere_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, config("https://192.0.2.7:1"))
    for allowed in (None, "another"):
        with pytest.raises(SandboxError) as refused:
            find_cluster(path, None, allowed)
        assert "is not on this machine" in str(refused.value)


def test_a_sandbox_waits_for_the_namespaces_of_an_earlier_one(live: Live) -> None:
    cluster = RealCluster(live.kubeconfig(), "sandbox", ())
    path = "/api/v1/namespaces/leeway-headroom"
    labels = {"sandbox.leeway.sh/created": "true"}
    live.create("/api/v1/namespaces", {"metadata": {"name": "leeway-headroom", "labels": labels}})
    reported: list[str] = []
    cluster.wait_for_namespaces(reported.append)
    assert reported == []
    live.api.delete(path)
    assert live.api.get(path).status_code == 200
    cluster.wait_for_namespaces(reported.append)
    assert live.api.get(path).status_code == 404
    (line,) = reported
    assert "leeway-headroom" in line


def test_a_namespace_of_an_earlier_sandbox_that_does_not_end_is_an_error(live: Live) -> None:
    cluster = RealCluster(live.kubeconfig(), "sandbox", ())
    labels = {"sandbox.leeway.sh/created": "true"}
    live.create("/api/v1/namespaces", {"metadata": {"name": "stuck", "labels": labels}})
    kept = {"metadata": {"name": "kept", "finalizers": ["example.com/never"]}}
    live.create("/api/v1/namespaces/stuck/configmaps", kept)
    live.api.delete("/api/v1/namespaces/stuck")
    with pytest.raises(
        SandboxError, match="The namespace stuck of an earlier sandbox still terminates"
    ):
        cluster.wait_for_namespaces(lambda _: None, seconds=1)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "",
        config("https://127.0.0.1:1", contexts=[]),
        config("https://127.0.0.1:1", users=[]),
        config("https://127.0.0.1:1", **{"current-context": "another"}),
        config("https://127.0.0.1:1", contexts=[{"name": "test", "context": {"cluster": "c"}}]),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_has_one_reason(tmp_path: Path, content: object) -> None:
    with pytest.raises(SandboxError) as refused:
        find_cluster(written(tmp_path, content), None, None)
    assert f"The kubeconfig {tmp_path / 'kubeconfig'} cannot be used" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as refused:
        find_cluster(written(tmp_path, config("https://127.0.0.1:1")), None, None)
    assert "The API server https://127.0.0.1:1 does not do what" in str(refused.value)


def test_nodes_of_the_control_plane_are_not_used(live: Live, kubeconfig: Path) -> None:
    with pytest.raises(SandboxError) as refused:
        find_cluster(kubeconfig, None, None)
    assert "has no nodes besides its control plane" in str(refused.value)
    live.add_nodes(1, **{"node-role.kubernetes.io/control-plane": ""})
    (worker,) = live.add_nodes(2)
    assert find_cluster(kubeconfig, None, None).nodes == (worker,)


@pytest.mark.parametrize(
    ("context", "name"), [("kind-kind", "kind-kind"), ("arn:aws:eks:x", "test-cluster")]
)
def test_a_context_names_the_cluster_if_eks_allows_it(context: str, name: str) -> None:
    assert RealCluster(Path("config"), context, ("a",)).name == name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--context", "kind"],
            "--context: expected --kubeconfig with it",
        ),
        (["--join-command", "true"], "--join-command: expected --kubeconfig"),
        (["--kubeconfig", "nothing", "--nodes", "4"], "no --nodes or --grow with it"),
        (["--kubeconfig", "nothing"], "The kubeconfig"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sandbox", "up", "--state-dir", str(tmp_path), *options]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == 1
