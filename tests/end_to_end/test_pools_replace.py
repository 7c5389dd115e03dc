"""Nodes of Leeway's pools retire: pods get other nodes in time, and each node is launched once."""

import time
from collections.abc import Iterator

import pytest
from leeway_cli.main import run as leeway
from leeway_sandbox.provisioning import create_workloads
from lightkube import Client
from lightkube.resources.core_v1 import Node

from tests.end_to_end.environment import Entry, events_about, first, say, until
from tests.end_to_end.promises import check_promises
from tests.end_to_end.provisioning import CLUSTER, sandbox_with, store
from tests.end_to_end.replacing import (
    EIGHT,
    FOUR,
    GROUP,
    GROUP_SIZE,
    MANIFESTS_KEPT,
    POOLS,
    SHARED,
    WITHIN,
    WORLD,
    Replacing,
    codes_about,
    launched,
    team_pool,
    unbootable,
    wait_until,
    workload,
)
from tests.launch.pools import node_class

BUDGET = {"percent": 0, "atLeast": 1, "within": f"{WITHIN:g}s"}
NO_CAPACITY = {"error": "InsufficientInstanceCapacity", "instance_type": "*", "zone": "*"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replacing]:
    """A paused cluster with nodes of pools and of a group. Schedules do not run: what happens is
    the effect of notices and of the messages of retirements."""
    with sandbox_with(
        tmp_path_factory.mktemp("replacing"),
        node_class(),
        *(team_pool(name, EIGHT if name == "scarce" else FOUR) for name in POOLS),
        team_pool(SHARED, {"cpu": ["2"]}),
        *unbootable(),
        scenario=WORLD,
        functions=["--retry-delay", "1"],
    ) as (sandbox, kube):
        env = Replacing(sandbox, kube)
        say(env.sandbox, paused=True, churn=BUDGET)
        env.create(
            workload("paused", 1),
            workload("calm", 2),
            workload("rebalanced", 4),
            workload("pair", 4),
            workload("scarce", 1, "3"),
            workload("killed", 2),
        )
        yield env


@pytest.fixture(autouse=True)
def without_faults(world: Replacing) -> Iterator[None]:
    yield
    for part in ("aws", "lambda"):
        world.sandbox.faults(part, [])
    check_promises(world.sandbox)


@pytest.fixture(scope="module")
def resumed(world: Replacing) -> float:
    """Resume the cluster and let groups use pools; return when every function knows it."""
    say(world.sandbox, churn=BUDGET, groupsMayUsePools=True)
    return time.time() + MANIFESTS_KEPT


def test_a_paused_cluster_rebalances_no_node_and_replaces_an_interrupted_one(
    world: Replacing,
) -> None:
    ((instance, node),) = world.nodes("paused").items()
    name, since = node, time.time()
    world.sandbox.interrupt([instance], rebalance=True, warning=False)
    world.until(since, lambda seen: "ClusterPaused" in codes_about(seen, instance))
    assert not world.since(since).of("node-cordoned", node=name)
    assert not launched(world.since(since), "paused")
    world.sandbox.interrupt([instance], late=60)
    seen = world.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("spot-interruption", "drained")
    world.moved("paused", 1, [name])
    assert len(launched(world.since(since), "paused")) == 1


def test_an_interrupted_node_is_replaced_at_once_from_another_offering(
    world: Replacing,
    resumed: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ((instance, node),) = world.nodes("calm").items()
    name, since = node, time.time()
    before = launched(world.since(0), "calm")[instance]
    seen = world.interrupt([instance], late=80)
    reclaim_at = seen.of("interrupted", instance=instance)[0]["reclaim_at"]
    ((successor, place),) = launched(seen, "calm").items()
    offering = ("instance_type", "zone", "capacity_type")
    assert [place[key] for key in offering] != [before[key] for key in offering]
    assert place["at"] < reclaim_at
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "request-capacity")
    assert [one["instance"] for one in outcome["successors"]] == [successor]
    told = f"Pool calm launches {successor} ({place['instance_type']}, {place['zone']})."
    assert told in outcome["replacement_reason"]["message"]
    assert [e for e in events_about(world.sandbox, name) if told in str(e.message)]
    for key, value in world.sandbox.environment().items():
        monkeypatch.setenv(key, value)
    capsys.readouterr()
    assert leeway(["status", "--cluster", CLUSTER, "-o", "json"]) == 0
    status = capsys.readouterr().out
    assert successor in status
    assert '"pool": "calm"' in status
    world.moved("calm", 2, [name])
    world.until(since, lambda s: s.of("instance-state", instance=instance, state="terminated"))
    assert not world.since(since).died([name])
    # A further run, with the instance and its node gone, launches nothing.
    world.run_again()
    assert list(launched(world.since(since), "calm")) == [successor]


