"""`leeway adopt`, `doctor` and `release` on a cluster that runs already, and a node pool in its API
server that hibernates and wakes: by `leeway wake`, and before its window opens.

The Nodes have no machines: the sandbox answers for their kubelets.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from leeway.manifests.node_pool import SCHEDULE
from leeway_cli.adopt.plan import read_objects
from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.main import run
from leeway_cli.manifests.crds import crd_name, defined_kinds

from tests.cli.conftest import drop_clients
from tests.conformance.conftest import GIVEN, Conformance
from tests.conformance.test_custom_resources import CLASSES, CRDS, EVENTS, MERGE, POOLS
from tests.end_to_end import provisioning
from tests.end_to_end.environment import PATIENCE, run_reconcile, until
from tests.launch.pools import document, node_class, pool
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
        for path, kept in self._before.items():
            for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
                kept["metadata"].pop(name, None)
            folder, _, _ = path.rpartition("/")
            self._client.post(folder, json=kept)

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


NIGHT = "leeway-conformance-night"
SLEEPER = "sleeper"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
CLUSTERS = "/apis/leeway.sh/v1/clusters"
CHURN = {"percent": 100, "atLeast": 10, "within": "1s"}
AT_ONCE = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}


class Night:
    """The pool, and two pods that only its nodes take."""

    def __init__(self, env: Conformance, http: Any) -> None:
        self.env = env
        self.sandbox = env.sandbox
        self.http = http
        self.cluster = env.sandbox.endpoints.cluster

    def post(self, path: str, body: Any) -> None:
        """Create an object."""
        answer = self.http.post(path, json=body)
        assert answer.status_code == 201, answer.text

    def schedule(self, opens: datetime) -> None:
        """Give the pool one window of an hour a day."""
        ends = opens + timedelta(hours=1)
        start, end = (f"{at.minute} {at.hour} * * *" for at in (opens, ends))
        windows = [{"timezone": "UTC", "start": start, "end": end}]
        body = {"metadata": {"annotations": {SCHEDULE: json.dumps(windows)}}}
        answer = self.http.patch(f"{POOLS}/{NIGHT}", content=json.dumps(body), headers=MERGE)
        assert answer.is_success, answer.text

    def wake(self, *arguments: str) -> None:
        """Run `leeway wake`."""
        assert run(["wake", NIGHT, *arguments, "--cluster", self.cluster]) == 0

    def runs_until[T](self, found: Callable[[], T]) -> T:
        """Have provision_nodes run every two seconds until something is found."""
        end = time.monotonic() + PATIENCE
        while not (value := found()):
            assert time.monotonic() < end, self.env.since(0).of("logs")[-6:]
            assert provisioning.run(self.sandbox) == []
            time.sleep(2)
        return value

    def awakes(self) -> None:
        """Wait until both pods run, and have reconcile find the instances, as it does each
        minute."""
        self.runs_until(self.works)
        run_reconcile(self.env)

    def nodes(self) -> dict[str, bool]:
        """The Nodes of the pool, and whether each is cordoned."""
        params = {"labelSelector": f"karpenter.sh/nodepool={NIGHT}"}
        return {
            one["metadata"]["name"]: bool(one["spec"].get("unschedulable"))
            for one in self.http.get("/api/v1/nodes", params=params).json()["items"]
        }

    def pods(self) -> dict[str, str]:
        """The pods that are not about to end: the node of each, empty while it is pending."""
        path = f"/api/v1/namespaces/{self.env.namespace}/pods"
        return {
            one["metadata"]["uid"]: one["spec"].get("nodeName", "")
            for one in self.http.get(path).json()["items"]
            if "deletionTimestamp" not in one["metadata"]
        }

    def works(self) -> bool:
        """Whether both pods run on nodes that take pods."""
        found, nodes = self.pods(), self.nodes()
        return len(found) == 2 and all(nodes.get(one) is False for one in found.values())

    def sleeps(self) -> bool:
        """Whether the pool has no node, and both pods wait."""
        return not self.nodes() and list(self.pods().values()) == ["", ""]

    def told(self, path: str) -> list[tuple[str, str]]:
        """What the Events `PoolHibernates` say, each with the uid of its object."""
        return [
            (one["involvedObject"]["uid"], one["message"])
            for one in self.http.get(path).json()["items"]
            if one["reason"] == "PoolHibernates"
        ]


@pytest.fixture(scope="module")
def night(env: Conformance) -> Iterator[Night]:
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(kubeconfig_connection(env.sandbox.kubeconfig)) as connection,
    ):
        http, crds = connection.plain, [f"{CRDS}/{crd_name(kind)}" for kind in defined_kinds()]
        if any(http.get(path).status_code == 200 for path in crds):
            pytest.skip("the cluster has CRDs of Karpenter, which stay as they are")
        for name, value in env.sandbox.environment().items():
            patch.setenv(name, value)
        patch.setenv("KUBECONFIG", str(env.sandbox.kubeconfig))
        for name in ("AWS_PROFILE", "LEEWAY_CLUSTER", "LEEWAY_CLUSTERS"):
            patch.delenv(name, raising=False)
        drop_clients()
        found = Night(env, http)
        provisioning.prepare(env.sandbox)
        try:
            assert run(["adopt", found.cluster, "--yes", "--manifests", "cluster"]) == 0
            found.post(CLUSTERS, document("Cluster", found.cluster, {"churn": CHURN}))
            found.post(CLASSES, node_class(amiSelectorTerms=[{"alias": "al2023@latest"}]))
            only, labels = {"cpu": ["2"]}, {"team": NIGHT}
            found.post(POOLS, pool(NIGHT, labels=labels, only=only, disruption=AT_ONCE))
            env.create(SLEEPER, 2, nodeSelector={"team": NIGHT}, terminationGracePeriodSeconds=5)
            found.awakes()
            yield found
        finally:
            sleeper = f"/apis/apps/v1/namespaces/{env.namespace}/deployments/{SLEEPER}"
            for path in (sleeper, f"{POOLS}/{NIGHT}", f"{CLASSES}/default"):
                http.delete(path)
            assert run(["release", found.cluster, "--yes"]) == 0
            for path in crds:
                http.delete(path)
            until(lambda: all(http.get(path).status_code == 404 for path in crds))
            drop_clients()


def in_hours(hours: int) -> datetime:
    return datetime.now(UTC).replace(minute=0) + timedelta(hours=hours)


def test_a_pool_goes_to_zero_outside_of_its_windows_and_says_so_once(night: Night) -> None:
    opens = in_hours(6)
    night.schedule(opens)
    night.runs_until(night.sleeps)
    pool = night.http.get(f"{POOLS}/{NIGHT}").json()["metadata"]["uid"]
    pods = night.pods().keys()

    def told() -> list[tuple[str, str]]:
        """What Events say about the pool and its pods; a pool of an earlier test had this name."""
        of_pods = night.told(f"/api/v1/namespaces/{night.env.namespace}/events")
        return [one for one in (*night.told(EVENTS), *of_pods) if one[0] in {pool, *pods}]

    night.runs_until(lambda: {uid for uid, _ in told()} == {pool, *pods})
    for _ in range(2):
        assert provisioning.run(night.sandbox) == []
    assert night.sleeps()
    assert Counter(uid for uid, _ in told()) == Counter([pool, *pods]), "one Event for each"
    assert all(f"hibernates until {opens:%H}:00 UTC" in said for _, said in told())


@pytest.mark.skipif(GIVEN not in os.environ, reason="waits for minutes, and needs a real cluster")
def test_it_is_awake_before_its_window_opens(night: Night) -> None:
    night.runs_until(night.sleeps)
    opens = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=4)
    night.schedule(opens)
    night.awakes()
    assert datetime.now(UTC) < opens
    night.schedule(in_hours(6))
    night.runs_until(night.sleeps)


def test_a_node_that_a_budget_holds_stays_when_the_pool_wakes(night: Night) -> None:
    night.wake("1h")
    night.awakes()
    budgets = BUDGETS.format(night.env.namespace)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": SLEEPER}}}

    night.post(budgets, {"metadata": {"name": SLEEPER}, "spec": spec})
    try:
        until(
            lambda: (
                night.http.get(f"{budgets}/{SLEEPER}")
                .json()
                .get("status", {})
                .get("disruptionsAllowed")
                == 1
            )
        )
        before = night.nodes()
        assert len(before) == 1, "both pods are on one node"
        night.wake("--end")
        night.runs_until(lambda: "" in night.pods().values() and True in night.nodes().values())
        night.wake("1h")
        night.runs_until(night.works)
        assert night.nodes().keys() == before.keys(), "the node stays, and no other one is launched"
    finally:
        night.http.delete(f"{budgets}/{SLEEPER}")
