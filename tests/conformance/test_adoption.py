"""`leeway adopt`, `doctor` and `release` on a cluster that runs already."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway_cli.adopt.plan import read_objects
from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.main import run

from tests.cli.conftest import drop_clients
from tests.conformance.conftest import Conformance

RBAC = Path(__file__).parents[2] / "rbac"
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
