"""NodeOverlays deployed: EC2 launches by their prices, and a node is initialized when its device
plugin offers what they promise."""

from collections.abc import Iterator
from typing import Any

import pytest
from leeway.selection.labels import INITIALIZED, INSTANCE_TYPE, REGISTERED
from leeway_sandbox.provisioning import create_workloads
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.environment import until
from tests.end_to_end.provisioning import (
    CLUSTER,
    PARAMETERS,
    bound,
    instances,
    nodes,
    prepare,
    run,
    store,
)
from tests.end_to_end.rights import check_calls_are_granted
from tests.launch.pools import document, node_class, pool

FUSE = "smarter-devices/fuse"
COVERED = "m6i.large"
"""A type that is not the cheapest one."""


@pytest.fixture
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster without nodes, with a pool and two overlays."""
    scenario = Scenario(cluster=CLUSTER, groups=(), workloads=(daemonset("cni"),))
    state = tmp_path_factory.mktemp("overlaid")
    options = {"aws": ["--schedule-speed", "0"], "kubernetes": ["--node-join", "1"]}
    with Sandbox.start(
        scenario, state_dir=state, parameters=PARAMETERS, options=options
    ) as running:
        prepare(running)
        covered = {"key": INSTANCE_TYPE, "operator": "In", "values": [COVERED]}
        store(
            running,
            pool(capacity=["on-demand"], only={"cpu": ["2"]}),
            node_class(),
            document("NodeOverlay", "fuse", {"requirements": [], "capacity": {FUSE: 1}}),
            document("NodeOverlay", "covered", {"requirements": [covered], "price": "0.001"}),
        )
        yield running
        check_calls_are_granted(running)


@pytest.fixture
def kube(sandbox: Sandbox) -> Iterator[Client]:
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as opened:
        yield opened


def labels(kube: Client) -> dict[str, str]:
    (found,) = nodes(kube)
    return dict(found.metadata.labels or {}) if found.metadata else {}


def test_a_promised_resource_gets_a_node_that_waits_for_its_device_plugin(
    sandbox: Sandbox, kube: Client
) -> None:
    workload: Any = deployment("builder", 1, 5)
    resources = workload["spec"]["template"]["spec"]["containers"][0]["resources"]
    for field in ("requests", "limits"):
        resources[field] = {**resources.get(field, {}), FUSE: "1"}
    create_workloads([workload], sandbox.write_kubeconfig())
    assert until(lambda: len(list(kube.list(Pod, namespace="default"))) == 1)
    assert run(sandbox) == []
    launched = instances(sandbox)
    assert len(launched) == 1
    assert until(lambda: bool(nodes(kube)) and labels(kube).get(REGISTERED) == "true")
    assert labels(kube)[INSTANCE_TYPE] == COVERED, "EC2 itself would choose a cheaper type"
    for _ in range(3):
        assert run(sandbox) == []
    assert instances(sandbox) == launched, "the node that starts has a place for the pod"
    assert INITIALIZED not in labels(kube)
    assert not bound(kube)
    offer(kube)
    assert until(lambda: len(bound(kube)) == 1)
    assert until(lambda: labels(kube).get(INITIALIZED) == "true")
    assert run(sandbox) == []
    assert instances(sandbox) == launched


def offer(kube: Client) -> None:
    """Offer the resource, as a device plugin does."""
    (node,) = nodes(kube)
    assert node.metadata
    patch = {"status": {field: {FUSE: "1"} for field in ("capacity", "allocatable")}}
    kube.patch(Node.Status, str(node.metadata.name), patch, patch_type=PatchType.MERGE)
