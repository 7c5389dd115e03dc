"""The objects of one tenant do not affect the drain of other tenants' pods.

A tenant writes any object that the API server accepts, in its own namespace, before and during a
drain. Names of objects and labels follow Kubernetes's rules. Owners, annotations, claims and
provider ids are free text in Kubernetes, and so in this test.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from leeway.clock import SystemClock
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import Marks
from leeway.printable import printable
from leeway.retirement.executor import DrainExecutor, NodeIdentity
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain, RemovalMethod, Stage

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

NUMBERS = count(1)
TENANT = "/api/v1/namespaces/tenant/pods"
SECONDS = 10
"""Until the drain's deadline; pods of others need one."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ODD = st.sampled_from(
    ["a\u0001", "a/status", "../../../nodes", "..", "a?b=c", "a#b", "a%2fb", "\x1b[2J", "a\nb"]
)
NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
OWNER = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(["apps/v1", "apps/v1", "v1", "apps.kruise.io/v1alpha1"]),
        "kind": st.sampled_from(["DaemonSet", "DaemonSet", "ReplicaSet", "Node"]) | TEXT,
        "name": ODD | NAME | TEXT,
        "uid": st.uuids().map(str),
    }
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "karpenter.sh/do-not-disrupt",
            "kubernetes.io/config.mirror",
            "leeway.sh/attempt",
            "example.com/x",
        ]
    ),
    st.sampled_from(["true", "999999999999999h", "1e9s", "-1s", "0"]) | TEXT,
)
TOLERATION = st.sampled_from(
    [
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
        {"key": "leeway.sh/retiring", "operator": "Exists"},
    ]
)
VOLUME: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"emptyDir": {}}),
    (ODD | NAME).map(lambda claim: {"persistentVolumeClaim": {"claimName": claim}}),
)
GRACE = st.sampled_from([0, 1, 30, 86_400, 10**9])
LABELS = st.dictionaries(NAME, NAME, max_size=2)


