"""What burns money stops by itself: nodes that no pod gets a place on, controllers
that create pods without end.

Each test counts the instances that were launched. Tests let time pass by moving records into the
past.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from leeway.provisioning.brakes import MOST_IN_VAIN
from leeway_sandbox.provisioning import create_workloads
from lightkube import ApiError, Client
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Event, Node, Pod

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Environment, kube_client, until
from tests.end_to_end.promises import check_promises
from tests.end_to_end.provisioning import (
    CLUSTER,
    FUNCTION,
    bound,
    fire_watch,
    let_launches_age,
    sandbox_with,
    store,
    watch,
)
from tests.launch.pools import document, node_class, pool

MOST = 6
"""spec.launches.atMost"""
POOLS = ("double", "gated", "webhook")
GATE = {"key": "example.com/gate", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A cluster with pools of machines that hold one pod each."""
    # A node is not Ready for three seconds: time for the taint of a controller.
    slow = ["--node-ready", "3"]
    with sandbox_with(tmp_path_factory.mktemp("brakes"), kubernetes=slow) as (running, _):
        pools = [pool(name, capacity=["on-demand"], only={"cpu": ["2"]}) for name in POOLS]
        pools[0]["spec"]["limits"] = {"nodes": 2 * MOST}
        cluster = document("Cluster", CLUSTER, {"launches": {"atMost": MOST}})
        store(running, *pools, node_class(), cluster)
        found = Environment(running)
        watch(found)
        yield found


@pytest.fixture
def kube(env: Environment) -> Iterator[Client]:
    with kube_client(env.sandbox) as opened:
        yield opened
        try:
            check_promises(env.sandbox, spare=("gated",))
        finally:
            delete_pods(opened)


def delete_pods(kube: Client) -> None:
    """Delete all Deployments and pods of the tests, and wait until they are gone."""
    for deployed in kube.list(Deployment, namespace="default"):
        kube.delete(Deployment, name_of(deployed.metadata), namespace="default")
    for left in kube.list(Pod, namespace="default"):
        end(kube, left)
    until(lambda: not list(kube.list(Pod, namespace="default")))


def end(kube: Client, pod: Pod) -> None:
    """Delete a pod at once. A controller may have deleted it meanwhile."""
    try:
        kube.delete(Pod, name_of(pod.metadata), namespace="default", grace_period=0)
    except ApiError as error:
        if error.status.code != 404:
            raise


def name_of(metadata: ObjectMeta | None) -> str:
    return str((metadata or ObjectMeta()).name)


