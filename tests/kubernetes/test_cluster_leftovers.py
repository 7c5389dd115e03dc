"""Leftovers of terminated instances: one contract for the cluster and for the fake in memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import pytest
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.reconciliation.clean_up import ClusterLeftovers
from leeway.selection.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    LAUNCHED,
    RESERVATION_ID,
    RESERVATION_TYPE,
)

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.sandbox.kubernetes.live import Live, bare_pod

NUMBERS = count(801)


@dataclass
class Case:
    """One implementation, and the actions of other clients of the cluster."""

    port: ClusterLeftovers
    add_node: Callable[[], str]
    change_node: Callable[[str], object]
    label_node: Callable[[str, dict[str, str]], object]
    stop_node: Callable[[str], object]
    attach_volume: Callable[[str], object]

    def read(self, name: str) -> Node:
        node = self.port.node(name)
        assert node is not None
        return node


def in_memory() -> Case:
    fake = LeftoversInMemory()

    def add_node() -> str:
        name = f"node-{next(NUMBERS)}"
        provider_id = f"aws:///us-east-1a/i-{next(NUMBERS):017x}"
        fake.by_name[name] = Node(name, f"uid-{name}", provider_id, False, True, {}, version="1")
        return name

    def label_node(name: str, labels: dict[str, str]) -> None:
        known = fake.by_name[name]
        fake.by_name[name] = replace(known, labels={**known.labels, **labels})

    def stop_node(name: str) -> None:
        fake.by_name[name] = replace(fake.by_name[name], ready=False)

    def attach_volume(name: str) -> None:
        fake.volumes[name] = [Attachment("pv-1", "default/data")]

    return Case(fake, add_node, fake.write, label_node, stop_node, attach_volume)


def in_a_cluster(live: Live, cluster: HttpCluster) -> Case:
    def add_node() -> str:
        (name,) = live.add_nodes(next(NUMBERS))
        return name

    def change_node(name: str) -> None:
        body = {"metadata": {"annotations": {"changed": str(next(NUMBERS))}}}
        assert live.patch(f"/api/v1/nodes/{name}", body).status_code == 200

    def label_node(name: str, labels: dict[str, str]) -> None:
        body = {"metadata": {"labels": labels}}
        assert live.patch(f"/api/v1/nodes/{name}", body).status_code == 200

    def stop_node(name: str) -> None:
        node = live.api.get(f"/api/v1/nodes/{name}").json()
        live.report(node["spec"]["providerID"].rsplit("/", 1)[-1], "terminated")
        live.until(lambda: not live.is_ready(name))

    def attach_volume(name: str) -> None:
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        live.create("/api/v1/namespaces/default/persistentvolumeclaims", claim)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        pod = bare_pod("contract", nodeSelector={HOSTNAME: name}, volumes=volumes)
        live.create("/api/v1/namespaces/default/pods", pod)
        live.until(lambda: cluster.attachments_on(name))

    return Case(cluster, add_node, change_node, label_node, stop_node, attach_volume)


@pytest.fixture(params=["cluster", "memory"])
def case(request: pytest.FixtureRequest, live: Live, cluster: HttpCluster) -> Case:
    return in_memory() if request.param == "memory" else in_a_cluster(live, cluster)


def test_only_an_unchanged_node_is_tainted_or_deleted(case: Case) -> None:
    name = case.add_node()
    before = case.read(name)
    case.change_node(name)
    assert not case.port.mark_out_of_service(before)
    assert not case.port.delete_node(before)
    other = replace(case.read(name), uid="another-uid")
    assert not case.port.mark_out_of_service(other)
    assert not case.port.delete_node(other)
    tainted = case.read(name)
    assert case.port.mark_out_of_service(tainted)
    assert not case.port.delete_node(tainted), "the taint has changed the node"
    assert case.port.delete_node(case.read(name))
    assert case.port.node(name) is None


def test_a_node_that_does_not_exist_is_neither_tainted_nor_deleted(case: Case) -> None:
    absent = Node("ip-10-99-99-98.ec2.internal", "some-uid", "", True, False, {}, version="1")
    assert case.port.node(absent.name) is None
    assert not case.port.mark_out_of_service(absent)
    assert not case.port.delete_node(absent)


def test_a_node_is_labelled_as_on_demand_only_if_it_was_reserved(case: Case) -> None:
    plain, reserved = case.add_node(), case.add_node()
    labels = {CAPACITY_TYPE: "reserved", RESERVATION_ID: "cr-1", RESERVATION_TYPE: "default"}
    case.label_node(reserved, labels)
    other = replace(case.read(reserved), uid="another-uid")
    assert not case.port.label_on_demand(other)
    for name in (plain, reserved):
        before = case.read(name).labels
        assert case.port.label_on_demand(case.read(name))
        after = case.read(name).labels
        assert not {RESERVATION_ID, RESERVATION_TYPE} & after.keys()
        if name == plain:
            assert after == before
        else:
            assert after[CAPACITY_TYPE] == "on-demand"


def test_only_nodes_that_are_not_ready_are_listed(case: Case) -> None:
    ready, stopped = case.add_node(), case.add_node()
    case.stop_node(stopped)
    listed = {node.name: node for node in case.port.unready()}
    assert listed[stopped].provider_id == case.read(stopped).provider_id
    assert ready not in listed


def test_only_launched_nodes_that_are_not_initialized_are_listed(case: Case) -> None:
    other, starts, cleared, serves = (case.add_node() for _ in range(4))
    case.label_node(starts, {LAUNCHED: "true"})
    case.label_node(cleared, {LAUNCHED: "true", INITIALIZED: "false"})
    case.label_node(serves, {LAUNCHED: "true", INITIALIZED: "true"})
    listed = {node.name: node for node in case.port.uninitialized()}
    assert {starts, cleared} <= listed.keys()
    assert listed[starts].provider_id == case.read(starts).provider_id
    assert not {other, serves} & listed.keys()


def test_the_names_of_all_nodes_are_listed(case: Case) -> None:
    before = case.port.names()
    ready, stopped = case.add_node(), case.add_node()
    case.stop_node(stopped)
    assert case.port.names() - before == {ready, stopped}


def test_attached_volumes_are_listed_by_node(case: Case) -> None:
    name, other = case.add_node(), case.add_node()
    case.attach_volume(name)
    (attachment,) = case.port.attachments_on(name)
    assert attachment == Attachment(attachment.volume, "default/data")
    assert case.port.attachments_on(other) == []
    assert name in case.port.nodes_with_volumes()
    assert other not in case.port.nodes_with_volumes()
