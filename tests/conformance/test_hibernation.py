"""A node pool in the API server of a cluster that runs already hibernates, and wakes: by
`leeway wake`, and before its window opens.

The Nodes have no machines: the sandbox answers for their kubelets.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.manifests.node_pool import SCHEDULE
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.main import run as leeway
from leeway_cli.manifests.crds import crd_name, defined_kinds

from tests.cli.conftest import drop_clients
from tests.conformance.conftest import GIVEN, Conformance
from tests.conformance.test_custom_resources import CLASSES, CRDS, EVENTS, MERGE, POOLS
from tests.end_to_end.environment import PATIENCE, run_reconcile, until
from tests.end_to_end.provisioning import prepare, run
from tests.launch.pools import document, node_class, pool

POOL = "leeway-conformance-night"
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
        answer = self.http.patch(f"{POOLS}/{POOL}", content=json.dumps(body), headers=MERGE)
        assert answer.is_success, answer.text

    def wake(self, *arguments: str) -> None:
        """Run `leeway wake`."""
        assert leeway(["wake", POOL, *arguments, "--cluster", self.cluster]) == 0

    def runs_until[T](self, found: Callable[[], T]) -> T:
        """Have provision_nodes run every two seconds until something is found."""
        end = time.monotonic() + PATIENCE
        while not (value := found()):
            assert time.monotonic() < end, self.env.since(0).of("logs")[-6:]
            assert run(self.sandbox) == []
            time.sleep(2)
        return value

    def awakes(self) -> None:
        """Wait until both pods run, and have reconcile find the instances, as it does each
        minute."""
        self.runs_until(self.works)
        run_reconcile(self.env)

    def nodes(self) -> dict[str, bool]:
        """The Nodes of the pool, and whether each is cordoned."""
        params = {"labelSelector": f"karpenter.sh/nodepool={POOL}"}
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
        prepare(env.sandbox)
        try:
            assert leeway(["adopt", found.cluster, "--yes", "--manifests", "cluster"]) == 0
            found.post(CLUSTERS, document("Cluster", found.cluster, {"churn": CHURN}))
            found.post(CLASSES, node_class(amiSelectorTerms=[{"alias": "al2023@latest"}]))
            only, labels = {"cpu": ["2"]}, {"team": POOL}
            found.post(POOLS, pool(POOL, labels=labels, only=only, disruption=AT_ONCE))
            env.create(SLEEPER, 2, nodeSelector={"team": POOL}, terminationGracePeriodSeconds=5)
            found.awakes()
            yield found
        finally:
            sleeper = f"/apis/apps/v1/namespaces/{env.namespace}/deployments/{SLEEPER}"
            for path in (sleeper, f"{POOLS}/{POOL}", f"{CLASSES}/default"):
                http.delete(path)
            assert leeway(["release", found.cluster, "--yes"]) == 0
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
    pool = night.http.get(f"{POOLS}/{POOL}").json()["metadata"]["uid"]
    pods = night.pods().keys()

    def told() -> list[tuple[str, str]]:
        """What Events say about the pool and its pods; a pool of an earlier test had this name."""
        of_pods = night.told(f"/api/v1/namespaces/{night.env.namespace}/events")
        return [one for one in (*night.told(EVENTS), *of_pods) if one[0] in {pool, *pods}]

    night.runs_until(lambda: {uid for uid, _ in told()} == {pool, *pods})
    for _ in range(2):
        assert run(night.sandbox) == []
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
