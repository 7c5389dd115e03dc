"""A cluster without any node comes to life from pending pods: watch_pods, the queue,
provision_nodes and admit_node as deployed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.scenario import namespace
from lightkube import Client
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Node, Pod

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Environment, Journal, kube_client, until
from tests.end_to_end.promises import check_promises
from tests.end_to_end.provisioning import (
    CLUSTER,
    FUNCTION,
    ROLE,
    bound,
    end_time_to_join,
    fire_watch,
    instances,
    sandbox_with,
    watch,
)
from tests.end_to_end.rights import granted, used
from tests.launch.pools import GROUP_TERMS, SUBNET_TERMS, node_class, pool

MANIFESTS = Path(__file__).parents[1] / "manifests" / "users"
GPU = "nvidia.com/gpu"
STORAGE = "ephemeral-storage"
VOLUME = 100  # GiB
STORM = 20
"""Nodes that a scale-up needs. EC2 interrupts half of them while they start."""
MOST = STORM + STORM // 2
"""The limit of their pool."""
ADMIT_NODE = "leeway-admit-node"


def template() -> dict[str, Any]:
    """The AWSNodeTemplate that the Provisioner refers to."""
    volume = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": f"{VOLUME}Gi"}}
    return {
        "apiVersion": "karpenter.k8s.aws/v1alpha1",
        "kind": "AWSNodeTemplate",
        "metadata": {"name": "default"},
        "spec": {
            "subnetSelector": SUBNET_TERMS[0]["tags"],
            "securityGroupSelector": GROUP_TERMS[0]["tags"],
            "instanceProfile": ROLE,
            "blockDeviceMappings": [volume],
        },
    }


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text())
    return document


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A cluster without nodes and groups, with two pools, that watch_pods watches."""
    web = pool(only={"cpu": ["2", "4", "8"]})
    own = node_class() | {"metadata": {"name": "web"}}
    web["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "web"
    # Without the taint, pods of other tests would use up a part of the limit.
    stormy = pool(
        "stormy",
        capacity=["spot"],
        only={"cpu": ["2"]},
        limits={"nodes": MOST},
        template={"taints": [{"key": "stormy", "effect": "NoSchedule"}]},
    )
    stormy["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "web"
    manifests = (web, own, stormy, read("provisioner-gpu.yaml"), template())
    with sandbox_with(tmp_path_factory.mktemp("nothing"), *manifests) as (running, _):
        found = Environment(running)
        watch(found)
        yield found


@pytest.fixture
def kube(env: Environment) -> Iterator[Client]:
    with kube_client(env.sandbox) as opened:
        yield opened
        check_promises(env.sandbox)


def first(seen: Journal, kind: str, *texts: str, **fields: Any) -> float:
    """The time of the first entry of a kind whose content has all these texts."""
    found = [e["at"] for e in seen.of(kind, **fields) if all(text in str(e) for text in texts)]
    assert found, (kind, texts, fields)
    return float(min(found))


def test_a_pending_pod_brings_a_cluster_without_nodes_to_life(
    env: Environment, kube: Client
) -> None:
    assert not list(kube.list(Node))
    created = time.time()
    create_workloads([deployment("web", 12, 5)], env.sandbox.write_kubeconfig())
    until(lambda: len(bound(kube)) == 12)
    seen = env.since(created)
    order = {
        "a pod is created": first(seen, "pod-created", "web"),
        "the fleet is requested": first(seen, "fleet"),
        "the node joins": first(seen, "node-joined"),
        "the node is Ready": first(seen, "node-ready"),
        "a pod is bound": first(seen, "pod-bound", "web"),
        "a pod runs": first(seen, "pod-running", "web"),
    }
    print({what: round(at - created, 2) for what, at in order.items()})
    assert list(order.values()) == sorted(order.values()), order
    # The sandbox reads the lines of a function some time after they were written.
    assert first(seen, "logs", "The scheduler found no node for") > order["a pod is created"]
    groups = [m["group"] for e in seen.of("queue-batch", function=FUNCTION) for m in e["messages"]]
    assert set(groups) == {CLUSTER}
    assert len(seen.of("fleet")) == 1
    launched = instances(env.sandbox)
    assert len(list(kube.list(Node))) == len(launched)
    assert used(env.sandbox, "WatchPodsRole") == {"watch pods"} <= granted("leeway-watch")


def admissions(env: Environment, instance: str) -> list[dict[str, Any]]:
    """The outcomes of the admission of an instance."""
    events = env.since(0).of("put-events", source="leeway")
    details = [e["detail"] for e in events if "Node" in e["detail_type"]]
    return [one for one in details if one.get("instance") == instance and "result" in one]


def node_of(kube: Client, instance: str) -> str:
    """The name of the Node of an instance, empty if it has none."""
    found = [n for n in kube.list(Node) if n.spec and str(n.spec.providerID).endswith(instance)]
    return str((found[0].metadata or ObjectMeta()).name) if found else ""


def runs(kube: Client, name: str) -> bool:
    pod = kube.get(Pod, name, namespace="kubeflow-user")
    return bool(pod.status and pod.status.phase == "Running")


def new_instance(env: Environment, before: list[str]) -> str:
    """The only instance that has been launched since."""
    (found,) = until(lambda: set(instances(env.sandbox)) - set(before))
    return str(found)


def test_a_notebook_gets_a_gpu_spot_node_with_the_accelerated_ami(
    env: Environment, kube: Client
) -> None:
    before, created = instances(env.sandbox), time.time()
    objects = [namespace("kubeflow-user"), read("notebook-gpu-pod.yaml")]
    create_workloads(objects, env.sandbox.write_kubeconfig())
    until(lambda: runs(kube, "test-0"))
    instance = new_instance(env, before)
    ec2 = client("ec2", env.sandbox.aws_url)
    shown = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    assert (shown["InstanceType"], shown["InstanceLifecycle"]) == ("p2.xlarge", "spot")
    (image,) = ec2.describe_images(ImageIds=[shown["ImageId"]])["Images"]
    assert "nvidia" in image["Name"]
    (outcome,) = until(lambda: admissions(env, instance))
    assert outcome["result"] == "admitted"
    seen = env.since(created)
    name = node_of(kube, instance)
    admitted = [e["at"] for e in seen.of("put-events") if e["detail"].get("instance") == instance]
    order = [
        first(seen, "fleet"),
        first(seen, "node-joined", node=name),
        first(seen, "node-ready", node=name),
        first(seen, "node-devices", node=name),
        admitted[0],
    ]
    assert order == sorted(order)
    status = kube.get(Node, name).status
    assert status is not None
    assert status.capacity is not None
    assert status.capacity[STORAGE] == f"{VOLUME}Gi"
    volumes = [v["Ebs"]["VolumeId"] for v in shown["BlockDeviceMappings"]]
    sizes = [v["Size"] for v in ec2.describe_volumes(VolumeIds=volumes)["Volumes"]]
    assert sizes == [VOLUME]


def test_a_missing_device_plugin_is_named_as_the_cause_and_nothing_more_is_launched(
    env: Environment, kube: Client
) -> None:
    before, created = instances(env.sandbox), time.time()
    env.sandbox.faults("kubernetes", [{"noDevices": True}])
    pod = read("notebook-gpu-pod.yaml")
    pod["metadata"]["name"] = "test-1"
    # More than the 20 GiB of a node without blockDeviceMappings.
    pod["spec"]["containers"][0]["resources"]["requests"][STORAGE] = "60Gi"
    create_workloads([pod], env.sandbox.write_kubeconfig())
    instance = new_instance(env, before)
    name = until(lambda: node_of(kube, instance))
    until(lambda: env.since(created).of("node-ready", node=name))
    fire_watch(env)
    end_time_to_join(env.sandbox, [instance])
    (outcome,) = until(lambda: admissions(env, instance))
    assert outcome["result"] == "not-ready"
    assert outcome["reason"]["code"] == "DeviceNotAllocatable"
    assert "the NVIDIA device plugin does not run on the node" in outcome["reason"]["message"]

    def told() -> list[Event]:
        events = kube.list(Event, namespace="default")
        return [one for one in events if one.involvedObject.name == name]

    assert until(lambda: [e for e in told() if "device plugin" in str(e.message)])
    logged = [str(e["line"]) for e in env.since(created).of("logs", function=ADMIT_NODE)]
    assert any("DeviceNotAllocatable" in line for line in logged)
    assert new_instance(env, before) == instance
    env.sandbox.faults("kubernetes", [])
    until(lambda: runs(kube, "test-1"))
    assert new_instance(env, before) == instance


def test_a_scale_up_whose_new_nodes_are_interrupted_ends_with_all_pods_running(
    env: Environment, kube: Client
) -> None:
    """Half of the nodes are interrupted: some as soon as they are launched, the others when they
    have just joined. Each pod gets one other node, and the pool stays within its limit."""
    before, since = set(instances(env.sandbox)), time.time()
    wanted: Any = deployment("stormy", STORM, 1)
    spec = wanted["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"karpenter.sh/nodepool": "stormy"}
    spec["tolerations"] = [{"key": "stormy", "operator": "Exists"}]
    spec["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    create_workloads([wanted], env.sandbox.write_kubeconfig())
    until(lambda: len(set(instances(env.sandbox)) - before) == STORM)
    interrupted = sorted(set(instances(env.sandbox)) - before)[: STORM // 2]
    env.sandbox.interrupt(interrupted[::2], late=60)
    late = interrupted[1::2]
    until(lambda: {e["instance"] for e in env.since(since).of("node-joined")} & {*late})
    env.sandbox.interrupt(late, late=60)

    def all_run() -> bool:
        """A later node may have the name of one that is gone."""
        names = {node_of(kube, one) for one in interrupted} - {""}
        running = {pod: node for pod, node in bound(kube).items() if pod.startswith("stormy-")}
        return len(running) == STORM and not names & set(running.values())

    until(all_run, 90)
    fleets = env.since(since).of("fleet")
    assert len({i for e in fleets for i in e["instances"]}) == MOST