def test_two_interrupted_nodes_of_a_pool_get_a_successor_each(
    world: Replacing, resumed: float
) -> None:
    nodes = world.nodes("pair")
    assert len(nodes) == 2
    since = time.time()
    seen = world.interrupt(list(nodes), late=20)
    world.moved("pair", 4, nodes.values())
    bought = launched(world.since(since), "pair")
    assert len(bought) == 2
    told = {one["instance"] for i in nodes for o in seen.outcomes(i) for one in o["successors"]}
    assert told == set(bought)
    assert {o["result"] for i in nodes for o in seen.outcomes(i)} == {"drained"}
    assert not world.since(since).died(nodes.values())


def test_nothing_is_launched_if_the_pods_fit_on_existing_nodes(
    world: Replacing, resumed: float
) -> None:
    world.create(workload("roomy", 1, "300m"))
    ((instance, node),) = world.nodes("roomy").items()
    name = node
    cordon(world.kube, name, cordoned=True)
    other = workload("roomy-too", 1, "3500m")
    other["spec"]["template"]["spec"]["nodeSelector"] = {"team": "roomy"}
    world.create(other)
    cordon(world.kube, name, cordoned=False)
    assert len(world.nodes("roomy")) == 2
    since = time.time()
    seen = world.interrupt([instance], late=60)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["successors"]) == ("drained", [])
    assert "a place on existing nodes" in outcome["replacement_reason"]["message"]
    world.moved("roomy", 1, [name])
    assert not launched(world.since(since), "roomy")
    assert not world.since(since).died([name])


def test_without_capacity_anywhere_the_drain_goes_on_and_tells_why(
    world: Replacing, resumed: float
) -> None:
    ((instance, node),) = world.nodes("scarce").items()
    world.run_again()  # warm, it answers while the retirement waits for that
    name, since = node, time.time()
    world.sandbox.faults("aws", [{"service": "ec2", "action": "Launch", **NO_CAPACITY}])
    seen = world.interrupt([instance], late=20)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["successors"]) == ("drained", [])
    assert not seen.died([name])
    message = outcome["replacement_reason"]["message"]
    assert "No replacement for some pods, because: " in message
    assert "scarce" in message
    assert not launched(world.since(since), "scarce")
    (pending,) = until(lambda: world.pods("scarce", "Pending"))
    world.wake()

    def told() -> bool:
        return any("scarce" in str(e.message) for e in events_about(world.sandbox, pending))

    until(told)
    world.delete("scarce")


def test_pods_do_not_wait_for_an_instance_that_is_interrupted_before_it_joins(
    world: Replacing, resumed: float
) -> None:
    since = time.time()
    create_workloads([workload("young", 1)], world.sandbox.write_kubeconfig())
    until(lambda: world.pods("young", "Pending"))
    world.wake()
    ((instance, _),) = world.until(since, lambda seen: launched(seen, "young")).items()
    world.until(since, lambda seen: seen.of("boot-refused", instance=instance))
    # The next instances join: the launch after the interruption is seen by the pod that waits.
    _, works = unbootable()
    del works["spec"]["metadataOptions"]
    store(world.sandbox, works, replaces=1)
    refresh = {"function": "leeway-provision-nodes", "kill": "before"}
    world.sandbox.faults("lambda", [refresh])
    (begun,) = world.sandbox.interrupt([instance], late=80)
    world.until(since, lambda seen: len(launched(seen, "young")) == 2)
    world.moved("young", 1, [])
    (second,) = set(launched(world.since(since), "young")) - {instance}
    assert launched(world.since(since), "young")[second]["at"] < begun["reclaim_at"]
    seen = world.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("no-node", "nothing")
    assert len(launched(world.since(since), "young")) == 2


