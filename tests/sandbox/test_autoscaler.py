"""The node autoscaler: its decisions, and its effect in a running sandbox."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from leeway_sandbox.autoscaler import Group, as_launched, plan, read_state
from leeway_sandbox.kubernetes.controllers.scheduling_info import NodeInfo, PodInfo, read_pod_info
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group as WorldGroup
from leeway_sandbox.scenario import Scenario, deployment, pod_spec
from lightkube import Client, KubeConfig
from lightkube.codecs import from_dict
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Node


def _node(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "old",
            "labels": {"kubernetes.io/hostname": "old", "team": "shop"},
        },
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _group(name: str = "spot", *, desired: int = 1, maximum: int = 10, launching: int = 0) -> Group:
    return Group(name, desired, maximum, launching, as_launched(_node()))


def _object(number: int, cpu: str = "500m", priority: int = 0, **spec: Any) -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": f"p-{number}", "uid": str(number), "labels": {"app": "web"}},
        "spec": {"containers": [container], "priority": priority, **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def _waiting(number: int, nominated: str = "", **details: Any) -> dict[str, Any]:
    """A pending pod, which can have a nominated node."""
    nowhere = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = _object(number, **details)
    pod["status"] |= {"conditions": [nowhere]}
    if nominated:
        pod["status"]["nominatedNodeName"] = nominated
    return pod


def _pod(number: int, **details: Any) -> PodInfo:
    return read_pod_info(_object(number, **details))


def _pods(count: int, **details: Any) -> list[PodInfo]:
    return [_pod(number, **details) for number in range(count)]


def test_as_many_nodes_are_added_as_the_pods_need() -> None:
    assert plan(_pods(9), [], [_group()]) == {"spot": 3}


def test_launching_nodes_and_free_room_are_counted() -> None:
    assert plan(_pods(9), [NodeInfo(_node())], [_group(launching=1)]) == {"spot": 1}


def test_above_the_maximum_of_a_group_the_next_group_is_raised() -> None:
    groups = [_group("first", desired=4, maximum=5), _group("second", maximum=2)]
    assert plan(_pods(12), [], groups) == {"first": 1, "second": 1}


@pytest.mark.parametrize(("priority", "added"), [(-10, {"spot": 1}), (-11, {})])
def test_pods_with_a_priority_below_the_cutoff_add_no_nodes(
    priority: int, added: Mapping[str, int]
) -> None:
    waiting = [_waiting(number, priority=priority) for number in range(4)]
    assert _added(waiting, []) == added


def _added(
    pods: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], launching: int = 0
) -> Mapping[str, int]:
    return plan(*read_state(pods, nodes), [_group(launching=launching)])


def test_a_preempting_pod_uses_the_room_of_its_victims() -> None:
    preempting = _waiting(1, nominated="old", cpu="2")
    terminating = _object(2, cpu="2", priority=-10, nodeName="old")
    assert _added([preempting, terminating], [_node()]) == {}
    again = _waiting(3, cpu="2", priority=-10)
    assert _added([preempting, terminating, again], [_node()]) == {"spot": 1}
    assert _added([preempting, again], [_node()]) == {"spot": 1}


def test_pods_with_anti_affinity_get_separate_nodes() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
    assert plan(_pods(3, cpu="100m", affinity=apart), [], [_group()]) == {"spot": 3}


def test_a_new_node_has_no_cordon_and_no_temporary_taints() -> None:
    marks = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "shop", "effect": "NoSchedule"},
    ]
    fresh = as_launched(_node(unschedulable=True, taints=marks))
    assert fresh["spec"] == {"taints": marks[1:]}
    assert fresh["metadata"]["labels"] == {"team": "shop"}


def test_a_cluster_grows_for_pending_pods_and_no_further(tmp_path: Path) -> None:
    scenario = Scenario("grows", (WorldGroup("spot", 1),))
    quick = {"kubernetes": ["--node-join", "1"], "aws": ["--schedule-speed", "0"]}
    with (
        Sandbox.start(scenario, state_dir=tmp_path, grow=True, options=quick) as sandbox,
        Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube,
    ):
        kube.create(from_dict(dict(deployment("default", "web", 6, pod_spec(cpu="600m")))))
        _until(lambda: _available(kube, "web") == 6)
        assert len(list(kube.list(Node))) == 2  # the maximum; three pods fit on each node
        scaling = client("autoscaling", sandbox.aws_url)
        [group] = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        assert group["DesiredCapacity"] == group["MaxSize"] == 2


def _available(kube: Client, name: str) -> int:
    status = kube.get(Deployment, name, namespace="default").status
    return (status.availableReplicas if status else 0) or 0


def _until(condition: Any, within: float = 90) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
