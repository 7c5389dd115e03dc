"""The zones that volumes require: bound volumes, storage classes, StatefulSets, ephemeral ones."""

from typing import Any

import pytest
from leeway.selection.labels import ZONE
from leeway.selection.reading.cluster_objects import pending_pods
from leeway.selection.reading.objects import BadObject

DEFAULT = "storageclass.kubernetes.io/is-default-class"


def pod(**volume: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c"}], "volumes": [{"name": "data", **volume}]}
    return {"kind": "Pod", "metadata": {"name": "db"}, "spec": spec}


def volume(name: str, zone: str, operator: str = "In") -> dict[str, Any]:
    asked = [{"key": "topology.ebs.csi.aws.com/zone", "operator": operator, "values": [zone]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": asked}]}}
    spec = {"nodeAffinity": affinity}
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def storage(name: str, *zones: str, default: bool = False) -> dict[str, Any]:
    asked = [{"key": ZONE, "values": list(zones)}]
    return {
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {DEFAULT: str(default).lower()}},
        "allowedTopologies": [{"matchLabelExpressions": asked}],
    }


CLAIMED = pod(persistentVolumeClaim={"claimName": "data"})


def zones(*objects: dict[str, Any]) -> list[set[str]]:
    """Of zones a, b and c, those where each pod may go."""
    return [
        {z for z in "abc" if not p.spec.terms or any(t.admits({ZONE: z}) for t in p.spec.terms)}
        for p in pending_pods(objects, {})
    ]


def test_a_pod_with_a_bound_claim_is_placed_in_the_zone_of_its_volume() -> None:
    assert zones(CLAIMED, claim("data", volumeName="v"), volume("v", "b")) == [{"b"}]


def test_a_pod_with_an_unbound_claim_is_placed_in_the_zones_of_its_storage_class() -> None:
    fast = storage("fast", "a", "b")
    assert zones(CLAIMED, claim("data", storageClassName="fast"), fast) == [{"a", "b"}]


def test_many_volumes_of_a_class_with_several_topologies_have_few_terms() -> None:
    either = {**storage("fast", "a"), "allowedTopologies": []}
    for zone in "ab":
        either["allowedTopologies"] += storage("fast", zone)["allowedTopologies"]
    volumes = [
        {"name": f"v-{n}", "persistentVolumeClaim": {"claimName": f"c-{n}"}} for n in range(40)
    ]
    claims = [claim(f"c-{n}", storageClassName="fast") for n in range(40)]
    objects = ({**CLAIMED, "spec": {**CLAIMED["spec"], "volumes": volumes}}, either, *claims)
    assert zones(*objects) == [{"a", "b"}]
    (found,) = pending_pods(objects, {})
    assert len(found.spec.terms) == 2


def test_a_claim_without_a_class_uses_the_default_class() -> None:
    usual = storage("usual", "c", default=True)
    assert zones(CLAIMED, claim("data"), usual) == [{"c"}]
    assert zones(CLAIMED, claim("data", storageClassName=""), usual) == [{"a", "b", "c"}]


def test_an_ephemeral_volume_uses_the_zones_of_its_storage_class() -> None:
    ephemeral = {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}
    assert zones(pod(ephemeral=ephemeral), storage("fast", "b")) == [{"b"}]


def test_a_bound_ephemeral_volume_keeps_its_pod_in_its_zone() -> None:
    ephemeral = {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}
    bound = [claim("db-data", volumeName="v"), volume("v", "a"), storage("fast", "a", "b")]
    assert zones(pod(ephemeral=ephemeral), *bound) == [{"a"}]
    other = [claim("web-data", volumeName="v"), *bound[1:]]
    assert zones(pod(ephemeral=ephemeral), *other) == [{"a", "b"}]


def test_a_template_has_no_claims_of_ephemeral_volumes() -> None:
    ephemeral = {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "db"},
        "spec": {"template": pod(ephemeral=ephemeral)},
    }
    bound = [claim("db-data", volumeName="v"), volume("v", "a"), storage("fast", "a", "b")]
    assert zones(workload, *bound) == [{"a", "b"}]


def test_each_pod_of_a_stateful_set_is_placed_in_the_zone_of_its_own_volume() -> None:
    templates = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    whole = {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "volumeClaimTemplates": templates,
            "template": {"spec": {"containers": [{"name": "c"}]}},
        },
    }
    there = [claim("data-db-0", volumeName="v0"), claim("data-db-1", volumeName="v1")]
    volumes = [volume("v0", "a"), volume("v1", "c")]
    found = zones(whole, *there, *volumes, storage("fast", "b", "c"))
    assert found == [{"a"}, {"c"}, {"b", "c"}]


def test_volumes_in_the_file_of_nodes_apply_to_the_pods() -> None:
    others = [claim("data", volumeName="v"), volume("v", "b")]
    (found,) = pending_pods([CLAIMED], {}, others)
    assert [term.admits({ZONE: "b"}) for term in found.spec.terms] == [True]
    assert not found.spec.terms[0].admits({ZONE: "a"})


def test_an_invalid_volume_is_rejected_with_its_path() -> None:
    with pytest.raises(BadObject, match="expected one of In") as refused:
        zones(CLAIMED, claim("data"), volume("v", "b", operator="Near"))
    inside = ("nodeAffinity", "required", "nodeSelectorTerms", 0, "matchExpressions", 0)
    assert refused.value.path == (2, "spec", *inside)


def default(name: str, made: str, *zones_of: str) -> dict[str, Any]:
    found = storage(name, *zones_of)
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    metadata = {"name": name, "annotations": annotations, "creationTimestamp": made}
    return {**found, "metadata": metadata}


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_default_classes_the_newest_is_used(order: int) -> None:
    older = default("older", "2025-01-01T00:00:00Z", "a")
    newer = default("newer", "2026-01-01T00:00:00Z", "b")
    assert zones(CLAIMED, claim("data"), *[newer, older][::order]) == [{"b"}]


@pytest.mark.parametrize("order", [1, -1])
def test_of_equally_old_default_classes_the_first_by_name_is_used(order: int) -> None:
    both = [default("x", "2026-01-01T00:00:00Z", "a"), default("y", "2026-01-01T00:00:00Z", "b")]
    assert zones(CLAIMED, claim("data"), *both[::order]) == [{"a"}]
