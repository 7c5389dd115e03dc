"""Pods whose claims no node can meet: they get no node, the reason says why, and they keep no node
from being given back. The cases are those of Karpenter's suites `provisioning` and `scheduling`.
"""

from typing import Any

import msgspec
import pytest
from leeway.provisioning.kept_objects import KeptObjects
from leeway.selection.labels import ZONE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod
from leeway.selection.reading.schemas import SCHEMAS

from tests.provisioning.buying import Buying, node
from tests.provisioning.cluster_documents import (
    ZONES,
    claim,
    daemon_set,
    pod,
    storage_class,
    volume,
)
from tests.provisioning.cluster_documents import node as node_document
from tests.provisioning.test_kept_objects import NOW, kept_of, state_of

CLAIMED = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
DELETED = "2026-11-22T10:00:00Z"


def claimed(name: str = "web", node: str = "") -> tuple[str, dict[str, Any]]:
    return "Pod", pod(name, node, **CLAIMED)


def data(
    volume: str = "", name: str = "data", *, phase: str = "", deleted: bool = False, **spec: Any
) -> tuple[str, dict[str, Any]]:
    """A claim; its binding is complete if it has a volume."""
    found = claim(name, volume)
    found["spec"] |= spec
    found["status"] = {"phase": phase or ("Bound" if volume else "Pending")}
    if volume:
        found["metadata"]["annotations"] = BOUND
    if deleted:
        found["metadata"]["deletionTimestamp"] = DELETED
    return "PersistentVolumeClaim", found


def stored_volume(name: str = "pv", *, deleted: bool = False) -> tuple[str, dict[str, Any]]:
    found = volume(name, "us-east-1a")
    if deleted:
        found["metadata"]["deletionTimestamp"] = DELETED
    return "PersistentVolume", found


def gp3(mode: str = "WaitForFirstConsumer") -> tuple[str, dict[str, Any]]:
    return "StorageClass", {**storage_class(), "volumeBindingMode": mode}


def why(*objects: tuple[str, dict[str, Any]]) -> str:
    """Why the waiting pod among some objects can get no node; empty if it can."""
    (one,) = state_of(*objects).waiting
    if one.pod.spec.unmet is None:
        return ""
    assert one.pod.spec.unmet.code == "VolumeClaimNotMet"
    return one.pod.spec.unmet.message.partition(": no node can take the pod")[0]


UNBOUND = data("pv")[0], {**data("pv")[1], "metadata": claim("data")["metadata"]}


IMMEDIATE = (
    "PersistentVolumeClaim shop/data has no volume yet, and StorageClass gp3 binds volumes before "
    "pods are placed (volumeBindingMode: Immediate)"
)


@pytest.mark.parametrize(
    ("said", "objects"),
    [
        ("PersistentVolumeClaim shop/data does not exist", []),
        ("PersistentVolumeClaim shop/data is being deleted", [data(deleted=True), gp3()]),
        (
            "PersistentVolumeClaim shop/data has lost its PersistentVolume pv",
            [data("pv", phase="Lost"), gp3()],
        ),
        (
            "PersistentVolume pv of PersistentVolumeClaim shop/data does not exist",
            [data("pv"), gp3()],
        ),
        (
            "PersistentVolume pv of PersistentVolumeClaim shop/data is being deleted",
            [data("pv"), stored_volume(deleted=True)],
        ),
        (
            "PersistentVolumeClaim shop/data is not bound to PersistentVolume pv yet",
            [UNBOUND, stored_volume()],
        ),
        (
            "PersistentVolumeClaim shop/data has neither a volume nor a storage class",
            [data(storageClassName=""), gp3()],
        ),
        ("StorageClass gp3 of PersistentVolumeClaim shop/data does not exist", [data()]),
        (
            IMMEDIATE,
            [data(), gp3("Immediate")],
        ),
    ],
)
def test_a_claim_that_no_node_can_meet_is_named(
    said: str, objects: list[tuple[str, dict[str, Any]]]
) -> None:
    assert why(claimed(), *objects) == said