class Tenants(RuleBasedStateMachine):
    """A retiring node, two pods of other tenants on it, and a tenant that writes objects."""

    live: ClassVar[Live]
    cluster: ClassVar[HttpCluster]

    @initialize()
    def settle(self) -> None:
        (self.node,) = self.live.add_nodes(next(NUMBERS))
        self.pool = ThreadPoolExecutor(1)
        self.drain: Future[Drain] | None = None
        self.others = [f"other-{next(NUMBERS)}" for _ in range(2)]
        for name in self.others:
            self.live.create(
                PODS, bare_pod(name, nodeName=self.node, terminationGracePeriodSeconds=1)
            )
        self.live.until(lambda: all(self._runs(name) for name in self.others))

    def _runs(self, name: str) -> bool:
        phase = self.live.api.get(f"{PODS}/{name}").json()["status"].get("phase")
        return bool(phase == "Running")

    def _write(self, path: str, body: dict[str, Any]) -> None:
        """Write an object; an object that the API server rejects is skipped."""
        assert self.live.api.post(path, json=body).status_code < 500

    @rule(
        owners=st.lists(OWNER, max_size=2),
        annotations=ANNOTATIONS,
        labels=LABELS,
        tolerations=st.lists(TOLERATION, max_size=2),
        volumes=st.lists(VOLUME, max_size=2),
        grace=GRACE,
        kept=st.booleans(),
    )
    def run_a_pod(
        self,
        owners: list[dict[str, Any]],
        annotations: dict[str, str],
        labels: dict[str, str],
        tolerations: list[dict[str, str]],
        volumes: list[dict[str, Any]],
        grace: int,
        kept: bool,
    ) -> None:
        body = bare_pod(
            f"pod-{next(NUMBERS)}",
            nodeName=self.node,
            tolerations=tolerations,
            volumes=[{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)],
            terminationGracePeriodSeconds=grace,
        )
        body["metadata"] |= {
            "annotations": annotations,
            "labels": labels,
            "finalizers": ["example.com/kept"] if kept else [],
            "ownerReferences": [
                {**owner, "controller": index == 0} for index, owner in enumerate(owners)
            ],
        }
        self._write(TENANT, body)

    @rule(name=ODD | NAME | TEXT, uid=st.uuids())
    def run_a_pod_of_a_daemonset(self, name: str, uid: UUID) -> None:
        body = bare_pod(f"pod-{next(NUMBERS)}", nodeName=self.node)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": str(uid)}
        body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        self._write(TENANT, body)

    @rule(grace=GRACE)
    def delete_the_pods(self, grace: int) -> None:
        self.live.api.request("DELETE", TENANT, json={"gracePeriodSeconds": grace})

    @rule(labels=LABELS, bound=st.sampled_from([0, 1, "0%", "100%"]))
    def guard_the_pods(self, labels: dict[str, str], bound: int | str) -> None:
        rule = {"selector": {"matchLabels": labels}, "maxUnavailable": bound}
        body = {"metadata": {"name": f"b-{next(NUMBERS)}"}, "spec": rule}
        self._write("/apis/policy/v1/namespaces/tenant/poddisruptionbudgets", body)

    @rule(name=NAME, provider=TEXT | ODD, same=st.booleans())
    def write_a_node(self, name: str, provider: str, same: bool) -> None:
        """A user who may write Nodes may set any provider id."""
        if same:
            provider = self.live.api.get(f"/api/v1/nodes/{self.node}").json()["spec"]["providerID"]
        body = {"metadata": {"name": f"{name}-{next(NUMBERS)}"}, "spec": {"providerID": provider}}
        self._write("/api/v1/nodes", body)

    @rule()
    def retire(self) -> None:
        self.drain = self.drain or self.pool.submit(self._drain)

    def _drain(self) -> Drain:
        provider = self.live.api.get(f"/api/v1/nodes/{self.node}").json()["spec"]["providerID"]
        found = self.cluster.node_of(provider.rpartition("/")[2], (self.node,))
        assert found is not None
        assert found.name == self.node
        now = SystemClock().now()
        until = now + timedelta(seconds=SECONDS)
        self.cluster.cordon(found.name, Marks("spot-interruption", 1, until.isoformat()))
        executor = DrainExecutor(self.cluster, SystemClock())
        terms = Terms(until, OnBlocked.DELETE)
        identity = NodeIdentity(found.uid, SystemClock().now())
        return executor.run(
            self.node, Drain(), terms, until + timedelta(seconds=5), identity=identity
        )

    def teardown(self) -> None:
        """The objects of the tenant do not change the drain of the other pods."""
        if not hasattr(self, "pool"):
            return
        self.retire()
        assert self.drain is not None
        drain = self.drain.result(60)
        self.pool.shutdown()
        pods = {pod.pod: pod for pod in drain.pods.values()}
        problems = (drain.problem, drain.listed_late)
        assert problems == (None, None), problems
        for name in self.others:
            other = pods[f"default/{name}"]
            assert (other.stage, other.method) == (Stage.GONE, RemovalMethod.EVICT), other.reason
        for pod in pods.values():
            text = f"{pod.pod} {pod.reason} {pod.workload}"
            assert text == printable(text)


@pytest.fixture
def cluster(live: Live, cluster: HttpCluster) -> HttpCluster:
    live.api.post("/api/v1/namespaces", json={"metadata": {"name": "tenant"}})
    return cluster


def test_no_tenant_affects_the_drain_of_other_tenants_pods(
    live: Live, cluster: HttpCluster
) -> None:
    Tenants.live, Tenants.cluster = live, cluster
    run_state_machine_as_test(
        Tenants,
        settings=settings(
            max_examples=10,
            stateful_step_count=8,
            deadline=None,
            print_blob=False,
            database=None,
            phases=[Phase.generate],  # an example takes seconds, and is short as it is
            suppress_health_check=list(HealthCheck),
        ),
    )
