"""The contract of the ClusterStates Protocol: the fake of provisioning and the adapter keep it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leeway.clock import SystemClock
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState, ClusterStates
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.fakes.cluster_states import ClusterStatesInMemory
from tests.provisioning import cluster_documents
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

NUMBERS = count(900)
NOWHERE = {"nodeSelector": {"leeway.sh/test": "no-such-node"}}


@dataclass(frozen=True)
class Case:
    """A cluster with one node. The callables change the cluster: `run` puts a pod on the node,
    `wait` adds a pod that no node holds, `until` waits for what a cluster does by itself."""

    states: ClusterStates
    instance: str
    node: str
    wait: Callable[[str], object]
    run: Callable[[str], object]
    delete: Callable[[str], object]
    fail: Callable[[int], object]
    until: Callable[[Callable[[], object]], object]

    def state(self) -> ClusterState:
        return self.states.read("prod")

    def waiting(self) -> list[str]:
        return [one.pod.name for one in self.state().waiting]

    def used(self) -> int:
        """The pods on the node."""
        (found,) = [each for each in self.state().nodes if each.name == self.node]
        return len(found.pods)


def check_at_once(condition: Callable[[], object]) -> object:
    value = condition()
    assert value
    return value


@pytest.fixture(params=["fake", "adapter"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """The same cluster behind the fake and behind the adapter."""
    if request.param == "fake":
        yield fake_case()
    else:
        yield from adapter_case(
            request.getfixturevalue("live"), request.getfixturevalue("kubeconfig")
        )


def fake_case() -> Case:
    fake = ClusterStatesInMemory(SystemClock())
    fake.put("prod", "Node", cluster_documents.node("node-1", 1))

    def put(name: str, node: str) -> None:
        document = cluster_documents.pod(name, node)
        document["metadata"]["namespace"] = "default"
        fake.put("prod", "Pod", document)

    def fail(status: int) -> None:
        if status == 0:
            fake.error = None
        else:
            fake.error = ClusterRefused("403") if status == 403 else ClusterUnavailable("503")

    return Case(
        fake,
        f"i-{1:017x}",
        "node-1",
        wait=lambda name: put(name, ""),
        run=lambda name: put(name, "node-1"),
        delete=lambda name: fake.remove("prod", "Pod", f"default/{name}"),
        fail=fail,
        until=check_at_once,
    )


def adapter_case(live: Live, kubeconfig: Path) -> Iterator[Case]:
    live.fail_with()
    connection = kubeconfig_connection(kubeconfig)
    number = next(NUMBERS)
    (node,) = live.add_nodes(number)

    def create(name: str, **spec: Any) -> None:
        live.create(PODS, bare_pod(name, terminationGracePeriodSeconds=0, **spec))

    def delete(name: str) -> None:
        live.api.request("DELETE", f"{PODS}/{name}").raise_for_status()

    def fail(status: int) -> None:
        live.fail_with(*([{"verb": "list", "status": status}] if status else []))

    yield Case(
        KubernetesClusterStates(lambda _: connection, SystemClock()),
        f"i-{number - 1:017x}",
        node,
        wait=lambda name: create(name, **NOWHERE),
        run=lambda name: create(name, nodeName=node),
        delete=delete,
        fail=fail,
        until=live.until,
    )
    live.fail_with()
    for pod in live.pods():
        live.api.request("DELETE", f"{PODS}/{pod['metadata']['name']}")
    connection.close()


def test_a_node_has_joined_with_its_instance(case: Case) -> None:
    assert case.state().joined[case.instance] == case.node
    assert case.node in {node.name for node in case.state().nodes}


def test_each_read_has_the_pods_that_wait_then(case: Case) -> None:
    assert case.waiting() == []
    case.wait("first")
    assert case.waiting() == ["default/first"]
    case.wait("second")
    assert case.waiting() == ["default/first", "default/second"]
    case.delete("first")
    assert case.waiting() == ["default/second"]


def test_a_pod_on_a_node_uses_it_until_it_is_gone(case: Case) -> None:
    before = case.used()
    case.run("web")
    case.until(lambda: case.used() == before + 1)
    case.delete("web")
    case.until(lambda: case.used() == before)
    assert case.waiting() == []


def test_a_failed_read_is_an_error_and_the_next_one_is_complete(case: Case) -> None:
    case.wait("early")
    case.state()
    for status, error in ((503, ClusterUnavailable), (403, ClusterRefused)):
        case.fail(status)
        with pytest.raises(error):
            case.state()
    case.wait("late")
    case.fail(0)
    assert case.waiting() == ["default/early", "default/late"]