@pytest.mark.parametrize(
    "objects",
    [
        [data(), gp3()],
        [data("pv"), stored_volume(), gp3()],
        [data("pv"), stored_volume(), gp3("Immediate")],
        [data("pv", storageClassName=""), stored_volume()],
        [data("pv", storageClassName="gone"), stored_volume()],
    ],
)
def test_a_claim_that_is_bound_or_waits_for_its_pod_can_be_met(
    objects: list[tuple[str, dict[str, Any]]],
) -> None:
    assert why(claimed(), *objects) == ""


def test_an_ephemeral_volume_has_the_claim_of_its_pod_or_the_class_of_its_template() -> None:
    template = {"spec": {"storageClassName": "gp3"}}
    scratch = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}
    of_pod = ("Pod", pod("web", volumes=[scratch]))
    assert why(of_pod, gp3()) == ""
    assert why(of_pod) == "StorageClass gp3 of PersistentVolumeClaim shop/web-tmp does not exist"
    deleted = data(name="web-tmp", deleted=True)
    assert why(of_pod, gp3(), deleted) == "PersistentVolumeClaim shop/web-tmp is being deleted"
    without = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    of_pod = ("Pod", pod("web", volumes=[without]))
    assert why(of_pod, gp3()).endswith("has neither a volume nor a storage class")
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    usual = {**gp3()[1], "metadata": {"name": "gp3", "annotations": default}}
    assert why(of_pod, ("StorageClass", usual)) == ""


def test_a_bound_ephemeral_volume_keeps_its_pod_in_its_zone_until_the_pod_has_a_node() -> None:
    template = {"spec": {"storageClassName": "gp3"}}
    scratch = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}
    stored = ("PersistentVolume", volume("pv", "us-east-1b"))
    objects = [gp3("Immediate"), data("pv", "web-tmp"), stored, ("Node", node_document("n-1"))]
    state = state_of(("Pod", pod("web", volumes=[scratch])), *objects)
    assert [one.pod.spec.unmet for one in state.waiting] == [None]
    assert zones_of(state.waiting[0].pod) == {"us-east-1b"}
    state = state_of(("Pod", pod("web", "n-1", volumes=[scratch])), *objects)
    assert zones_of(state.movable["n-1"][0]) == {"us-east-1a", "us-east-1b"}, "it gets a new claim"


def zones_of(waiting: Pod) -> set[str]:
    terms = waiting.spec.terms
    return {zone for zone in ZONES if not terms or any(t.admits({ZONE: zone}) for t in terms)}


def test_a_claim_that_leeway_could_not_read_keeps_no_pod_from_its_node() -> None:
    kept = kept_of(claimed(), gp3())
    kept.put_unreadable("PersistentVolumeClaim", data()[1], "spec")
    assert [one.pod.spec.unmet for one in kept.state(NOW).waiting] == [None]
    kept = kept_of(claimed())
    kept.note_unreadable("PersistentVolumeClaim", "the API server refused")
    assert [one.pod.spec.unmet for one in kept.state(NOW).waiting] == [None]


def test_files_that_lack_a_whole_kind_say_nothing_about_claims() -> None:
    """`leeway explain --nodes` reads the output of `kubectl get nodes,pods,pdb,ds`."""
    scratch = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    kept = KeptObjects(complete=False)
    kept.put(*claimed())
    kept.put("Pod", pod("other", volumes=[scratch]))
    assert [one.pod.spec.unmet for one in kept.state(NOW).waiting] == [None, None]
    kept.put(*data(deleted=True))
    assert [one.pod.spec.unmet is None for one in kept.state(NOW).waiting] == [True, False]


def test_a_pod_gets_its_node_as_soon_as_its_claim_is_met() -> None:
    kept = kept_of(claimed(), gp3())
    assert kept.state(NOW).waiting[0].pod.spec.unmet is not None
    kept.put(*data())
    assert kept.state(NOW).waiting[0].pod.spec.unmet is None
    kept.remove("StorageClass", "gp3")
    assert kept.state(NOW).waiting[0].pod.spec.unmet is not None


