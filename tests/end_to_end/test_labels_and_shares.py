"""Pools with several values of a label and with an on-demand share: the nodes of a first launch."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from leeway.manifests.node_pool import ON_DEMAND_PERCENTAGE
from leeway_sandbox.provisioning import create_workloads
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client, KubeConfig

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import until
from tests.end_to_end.promises import check_promises
from tests.end_to_end.provisioning import CLUSTER, PARAMETERS, bound, nodes, prepare, run, store
from tests.end_to_end.rights import check_calls_are_granted
from tests.launch.pools import node_class, pool

TEAM = "example.com/team"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
POOL = "karpenter.sh/nodepool"


def shared() -> dict[str, Any]:
    """A pool whose nodes have one of two values of a label."""
    found = pool("shared", only={"cpu": ["2"]})
    rules = found["spec"]["template"]["spec"]["requirements"]
    rules.append({"key": TEAM, "operator": "In", "values": ["x", "y"]})
    return found


def half() -> dict[str, Any]:
    """A pool of which half is on-demand."""
    found = pool("half", only={"cpu": ["2"]})
    found["metadata"]["annotations"] = {ON_DEMAND_PERCENTAGE: "50"}
    return found


def on(name: str, replicas: int, of_pool: str) -> Any:
    """A Deployment whose pods each fill a node of a pool."""
    made: Any = deployment(name, replicas, 5)
    spec = made["spec"]["template"]["spec"]
    spec["nodeSelector"] = {POOL: of_pool}
    spec["containers"][0]["resources"]["requests"]["cpu"] = "1200m"
    return made


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, Client]]:
    scenario = Scenario(cluster=CLUSTER, groups=(), workloads=())
    state = tmp_path_factory.mktemp("labels")
    options = {"aws": ["--schedule-speed", "0"], "kubernetes": ["--node-join", "1"]}
    with (
        Sandbox.start(scenario, state_dir=state, parameters=PARAMETERS, options=options) as running,
        Client(KubeConfig.from_file(running.kubeconfig), trust_env=False) as opened,
    ):
        prepare(running)
        store(running, node_class(), shared(), half())
        yield running, opened
        check_calls_are_granted(running)
        check_promises(running)


def test_nodes_have_the_label_values_and_the_capacity_types_that_were_planned(
    kube: tuple[Sandbox, Client],
) -> None:
    sandbox, client = kube
    apart = on("apart", 2, "shared")
    term = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": TEAM}
    apart["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    create_workloads([apart, on("web", 4, "half")], sandbox.write_kubeconfig())

    def all_run() -> bool:
        assert run(sandbox) == []
        return len(bound(client)) == 6

    assert until(all_run)
    of_pool: dict[str, list[dict[str, str]]] = {"shared": [], "half": []}
    for one in nodes(client):
        assert one.metadata
        labels = one.metadata.labels or {}
        of_pool[labels[POOL]].append(labels)
    assert {labels[TEAM] for labels in of_pool["shared"]} == {"x", "y"}
    types = Counter(labels[CAPACITY_TYPE] for labels in of_pool["half"])
    assert types == {"spot": 2, "on-demand": 2}