def workload(name: str, replicas: int, in_pool: str) -> Any:
    """A Deployment whose pods need a node of a pool each."""
    found: Any = deployment(name, replicas, 1)
    spec = found["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"karpenter.sh/nodepool": in_pool}
    spec["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    return found


class Launches:
    """The launches since the begin of a test, and runs of the buyer."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._before = self._all()

    def _all(self) -> set[str]:
        return {str(i) for e in self._env.since(0).of("fleet") for i in e["instances"]}

    def count(self) -> int:
        """How many instances have been launched."""
        return len(self._all() - self._before)

    def launched(self, count: int) -> bool:
        """Whether exactly so many have been launched."""
        return self.count() == count

    def run(self) -> None:
        """Wake the buyer as each minute, and wait until it has run."""
        before = len(self._runs())
        fire_watch(self._env)
        until(lambda: len(self._runs()) > before)

    def _runs(self) -> list[Any]:
        return self._env.since(0).of("queue-batch", function=FUNCTION)

    def run_until[T](self, condition: Callable[[], T]) -> T:
        """Wake the buyer until a condition holds."""

        def holds() -> T:
            self.run()
            return condition()

        return until(holds)


@pytest.fixture
def launches(env: Environment) -> Launches:
    let_launches_age(env.sandbox, 60)
    return Launches(env)


def told(kube: Client, name: str) -> set[str]:
    """The reasons of Leeway's Events about the pods of a workload."""
    events = kube.list(Event, namespace="default")
    ours = [e for e in events if e.reportingComponent == "leeway"]
    return {str(e.reason) for e in ours if str(e.involvedObject.name).startswith(f"{name}-")}


def measured(env: Environment, name: str) -> bool:
    """Whether provision_nodes has counted a problem."""
    lines = [e["line"] for e in env.since(0).of("logs", function=FUNCTION)]
    return any(one.get(name) in ([1.0], 1, 1.0) for one in lines if isinstance(one, dict))


def test_a_controller_that_doubles_its_pods_stops_at_the_maximum_and_at_the_limits_of_the_pool(
    env: Environment, kube: Client, launches: Launches
) -> None:
    create_workloads([workload("double", 1, "double")], env.sandbox.write_kubeconfig())
    until(lambda: launches.count() == 1)
    for replicas in (2, 4, 8, 16):
        kube.patch(Deployment, "double", {"spec": {"replicas": replicas}}, namespace="default")
        most = min(replicas, MOST)
        launches.run_until(partial(launches.launched, most))
    launches.run_until(lambda: "LaunchesCapped" in told(kube, "double"))
    assert launches.count() == MOST
    assert measured(env, "LaunchProblems")
    until(lambda: len(bound(kube)) == MOST)
    let_launches_age(env.sandbox, 10)  # Ten minutes later it goes on by itself.
    launches.run_until(lambda: launches.count() == 2 * MOST)
    until(lambda: len(bound(kube)) == 2 * MOST)
    let_launches_age(env.sandbox, 10)
    launches.run_until(lambda: "PoolLimitReached" in told(kube, "double"))
    assert launches.count() == 2 * MOST, "the limits of the pool hold"


def test_nodes_that_no_pod_gets_a_place_on_stop_launches_for_a_job_that_fails_again_and_again(
    env: Environment, kube: Client, launches: Launches
) -> None:
    """A controller puts a taint on each node that its pool does not declare."""
    job = workload("job", 1, "gated")["spec"]["template"]
    for suffix in ("2b4c5", "6d7f8", "9g2h4", "j5k6l", "m7n8p", "q9r2s"):
        before = launches.count()
        metadata = {"name": f"job-{suffix}", "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job["spec"]}
        create_workloads([pod], env.sandbox.write_kubeconfig())
        if before < MOST_IN_VAIN:
            until(partial(launches.launched, before + 1))
        else:
            launches.run_until(lambda: "LaunchesInVain" in told(kube, "job"))
        taint_all(kube, "gated", launches.count())
        kube.delete(Pod, f"job-{suffix}", namespace="default", grace_period=0)
        let_launches_age(env.sandbox, 4)
    assert launches.count() == MOST_IN_VAIN


def taint_all(kube: Client, in_pool: str, count: int) -> None:
    """Wait until so many nodes of a pool are Ready, and put the taint on each before any pod."""

    def found() -> list[Node]:
        nodes = kube.list(Node, labels={"karpenter.sh/nodepool": in_pool})
        return [one for one in nodes if one.spec]

    until(lambda: len(found()) == count)
    for node in found():
        assert node.metadata is not None
        assert node.spec is not None
        taints = [one.to_dict() for one in node.spec.taints or ()]
        if GATE not in taints:
            patch = {"spec": {"taints": [*taints, GATE]}}
            kube.patch(Node, str(node.metadata.name), patch)


def test_a_webhook_that_deletes_pods_costs_one_node(
    env: Environment, kube: Client, launches: Launches
) -> None:
    create_workloads([workload("webhook", 1, "webhook")], env.sandbox.write_kubeconfig())
    gone: set[str] = set()
    for _ in range(6):
        (pod,) = until(lambda: [p for p in kube.list(Pod, namespace="default") if is_new(p, gone)])
        launches.run()
        gone.add(str((pod.metadata or ObjectMeta()).uid))
        end(kube, pod)
    until(lambda: len(bound(kube)) == 1)
    launches.run()
    assert launches.count() == 1


def is_new(pod: Pod, gone: set[str]) -> bool:
    metadata = pod.metadata or ObjectMeta()
    return metadata.uid not in gone and metadata.deletionTimestamp is None