def test_a_pod_that_runs_moves_whatever_becomes_of_its_claim() -> None:
    """As in Karpenter: only pods that wait are examined, so that such a pod keeps no node."""
    state = state_of(("Node", node_document("n-1")), claimed("web", "n-1"), data(deleted=True))
    assert [one.spec.unmet for one in state.movable["n-1"]] == [None]


DEVICES: list[dict[str, Any]] = [
    {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-1"}]},
    {"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]},
    {
        "initContainers": [{"name": "i", "resources": {"claims": [{"name": "gpu"}]}}],
    },
]


@pytest.mark.parametrize("spec", DEVICES)
def test_a_pod_with_device_claims_gets_no_node_and_keeps_the_one_it_runs_on(
    spec: dict[str, Any],
) -> None:
    state = state_of(
        ("Node", node_document("n-1")),
        ("Pod", pod("waits", **spec)),
        ("Pod", pod("runs", "n-1", **spec)),
        ("Pod", pod("plain")),
    )
    found = {one.pod.name: one.pod.spec.unmet for one in state.waiting}
    assert found["shop/plain"] is None
    reason = found["shop/waits"]
    assert reason is not None
    assert reason.code == "DeviceClaimsNotPlanned"
    assert [one.spec.unmet for one in state.movable["n-1"]] == [reason]


def test_a_daemonset_with_device_claims_has_no_share_of_new_nodes() -> None:
    agent = daemon_set("agent", "500m")
    agent["spec"]["template"]["spec"] |= DEVICES[0]
    assert state_of(("DaemonSet", agent)).daemons == ()


def test_nothing_is_launched_for_unmet_claims_and_each_pod_says_why(catalog: Catalog) -> None:
    buying = Buying(catalog)
    devices = ("Pod", pod("gpu", **DEVICES[0]))
    buying.states.state = state_of(claimed("lost"), devices, ("Pod", pod("fine")))
    report = buying.run()
    assert len(report.launched) == 1
    assert {one.pod: one.cause.code for one in report.without_node} == {
        "shop/lost": "VolumeClaimNotMet",
        "shop/gpu": "DeviceClaimsNotPlanned",
    }
    told = {one.about.name: one.message for one in buying.events.existing.values()}
    assert "PersistentVolumeClaim shop/data does not exist: no node can" in told["lost"]
    assert "resourceClaims" in told["gpu"]


def test_a_pod_that_is_too_complex_gets_an_event_and_the_others_get_nodes(catalog: Catalog) -> None:
    buying = Buying(catalog)
    many = [{"key": f"key-{number}", "operator": "Exists"} for number in range(251)]
    buying.states.state = state_of(("Pod", pod("evil", tolerations=many)), ("Pod", pod("fine")))
    report = buying.run()
    assert len(report.launched) == 1
    (event,) = buying.events.existing.values()
    assert (event.about.name, event.reason) == ("evil", "PodTooComplex")
    assert "251 tolerations" in event.message


def test_a_pod_with_an_unmet_claim_takes_no_room_of_a_node(catalog: Catalog) -> None:
    pods = [one.pod for one in state_of(claimed("lost"), ("Pod", pod("fine"))).waiting]
    plan = pack(pods, Supply((), catalog), [node("n-1", cpu=150)])
    assert [one.pods for one in plan.existing] == [("shop/fine",)]
    assert [one.pod for one in plan.unschedulable] == ["shop/lost"]


def test_the_fields_that_decide_about_claims_are_read() -> None:
    """The adapter decodes the fields of the schemas only."""
    raw = msgspec.json.encode({**data("pv")[1], "status": {"phase": "Lost", "capacity": {}}})
    read = msgspec.json.decode(raw, type=SCHEMAS["PersistentVolumeClaim"])
    assert read["status"] == {"phase": "Lost"}
    assert KeptObjects().state(NOW).waiting == ()
