"""`leeway adopt`, `doctor` and `release` on a cluster that runs already."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from leeway_cli.adopt.plan import read_objects
from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.main import run
from leeway_cli.manifests.crds import crd_name, defined_kinds

from tests.cli.conftest import drop_clients
from tests.conformance.conftest import Conformance
from tests.conformance.test_custom_resources import CRDS, MERGE, POOLS
from tests.end_to_end.environment import until
from tests.manifests.crd_cases import POOL

RBAC = Path(__file__).parents[2] / "rbac"
FULL_POOL = Path(__file__).parents[1] / "manifests" / "full-pool.yaml"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
ABSENT = {"leeway-headroom-buffer", "leeway-headroom-target", "leeway-headroom-priorities"}
"""What adopt has to write: at least one object of each kind that can be missing for a moment."""

type Document = dict[str, Any]
type Leeway = Callable[..., Document]


class Objects:
    """The objects of rbac/ in the cluster of the sandbox, as their API server answers."""

    def __init__(self, env: Conformance) -> None:
        self._client = kubeconfig_connection(env.sandbox.kubeconfig, None).plain
        self.absent = [one for one in read_objects(RBAC) if one.name in ABSENT]
        self.kinds = {one.kind for one in self.absent}
        self._before = {one.path: self.get(one) for one in self.absent}

    def get(self, wanted: ClusterObject) -> Document:
        answer = self._client.get(wanted.path)
        return answer.json() if answer.status_code == 200 else {}

    def delete(self, wanted: ClusterObject) -> None:
        assert self._client.delete(wanted.path).status_code in {200, 404}

    def restore(self) -> None:
        for path, document in self._before.items():
            for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
                document["metadata"].pop(name, None)
            folder, _, _ = path.rpartition("/")
            self._client.post(folder, json=document)

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def objects(env: Conformance) -> Iterator[Objects]:
    found = Objects(env)
    yield found
    found.restore()
    found.close()


@pytest.fixture
def leeway(
    env: Conformance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Leeway]:
    """Run a command as the user of the sandbox; return its JSON document."""
    for name, value in env.sandbox.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KUBECONFIG", str(env.sandbox.kubeconfig))
    for name in ("AWS_PROFILE", "LEEWAY_CLUSTER", "LEEWAY_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    drop_clients()
    cluster = env.sandbox.endpoints.cluster

    def ran(command: str, *options: str) -> Document:
        code = run([command, cluster, *options, "-o", "json"])
        answer = capsys.readouterr()
        # doctor exits with 1 if something fails: it does while objects of rbac/ are missing.
        assert code == 0 or (command == "doctor" and answer.out), answer.err
        document: Document = json.loads(answer.out)
        return document

    yield ran
    drop_clients()


def test_adopt_writes_what_doctor_finds_missing_and_release_removes_it(
    leeway: Leeway, objects: Objects
) -> None:
    for one in objects.absent:
        objects.delete(one)
    before = leeway("doctor")
    missing = objects_in(before)
    assert len(missing) == len(objects.absent) + 1, "and the priority class of pause pods"

    # Each object is read back after it was written, as its API server keeps it.
    leeway("adopt", "--yes")
    assert all(objects.get(one) for one in objects.absent)
    assert leeway("adopt", "--dry-run")["steps"] == []
    assert not objects_in(leeway("doctor"))

    leeway("release")
    assert not any(objects.get(one) for one in objects.absent)
    assert codes(leeway("doctor")) == codes(before)


def objects_in(document: Document) -> list[str]:
    kinds = ("ClusterRole", "Role", "Namespace", "PriorityClass", "ValidatingAdmission")
    found = [one for one in document["findings"] if one["code"] == "ClusterSettingDiffers"]
    return [name for one in found for name in one["subjects"] if name.startswith(kinds)]


def codes(document: Document) -> set[str]:
    return {one["code"] for one in document["findings"]}


def test_manifests_of_the_api_server_are_copied_held_and_left(
    env: Conformance,
    leeway: Leeway,
    schedules: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = env.sandbox.endpoints.cluster
    connection = kubeconfig_connection(env.sandbox.kubeconfig, None)
    http, crds = connection.plain, [f"{CRDS}/{crd_name(kind)}" for kind in defined_kinds()]
    if any(http.get(path).status_code == 200 for path in crds):
        pytest.skip("the cluster has CRDs of Karpenter, which stay as they are")

    def copied() -> set[str]:
        assert run(["get", "--cluster", cluster, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return {f"{one['kind']}/{one['metadata']['name']}" for one in found["items"]}

    def valid(path: str) -> tuple[str, int] | None:
        for one in http.get(path).json().get("status", {}).get("conditions") or ():
            if one["type"] == "ValidationSucceeded":
                return one["status"], one["observedGeneration"]
        return None

    try:
        leeway("adopt", "--yes", "--manifests", "cluster")
        assert all(http.get(path).status_code == 200 for path in crds)
        assert leeway("adopt", "--dry-run")["steps"] == []
        assert http.post(POOLS, json=POOL).status_code == 201
        schedules("watch-pods")
        until(lambda: "NodePool/pool" in copied())
        until(lambda: valid(f"{POOLS}/pool"))
        assert valid(f"{POOLS}/pool") == ("True", 1)
        # No schedule fires: the watch sees the change.
        http.patch(f"{POOLS}/pool", content='{"spec": {"weight": 9}}', headers=MERGE)
        until(lambda: valid(f"{POOLS}/pool") == ("True", 2))
        assert run(["apply", "--cluster", cluster, "-f", str(FULL_POOL)]) == 1
        assert "are in its API server" in capsys.readouterr().err
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        lease = {"holderIdentity": "karpenter_1", "leaseDurationSeconds": 15, "renewTime": now}
        named = {"name": "karpenter-leader-election"}
        assert http.post(LEASES, json={"metadata": named, "spec": lease}).status_code == 201
        assert "KarpenterIsRunning" in codes(leeway("doctor"))
        http.delete(f"{LEASES}/karpenter-leader-election")
        http.delete(f"{CRDS}/nodepools.karpenter.sh")
        until(lambda: http.get(POOLS).status_code == 404)
        schedules("reconcile")
        held = f"leeway delete nodepool.karpenter.sh/pool --cluster {cluster}"
        until(
            lambda: any(held in str(one["line"]) for one in env.sandbox.journal() if "line" in one)
        )
        assert "NodePool/pool" in copied()
        assert run(["delete", "nodepool/pool", "--cluster", cluster]) == 0
        capsys.readouterr()
        leeway("release")
        assert all(http.get(path).status_code == 200 for path in crds if "nodepools" not in path)
    finally:
        for path in (*crds, f"{LEASES}/karpenter-leader-election"):
            http.delete(path)
        until(lambda: all(http.get(path).status_code == 404 for path in crds))
        connection.close()