def test_a_retirement_converges_when_its_functions_are_killed(
    world: Replacing, resumed: float
) -> None:
    ((instance, node),) = world.nodes("killed").items()
    name, since = node, time.time()
    buyer = {"service": "ec2", "action": "CreateFleet", "function": "leeway-provision-nodes"}
    world.sandbox.faults("aws", [{**buyer, "kill": True, "when": "after", "count": 1}])
    execution = f"retire-{instance}-*"
    # After the request for nodes, before its step is recorded.
    world.sandbox.faults(
        "lambda",
        [{"function": "*retire*", "execution": execution, "kill": "before", "step": 2}],
    )
    seen = world.interrupt([instance], late=40)
    world.moved("killed", 2, [name])
    assert world.since(since).of("caller-killed")
    killed = seen.of("invocation", outcome="killed")
    assert {e["function"] for e in killed} == {"leeway-retire-node", "leeway-provision-nodes"}
    ((successor, _),) = launched(world.since(since), "killed").items()
    outcomes = seen.outcomes(instance)
    assert [o["result"] for o in outcomes] == ["drained"] * len(outcomes)
    assert not world.since(since).died([name])
    world.run_again()
    assert list(launched(world.since(since), "killed")) == [successor]


def test_a_rebalanced_node_is_drained_when_its_successor_is_ready_within_the_budget(
    world: Replacing, resumed: float
) -> None:
    nodes = world.nodes("rebalanced")
    assert len(nodes) == 2
    wait_until(resumed)
    since = time.time()
    world.sandbox.interrupt(list(nodes), rebalance=True, warning=False)
    cordoned = world.until(since, lambda seen: seen.of("node-cordoned"))[0]["node"]
    (instance,) = (i for i, name in nodes.items() if name == cordoned)
    (other,) = nodes.keys() - {instance}
    # The second one waits for the budget: its next try is in a minute. An interruption does not.
    world.until(since, lambda seen: "DisruptionBudgetExhausted" in codes_about(seen, other))
    assert not world.since(since).of("node-cordoned", node=nodes[other])
    interrupted = time.time()
    world.sandbox.interrupt([other], late=60)
    seen = world.wait([instance, other], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "request-capacity")
    # Another one follows if the pods of the interrupted node took the place on the first one.
    successor = outcome["successors"][0]["instance"]
    place = launched(seen, "rebalanced")[successor]
    (joined,) = seen.of("node-joined", instance=successor)
    ready = first(seen.of("node-ready", node=joined["node"]))
    evicted = first(seen.of("eviction", node=cordoned))
    assert place["at"] < ready <= evicted
    ended = world.until(
        since, lambda s: s.of("instance-state", instance=instance, state="shutting-down")
    )
    gone = [e for e in seen.of("pod-ended", node=cordoned) if not is_daemon(e)]
    assert len(gone) == 2
    assert max(e["at"] for e in gone) <= first(ended)
    assert not world.since(since).died([cordoned])
    found = world.since(interrupted).outcomes(other)
    assert [one["result"] for one in found] == ["drained"]
    world.moved("rebalanced", 4, nodes.values())
    assert len(launched(world.since(since), "rebalanced")) == 2
    assert not world.since(since).died(nodes.values())


@pytest.mark.parametrize("rebalance", [False, True])
def test_a_pool_replaces_the_node_of_a_group_without_capacity_and_the_group_shrinks(
    world: Replacing, resumed: float, rebalance: bool
) -> None:
    wait_until(resumed + WITHIN)
    (instance, node) = world.unused_nodes(1, GROUP).popitem()
    since, desired = time.time(), world.desired()
    group = {"service": "autoscaling", "action": "Launch", **NO_CAPACITY}
    world.sandbox.faults("aws", [group])
    if rebalance:
        world.sandbox.interrupt([instance], rebalance=True, warning=False)
    else:
        world.reports_no_capacity()
        world.sandbox.interrupt([instance], late=60)
    seen = world.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "request-capacity")
    world.moved(SHARED, GROUP_SIZE, [node])
    (successor,) = launched(world.since(since), SHARED)
    assert [one["instance"] for one in outcome["successors"]] == [successor]
    message = outcome["replacement_reason"]["message"]
    assert f"Pool {SHARED} launches {successor}" in message
    assert "decrement" in message
    assert not world.since(since).died([node])
    world.sandbox.faults("aws", [])
    ended = {"instance": instance, "state": "terminated"}
    world.until(since, lambda s: s.of("instance-state", **ended))
    assert world.desired() == desired - 1
    # The group has capacity again, and launches no second successor.
    world.run_again()
    assert list(launched(world.since(since), SHARED)) == [successor]
    assert not world.since(since).of("instance-state", state="pending", group=GROUP)


def is_daemon(entry: Entry) -> bool:
    """Whether a pod is one of a DaemonSet."""
    return (entry["owner"] or "").startswith("DaemonSet/")


def cordon(kube: Client, name: str, cordoned: bool) -> None:
    """Cordon or uncordon a node."""
    kube.patch(Node, name, {"spec": {"unschedulable": cordoned}})
