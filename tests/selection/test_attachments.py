"""The number of EBS volumes that a node attaches limits its pods with volumes."""

from typing import Any

import pytest
from leeway.selection.labels import INSTANCE_TYPE
from leeway.selection.offers.allocatable import AmiFamily, NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool
from leeway.selection.reading.cluster_objects import existing_nodes, pending_pods
from leeway.selection.reading.objects import BadObject
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import EBS_VOLUMES

CLASS = {
    "kind": "StorageClass",
    "metadata": {"name": "gp3"},
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
FILES = {**CLASS, "metadata": {"name": "efs"}, "provisioner": "efs.csi.aws.com"}


def stateful(replicas: int, *classes: str) -> dict[str, Any]:
    templates = [
        {"metadata": {"name": f"data-{i}"}, "spec": {"storageClassName": name}}
        for i, name in enumerate(classes)
    ]
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "10m"}}}]}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "template": {"spec": pod},
            "volumeClaimTemplates": templates,
        },
    }


def only(name: str) -> NodePool:
    return NodePool("one", Requirements([Requirement.of(INSTANCE_TYPE, "In", [name])]))


@pytest.mark.parametrize(
    ("name", "family", "volumes"),
    [
        ("m5.xlarge", AmiFamily.AL2023, 25),  # 27 beside the first interface; root; second one
        ("m5.xlarge", AmiFamily.BOTTLEROCKET, 24),
        ("i3en.24xlarge", AmiFamily.AL2023, 17),  # its disks take attachments too
        ("m7i.large", AmiFamily.AL2023, 31),  # dedicated to volumes
    ],
)
def test_attachable_volumes_exclude_the_root_volume_and_a_second_interface(
    catalog: Catalog, name: str, family: AmiFamily, volumes: int
) -> None:
    table = catalog.for_node_class(NodeClass(family=family))
    assert table.type(catalog.index[name]).allocatable.of(EBS_VOLUMES) == volumes


def test_a_stateful_set_gets_as_many_nodes_as_its_volumes_need(catalog: Catalog) -> None:
    waiting = pending_pods([stateful(52, "gp3"), CLASS], {})
    plan = pack(waiting, Supply([only("m5.xlarge")], catalog))
    assert sorted(len(node.pods) for node in plan.launches)[-1] <= 25
    assert len(plan.launches) == 3


def test_volumes_of_other_drivers_do_not_count(catalog: Catalog) -> None:
    waiting = pending_pods([stateful(52, "efs"), FILES], {})
    assert len(pack(waiting, Supply([only("m5.xlarge")], catalog)).launches) == 1


def test_every_volume_of_a_pod_counts() -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "more"}}
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": "ebs.csi.aws.com"}},
    }
    bound = {**claim, "spec": {"volumeName": "pv"}}
    document = stateful(1, "gp3", "gp3")
    document["spec"]["template"]["spec"]["volumes"] = [
        {"name": "more", "persistentVolumeClaim": {"claimName": "more"}},
        {"name": "old", "awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"name": "empty", "emptyDir": {}},
    ]
    (pod,) = pending_pods([document, bound, volume, CLASS], {})
    assert pod.spec.requests.of(EBS_VOLUMES) == 4


def node(*drivers: Any) -> list[dict[str, Any]]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "50"}
    status = {"allocatable": room, "capacity": room}
    found = {"kind": "Node", "metadata": {"name": "here"}, "status": status}
    return [
        found,
        {"kind": "CSINode", "metadata": {"name": "here"}, "spec": {"drivers": list(drivers)}},
    ]


def test_an_existing_node_attaches_as_many_volumes_as_its_driver_reports(catalog: Catalog) -> None:
    there = node({"name": "ebs.csi.aws.com", "allocatable": {"count": 2}})
    waiting = pending_pods([stateful(3, "gp3"), CLASS], {})
    plan = pack(waiting, Supply([only("m5.xlarge")], catalog), existing_nodes(there))
    assert [len(placement.pods) for placement in plan.existing] == [2]
    assert [len(launch.pods) for launch in plan.launches] == [1]


def test_an_existing_node_without_a_reported_limit_attaches_all_volumes(catalog: Catalog) -> None:
    waiting = pending_pods([stateful(3, "gp3"), CLASS], {})
    plan = pack(waiting, Supply([only("m5.xlarge")], catalog), existing_nodes(node()))
    assert [len(placement.pods) for placement in plan.existing] == [3]


@pytest.mark.parametrize(
    ("driver", "path"),
    [
        ("x", ()),
        ({"name": "ebs.csi.aws.com", "allocatable": {"count": "a"}}, ("allocatable", "count")),
    ],
)
def test_invalid_drivers_are_rejected_with_their_path(driver: Any, path: tuple[str, ...]) -> None:
    with pytest.raises(BadObject, match="expected a") as caught:
        existing_nodes(node(driver))
    assert caught.value.path == (1, "spec", "drivers", 0, *path)


SHARED = [
    {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {"volumeName": "pv"}},
    {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": "ebs.csi.aws.com"}},
    },
]


def sharing(name: str = "web", **spec: Any) -> dict[str, Any]:
    """A pod with the claim that others have too."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return {
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c"}], "volumes": volumes, **spec},
    }


def test_a_claim_that_many_pods_share_is_attached_once(catalog: Catalog) -> None:
    template = {"spec": sharing()["spec"]}
    web = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 50, "template": template},
    }
    waiting = pending_pods([web, *SHARED], {})
    assert [p.spec.requests.of(EBS_VOLUMES) for p in waiting] == [1] + [0] * 49
    assert len(pack(waiting, Supply([only("m5.xlarge")], catalog)).launches) == 1
    apart = pending_pods([sharing("a"), sharing("b"), *SHARED], {})
    assert [p.spec.requests.of(EBS_VOLUMES) for p in apart] == [1, 0]


def test_a_claim_of_several_running_pods_is_attached_once() -> None:
    there = [*node(), sharing("a", nodeName="here"), sharing("b", nodeName="here"), *SHARED]
    (found,) = existing_nodes(there)
    assert sum(p.requests.of(EBS_VOLUMES) for p in found.pods) == 1
