"""Static pools, deployed: nodes come without pods, are replaced, and follow spec.replicas."""

import time
from collections.abc import Iterator

import pytest
from leeway_cli import main
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client, KubeConfig

from tests.end_to_end.conftest import daemonset
from tests.end_to_end.environment import run_reconcile
from tests.end_to_end.provisioning import CLUSTER, PARAMETERS, prepare, store
from tests.end_to_end.replacing import first, launched
from tests.end_to_end.rights import check_calls_are_granted
from tests.end_to_end.test_giving_back import CHURN, NEVER, GivingBack, team, team_pool
from tests.launch.pools import document, node_class


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GivingBack]:
    scenario = Scenario(cluster=CLUSTER, groups=(), workloads=(daemonset("cni"),))
    options = {"aws": ["--schedule-speed", "0"], "kubernetes": ["--node-join", "1"]}
    state = tmp_path_factory.mktemp("static-pools")
    with (
        Sandbox.start(scenario, state_dir=state, parameters=PARAMETERS, options=options) as sandbox,
        Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube,
    ):
        prepare(sandbox)
        store(
            sandbox,
            node_class(),
            team_pool("fixed", replicas=2, disruption=NEVER),
            team_pool("aged", expires="100s", replicas=1),
            document("Cluster", CLUSTER, {"churn": CHURN}),
        )
        yield GivingBack(sandbox, kube)
        check_calls_are_granted(sandbox)


def ready(world: GivingBack, name: str) -> dict[str, str]:
    """The nodes of a pool that are Ready and not cordoned."""
    nodes = world.nodes(name)
    cordoned = {e["node"] for e in world.since(0).of("node-cordoned")}
    return {instance: node for instance, node in nodes.items() if node not in cordoned}


def has(world: GivingBack, name: str, count: int) -> bool:
    """Whether a pool has this number of nodes, and no other one goes."""
    return len(ready(world, name)) == len(world.nodes(name)) == count


def scale_pool(world: GivingBack, replicas: int) -> None:
    """Scale the pool as users do."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in world.sandbox.environment().items():
            patch.setenv(key, value)
        assert (
            main.run(["scale", "nodepool/fixed", f"--replicas={replicas}", "--cluster", CLUSTER])
            == 0
        )


def test_a_static_pool_keeps_its_number_of_nodes(world: GivingBack) -> None:
    world.runs_until(lambda: has(world, "fixed", 2) and has(world, "aged", 1))
    assert len(launched(world.since(0), "fixed")) == 2, "no node was launched twice"

    since = time.time()
    (interrupted, *_) = world.nodes("fixed")
    world.interrupt([interrupted], late=30)
    world.runs_until(lambda: interrupted not in world.nodes("fixed") and has(world, "fixed", 2))
    assert len(launched(world.since(0), "fixed")) == 3

    world.create(team("fixed", 1))
    (busy,) = world.running("fixed").values()
    assert len(launched(world.since(0), "fixed")) == 3, "the pod has its place on a static node"

    scale_pool(world, 3)
    world.runs_until(lambda: has(world, "fixed", 3))
    assert len(launched(world.since(0), "fixed")) == 4

    run_reconcile(world)  # the index of instances
    scale_pool(world, 1)
    world.runs_until(lambda: has(world, "fixed", 1), 180)
    assert list(world.nodes("fixed").values()) == [busy], "empty nodes go first"
    assert len(launched(world.since(0), "fixed")) == 4
    assert not [e for e in world.since(since).of("eviction") if e.get("node") == busy]


def test_an_expired_node_of_a_static_pool_goes_after_another_is_in_its_place(
    world: GivingBack,
) -> None:
    (old, *_) = launched(world.since(0), "aged")
    outcome = world.runs_until(lambda: world.outcome(old))
    assert (outcome["result"], outcome["terminated"]) == ("drained", True)
    seen = world.since(0)
    joined = [e for e in seen.of("node-joined") if e["instance"] in launched(seen, "aged")]
    successor = next(e for e in joined if e["instance"] != old)
    states = seen.of("instance-state", instance=old)
    assert successor["at"] < first([e for e in states if e["state"] == "shutting-down"])
    assert str(successor["instance"]) in str(outcome)
