"""The contract of the Cluster port: the fake of the retirements' tests and the adapter keep it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import pytest
from leeway.ports.kubernetes import Cluster, Marks
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.pods import Meaning, read_answer

from tests.fakes.actions import ActionLog
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import FakeCluster
from tests.fakes.groups import FakeGroups
from tests.fakes.reports import ReportLog
from tests.retirement.fake_node import node_with
from tests.retirement.retirements import FACTS
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, budget

NUMBERS = count(700)
MARKS = Marks("rebalance", 1, None)


@dataclass(frozen=True)
class Case:
    """A node with one pod. `until` waits for a condition: a cluster takes some time, the fake
    none; `block` puts a budget before the pod that allows no eviction."""

    port: Cluster
    instance: str
    node: str
    until: Callable[[Callable[[], object]], object]
    block: Callable[[], None]

    @property
    def pod(self) -> Pod:
        (pod,) = [pod for pod in self.port.pods_on(self.node) if pod.name.startswith("web")]
        return pod

    def is_gone(self, uid: str) -> bool:
        return uid not in {pod.uid for pod in self.port.pods_on(self.node)}


def check_at_once(condition: Callable[[], object]) -> object:
    value = condition()
    assert value
    return value


@pytest.fixture(params=["fake", "adapter"])
def case(request: pytest.FixtureRequest) -> Case:
    """The same node behind the fake and behind the adapter."""
    return case_of(request)


@pytest.fixture(params=["fake", "fake of one node", "adapter"])
def drain_case(request: pytest.FixtureRequest) -> Case:
    """The same, and the fake that the executor's tests drain with threads."""
    return case_of(request)


def case_of(request: pytest.FixtureRequest) -> Case:
    if request.param == "fake of one node":
        pod = Pod("default", "web", "u-1", "Running", 0, None)
        return Case(node_with(pod), FACTS.instance, "node-1", check_at_once, lambda: None)
    if request.param == "fake":
        groups = FakeGroups(ActionLog(FakeClock()))
        pod = Pod("default", "web", "u-1", "Running", 0, None)
        fake = FakeCluster(groups, ReportLog(), pods=[pod], blocks=False)

        def block() -> None:
            fake.blocks = True

        return Case(fake, FACTS.instance, "node-1", check_at_once, block)
    live: Live = request.getfixturevalue("live")
    adapter: Cluster = request.getfixturevalue("cluster")
    number = next(NUMBERS)
    (node,) = live.add_nodes(number)
    name = f"web-{number}"
    body = bare_pod(name, nodeName=node, terminationGracePeriodSeconds=0)
    body["metadata"]["labels"] = {"app": name}
    live.create(PODS, body)
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")

    def block_pod() -> None:
        live.create(
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            budget(name, name, minAvailable=1),
        )

    return Case(adapter, f"i-{number - 1:017x}", node, live.until, block_pod)


def test_a_node_is_found_by_its_name_and_by_its_instance(case: Case) -> None:
    for found in (case.port.node(case.node), case.port.node_of(case.instance, ())):
        assert found is not None
        assert found.name == case.node
        assert found.runs_on(case.instance)
        assert found.ready


def test_an_unknown_instance_and_an_unknown_name_have_no_node(case: Case) -> None:
    assert case.port.node_of("i-0dddddddddddddddd", ()) is None
    assert case.port.node("never-was") is None


def test_a_cordon_marks_a_node_and_a_release_unmarks_it_once(case: Case) -> None:
    case.port.cordon(case.node, MARKS)
    case.port.cordon(case.node, MARKS)
    marked = case.port.node(case.node)
    assert marked is not None
    assert marked.marked
    assert case.port.release(case.node)
    released = case.port.node(case.node)
    assert released is not None
    assert not released.marked
    assert not case.port.release(case.node)


def test_an_evicted_pod_ends(drain_case: Case) -> None:
    pod = drain_case.pod
    assert read_answer(drain_case.port.evict(pod, None)).meaning is Meaning.ACCEPTED
    drain_case.until(lambda: drain_case.is_gone(pod.uid))


def test_a_budget_blocks_an_eviction_and_not_a_deletion(case: Case) -> None:
    case.block()
    pod = case.pod
    case.until(lambda: read_answer(case.port.evict(pod, None)).meaning is Meaning.BLOCKED)
    assert not case.is_gone(pod.uid)
    assert not case.port.eviction_is_granted(pod)
    assert read_answer(case.port.delete(pod, None)).meaning is Meaning.ACCEPTED
    case.until(lambda: case.is_gone(pod.uid))


def test_a_feed_lists_the_pods_of_the_node(drain_case: Case) -> None:
    with drain_case.port.watch_pods(drain_case.node) as feed:
        assert drain_case.pod.uid in {pod.uid for pod in feed.pods(10)}
        assert drain_case.pod.uid in {pod.uid for pod in feed.refresh(10)}
