"""The translation of Kubernetes objects."""

from datetime import UTC, datetime
from typing import Any

import pytest
from leeway.kubernetes.objects import Node, NodeCondition, NodeStatus, Pod
from leeway.kubernetes.translate import to_node, to_pod
from leeway.ports.kubernetes_objects import Controller
from leeway.ports.kubernetes_objects import Pod as PodOfDrain
from msgspec import convert


@pytest.mark.parametrize(
    ("status", "ready"), [("True", True), ("False", False), ("Unknown", False), (None, False)]
)
def test_a_node_is_ready_if_its_condition_says_so(status: str | None, ready: bool) -> None:
    conditions = [NodeCondition(status="False", type="DiskPressure")]
    if status is not None:
        conditions.append(NodeCondition(status=status, type="Ready"))
    node = to_node(Node(status=NodeStatus(conditions=conditions)))
    assert node.ready is ready


def test_extended_resources_and_huge_pages_of_a_node_are_its_devices() -> None:
    allocatable = {
        "cpu": "1930m",
        "memory": "7Gi",
        "attachable-volumes-csi-ebs.csi.aws.com": "25",
        "smarter-devices/fuse": "20",
        "nvidia.com/gpu": "0",
        "hugepages-2Mi": "512Mi",
        "hugepages-1Gi": "0",
    }
    assert to_node(Node(status=NodeStatus(allocatable=allocatable))).devices == {
        "smarter-devices/fuse": 20,
        "nvidia.com/gpu": 0,
        "hugepages-2Mi": 512 * 2**20,
        "hugepages-1Gi": 0,
    }


def read(spec: dict[str, Any] | None = None, **metadata: Any) -> PodOfDrain:
    """A pod as the API gives it, as a drain sees it."""
    body = {"metadata": {"name": "web-1", "namespace": "shop", "uid": "u-1"} | metadata}
    return to_pod(convert(body | {"spec": spec or {}}, Pod))


@pytest.mark.parametrize(("value", "grace"), [(None, 30), (0, 0), (1, 1), (7201, 7201)])
def test_a_missing_grace_period_is_the_api_servers_default_and_zero_stays_zero(
    value: int | None, grace: int
) -> None:
    assert (
        read({"terminationGracePeriodSeconds": value} if value is not None else {}).grace == grace
    )


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists", "key": "dedicated"}, False),
        ({"operator": "Exists", "key": "node.kubernetes.io/unschedulable"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute"}, False),
    ],
)
def test_a_toleration_of_the_cordon_is_described(toleration: dict[str, str], passes: bool) -> None:
    other = {"operator": "Exists", "key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    pod = read({"tolerations": [other, toleration]})
    assert (pod.cordon_toleration is not None) is passes


ZONE = "topology.kubernetes.io/zone"


def affinity(kind: str, required: Any) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def spread(key: str, otherwise: str) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": otherwise}
    return {"topologySpreadConstraints": [constraint]}


IN_ZONE = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["us-east-1a"]}]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        ({"nodeSelector": {ZONE: "us-east-1a"}}, "node affinity"),
        (affinity("nodeAffinity", {"nodeSelectorTerms": [IN_ZONE]}), "node affinity"),
        (affinity("podAffinity", [{"topologyKey": ZONE}]), "pod affinity"),
        (affinity("podAntiAffinity", [{"topologyKey": ZONE}]), "pod affinity"),
        (affinity("podAntiAffinity", [{"topologyKey": "kubernetes.io/hostname"}]), ""),
        (spread(ZONE, "DoNotSchedule"), "topology spread"),
        (spread(ZONE, "ScheduleAnyway"), ""),
        (spread("kubernetes.io/hostname", "DoNotSchedule"), ""),
    ],
)
def test_the_field_that_keeps_a_pod_in_its_zone_is_returned(spec: dict[str, Any], why: str) -> None:
    assert read(spec).bound_to_zone == why


def test_only_the_controlling_owner_is_the_controller() -> None:
    owner: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    owner["uid"] = "u-2"
    assert read(ownerReferences=[owner]).controller is None
    first = owner | {"kind": "Node", "name": "node-1"}
    owned = read(ownerReferences=[first, owner | {"controller": True}])
    assert owned.controller == Controller("ReplicaSet", "web")
    assert (owned.key, owned.workload) == ("shop/web-1", "shop/ReplicaSet/web")
    assert read().workload == "shop/web-1"


def test_the_claims_of_a_pod_include_those_of_ephemeral_volumes() -> None:
    volumes: list[dict[str, Any]] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "config", "configMap": {"name": "config"}},
    ]
    pod = read({"volumes": volumes})
    assert (pod.claims, pod.empty_dir) == (("shop/data-0", "shop/web-1-scratch"), False)
    assert read({"volumes": [{"name": "tmp", "emptyDir": {}}]}).empty_dir


def test_finalizers_count_after_the_kubelet_has_deleted_the_pod() -> None:
    kept: dict[str, Any] = {"finalizers": ["example.com/backup"]}
    going = kept | {"deletionTimestamp": "2026-11-20T09:45:00Z"}
    assert read(**kept).kept_by == ()
    assert read(**going, deletionGracePeriodSeconds=30).kept_by == ()
    done = read(**going, deletionGracePeriodSeconds=0)
    assert done.kept_by == ("example.com/backup",)
    assert done.deletion == datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def test_static_and_critical_pods_are_detected_by_annotation_and_class() -> None:
    assert read(annotations={"kubernetes.io/config.mirror": "0af3"}).mirror
    assert not read(annotations={"kubernetes.io/config.source": "api"}).mirror
    assert read({"priorityClassName": "system-node-critical"}).critical
    assert not read({"priorityClassName": "high"}).critical


@pytest.mark.parametrize(
    ("value", "until"),
    [
        ("true", datetime.max.replace(tzinfo=UTC)),
        ("30m", datetime(2026, 11, 20, 10, 15, tzinfo=UTC)),
        ("false", None),
        ("soon", None),
    ],
)
def test_a_pod_is_protected_forever_or_for_a_duration(value: str, until: datetime | None) -> None:
    metadata: dict[str, Any] = {"annotations": {"karpenter.sh/do-not-disrupt": value}}
    born: dict[str, Any] = {"creationTimestamp": "2026-11-20T09:45:00Z"}
    assert read(**metadata, **born).protected_until == until
    assert (
        read(**metadata, **born, deletionTimestamp="2026-11-20T09:46:00Z").protected_until is None
    )
