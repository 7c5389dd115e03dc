"""The status that Leeway writes into manifests of an API server."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.manifests.in_cluster import MANIFESTS_HELD
from leeway.manifests.status import (
    NODE_CLASS,
    ClusterFacts,
    Found,
    PoolUsage,
    ReadObject,
    ResolvedClass,
    plan_statuses,
)
from leeway.manifests.status import POOL as POOLS
from leeway.reasons import Reason
from leeway.selection.resources import Resources

from tests.manifests.crd_cases import CLASS, POOL, changed

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
RESOLVED = ResolvedClass(
    subnets=Found(({"id": "subnet-1", "zone": "eu-west-1a"},)),
    security_groups=Found(({"id": "sg-1"},)),
    images=Found(({"id": "ami-1", "requirements": []},)),
    profile=Found(({"name": "nodes"},)),
)
FACTS = ClusterFacts(
    "prod",
    usage={"pool": PoolUsage(2, Resources.parsed({"cpu": "8", "memory": "16Gi"}), joined=True)},
    classes={"default": RESOLVED},
)
NEW_CLASS = changed(CLASS, {"metadata.name": "default", "metadata.generation": 1})
NEW_POOL = changed(POOL, {"metadata.generation": 1})


class Cluster:
    """Objects with the status that was written, as an API server keeps them."""

    def __init__(self, pool: Mapping[str, Any] = NEW_POOL) -> None:
        self.objects = [
            ReadObject(NODE_CLASS, copy.deepcopy(NEW_CLASS)),
            ReadObject(POOLS, copy.deepcopy(dict(pool))),
        ]
        self.now = NOW

    def write(self, facts: ClusterFacts = FACTS) -> int:
        """Write what is decided; return how many objects change."""
        patches = plan_statuses(self.objects, facts, self.now)
        for patch in patches:
            patch.document["status"] = merged(patch.document.get("status"), patch.status)  # type: ignore[index]
        return len(patches)

    def change(self, at: int, problem: str = "", weight: int = 1) -> None:
        document = changed(self.objects[at].document, {"spec.weight": weight})
        document["metadata"]["generation"] += 1
        self.objects[at] = replace(self.objects[at], document=document, problem=problem)

    def pool(self) -> Any:
        return self.objects[1].document["status"]

    def node_class(self) -> Any:
        return self.objects[0].document["status"]


def merged(before: Any, patch: Any) -> Any:
    """Apply a merge patch. Source: RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(before) if isinstance(before, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def condition(status: Any, name: str) -> Any:
    return next(one for one in status["conditions"] if one["type"] == name)


def test_a_pool_and_its_class_are_ready_with_what_they_use() -> None:
    cluster = Cluster()
    assert cluster.write() == 2
    assert conditions(cluster.pool()) == {
        "ValidationSucceeded": ("True", "ValidationSucceeded"),
        "NodeClassReady": ("True", "NodeClassReady"),
        "NodeRegistrationHealthy": ("True", "NodeRegistrationHealthy"),
        "Ready": ("True", "Ready"),
    }
    assert all(one["observedGeneration"] == 1 for one in cluster.pool()["conditions"])
    assert (cluster.pool()["nodes"], cluster.pool()["nodeClassObservedGeneration"]) == (2, 1)
    assert cluster.pool()["resources"] == {
        "cpu": "8",
        "memory": "16Gi",
        "pods": "0",
        "ephemeral-storage": "0",
        "nodes": "2",
    }
    status = cluster.node_class()
    assert {name for name, _ in conditions(status).values()} == {"True"}
    assert conditions(status).keys() == {
        "ValidationSucceeded",
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "CapacityReservationsReady",
        "PlacementGroupReady",
        "Ready",
    }
    assert (status["subnets"], status["securityGroups"], status["instanceProfile"]) == (
        [{"id": "subnet-1", "zone": "eu-west-1a"}],
        [{"id": "sg-1"}],
        "nodes",
    )
    assert status["amis"] == [{"id": "ami-1", "requirements": []}]


def test_a_status_that_has_not_changed_is_not_written_again() -> None:
    cluster = Cluster()
    cluster.write()
    cluster.now += timedelta(minutes=5)
    assert cluster.write() == 0


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    cluster = Cluster()
    cluster.write()
    cluster.now += timedelta(minutes=5)
    cluster.change(1, weight=3)
    assert cluster.write() == 1
    ready = condition(cluster.pool(), "Ready")
    assert (ready["observedGeneration"], ready["lastTransitionTime"]) == (2, "2026-11-23T12:00:00Z")
    none = Found(problem="no subnet matches EC2NodeClass default, spec.subnetSelectorTerms")
    broken = replace(FACTS, classes={"default": replace(RESOLVED, subnets=none)})
    assert cluster.write(broken) == 2
    ready = condition(cluster.pool(), "Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", "2026-11-23T12:05:00Z")
    valid = condition(cluster.pool(), "ValidationSucceeded")
    assert valid["lastTransitionTime"] == "2026-11-23T12:00:00Z"


def test_a_class_without_subnets_says_so_and_its_pool_is_not_ready() -> None:
    cluster = Cluster()
    cluster.write()
    none = Found(problem="no subnet matches EC2NodeClass default, spec.subnetSelectorTerms")
    cluster.write(replace(FACTS, classes={"default": replace(RESOLVED, subnets=none)}))
    assert conditions(cluster.node_class())["SubnetsReady"] == ("False", "SubnetsNotFound")
    assert "subnets" not in cluster.node_class()
    assert cluster.node_class()["amis"]
    assert conditions(cluster.node_class())["Ready"] == ("False", "UnhealthyDependents")
    assert conditions(cluster.pool())["NodeClassReady"] == ("False", "UnhealthyDependents")
    assert "no subnet matches" in condition(cluster.pool(), "Ready")["message"]


def test_what_leeway_does_not_use_is_said_and_stays_in_the_status() -> None:
    """Karpenter may use a subnet whose tags name another cluster, and reads the list as it is."""
    cluster = Cluster()
    cluster.write()
    before = dict(cluster.node_class())
    foreign = Found(None, "subnet subnet-1 does not belong to cluster prod")
    cluster.write(
        replace(FACTS, classes={"default": replace(RESOLVED, subnets=foreign, profile=foreign)})
    )
    assert conditions(cluster.node_class())["SubnetsReady"] == ("False", "SubnetsNotFound")
    for name in ("subnets", "instanceProfile"):
        assert cluster.node_class()[name] == before[name]


def test_a_class_keeps_the_instance_profile_that_karpenter_gave_it() -> None:
    """Karpenter deletes the profiles of its own that no class and no NodeClaim names."""
    cluster = Cluster()
    given = {**NEW_CLASS, "status": {"instanceProfile": "prod_1234567890123456789"}}
    cluster.objects[0] = ReadObject(NODE_CLASS, given)
    names = ("nodes", "prod_1234567890123456789")
    both = replace(RESOLVED, profile=Found(tuple({"name": one} for one in names)))
    cluster.write(replace(FACTS, classes={"default": both}))
    assert cluster.node_class()["instanceProfile"] == "prod_1234567890123456789"
    cluster.write()
    assert cluster.node_class()["instanceProfile"] == "nodes", "it is gone"


def test_a_class_lists_all_that_it_selects() -> None:
    """Karpenter replaces a node whose subnet its class does not list."""
    cluster = Cluster()
    many = Found(tuple({"id": f"subnet-{one}", "zone": "eu-west-1a"} for one in range(250)))
    cluster.write(replace(FACTS, classes={"default": replace(RESOLVED, subnets=many)}))
    assert len(cluster.node_class()["subnets"]) == 250


def test_a_class_is_ready_without_its_reservations_and_lists_those_it_has() -> None:
    cluster, named = Cluster(), ({"id": "cr-1", "availabilityZone": "eu-west-1a"},)
    found = replace(RESOLVED, reservations=Found(named))
    cluster.write(replace(FACTS, classes={"default": found}))
    assert cluster.node_class()["capacityReservations"] == [*named]
    silent = replace(RESOLVED, reservations=Found(problem="EC2 does not answer", known=False))
    cluster.write(replace(FACTS, classes={"default": silent}))
    assert cluster.node_class()["capacityReservations"] == [*named]
    assert conditions(cluster.node_class())["CapacityReservationsReady"][0] == "Unknown"
    assert conditions(cluster.node_class())["Ready"][0] == "True", "other capacity is launched"
    cluster.write()
    assert "capacityReservations" not in cluster.node_class()


def test_a_class_with_a_placement_group_says_so_in_the_condition_of_karpenter() -> None:
    cluster = Cluster()
    document = changed(NEW_CLASS, {"spec.placementGroupSelector": {"name": "near"}})
    problem = "EC2NodeClass default: spec.placementGroupSelector: expected no placement group"
    cluster.objects[0] = ReadObject(NODE_CLASS, document, problem)
    cluster.write()
    found = condition(cluster.node_class(), "PlacementGroupReady")
    assert (found["status"], found["reason"]) == ("False", "PlacementGroupResolutionFailed")
    assert conditions(cluster.node_class())["Ready"][0] == "False"


def test_what_aws_does_not_tell_is_unknown_and_what_was_found_stays() -> None:
    cluster = Cluster()
    cluster.write()
    silent = Found(problem="EC2 does not answer", known=False)
    cluster.write(replace(FACTS, classes={"default": replace(RESOLVED, subnets=silent)}))
    assert conditions(cluster.node_class())["SubnetsReady"][0] == "Unknown"
    assert conditions(cluster.node_class())["Ready"][0] == "Unknown"
    assert conditions(cluster.pool())["NodeClassReady"] == ("False", "NodeClassReadinessUnknown")
    assert cluster.node_class()["subnets"] == [{"id": "subnet-1", "zone": "eu-west-1a"}]


@pytest.mark.parametrize(
    ("resolved", "expected"),
    [
        (RESOLVED, ("True", "NodeClassReady")),
        (ResolvedClass(subnets=Found(problem="no subnets")), ("False", "NodeClassNotFound")),
        (None, ("False", "NodeClassNotFound")),
    ],
)
def test_a_pool_whose_class_is_missing_is_ready_only_by_the_defaults_of_the_cluster(
    resolved: ResolvedClass | None, expected: tuple[str, str]
) -> None:
    cluster = Cluster()
    del cluster.objects[0]
    cluster.objects.insert(0, ReadObject("cluster.leeway.sh", {"metadata": {"name": "prod"}}))
    cluster.write(replace(FACTS, classes={"default": resolved} if resolved else {}))
    assert conditions(cluster.pool())["NodeClassReady"] == expected


def test_an_invalid_manifest_is_not_ready_and_its_message_is_small() -> None:
    cluster = Cluster()
    cluster.write()
    cluster.change(1, problem="nodepool pool: " + "x\n" * 400_000)
    assert cluster.write() == 1
    assert conditions(cluster.pool())["ValidationSucceeded"] == (
        "False",
        "NodePoolValidationFailed",
    )
    assert conditions(cluster.pool())["Ready"][0] == "False"
    assert condition(cluster.pool(), "Ready")["observedGeneration"] == 2
    assert len(json.dumps(cluster.pool())) < 8_000
    assert "\n" not in condition(cluster.pool(), "ValidationSucceeded")["message"]


def test_a_run_that_has_not_read_the_cluster_leaves_the_counts() -> None:
    cluster = Cluster()
    cluster.write()
    assert cluster.write(replace(FACTS, usage=None)) == 0
    cluster.write(replace(FACTS, usage={}))
    assert (cluster.pool()["nodes"], cluster.pool()["resources"]["cpu"]) == (0, "0")
    assert conditions(cluster.pool())["NodeRegistrationHealthy"][0] == "True", "one has joined"


def test_a_resource_that_no_node_has_any_more_is_removed() -> None:
    cluster = Cluster()
    gpu = PoolUsage(1, Resources.parsed({"nvidia.com/gpu": "1"}))
    cluster.write(replace(FACTS, usage={"pool": gpu}))
    assert cluster.pool()["resources"]["nvidia.com/gpu"] == "1"
    cluster.write()
    assert "nvidia.com/gpu" not in cluster.pool()["resources"]
    assert cluster.write() == 0


def test_a_paused_pool_is_not_healthy_and_held_manifests_are_not_ready() -> None:
    cluster = Cluster()
    paused = {"pool": Reason("NodesNeverJoined", "Leeway paused pool pool.")}
    held = MANIFESTS_HELD(what="All", cluster="prod", first="nodepool/a", count=1)
    cluster.write(replace(FACTS, paused=paused, held=held))
    assert conditions(cluster.pool())["NodeRegistrationHealthy"] == ("False", "NodesNeverJoined")
    assert conditions(cluster.pool())["Ready"] == ("False", "ManifestsHeld")


def test_while_karpenter_runs_only_its_condition_is_written_and_taken_back_later() -> None:
    theirs = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-11-01T00:00:00Z",
    }
    cluster = Cluster(changed(NEW_POOL, {"status": {"nodes": 9, "conditions": [theirs]}}))
    assert cluster.write(replace(FACTS, karpenter=True)) == 1
    assert cluster.pool()["nodes"] == 9
    assert cluster.pool()["conditions"][0] == theirs
    assert conditions(cluster.pool())["KarpenterIsRunning"][0] == "True"
    assert "status" not in cluster.objects[0].document
    cluster.now += timedelta(minutes=1)
    assert cluster.write(replace(FACTS, karpenter=True)) == 0, "the time of its Lease is not in it"
    cluster.write()
    assert "KarpenterIsRunning" not in conditions(cluster.pool())
    ready = condition(cluster.pool(), "Ready")
    assert ready["lastTransitionTime"] == "2026-11-01T00:00:00Z"


def test_conditions_of_others_and_kinds_of_others_are_left_alone() -> None:
    other = {"type": "Audited", "status": "True"}
    cluster = Cluster(changed(NEW_POOL, {"status.conditions": [other]}))
    scaled = ReadObject("scaledobject.keda.sh", {"metadata": {"name": "web"}}, "invalid")
    cluster.objects.append(scaled)
    cluster.write()
    assert cluster.pool()["conditions"][0] == other
    assert "status" not in scaled.document


def test_an_overlay_that_conflicts_and_an_own_kind_have_conditions() -> None:
    cluster = Cluster()
    overlay = ReadObject("nodeoverlay.karpenter.sh", {"metadata": {"name": "b", "generation": 4}})
    headroom = ReadObject("headroom.leeway.sh", {"metadata": {"name": "web", "generation": 2}})
    cluster.objects += [overlay, headroom]
    cluster.write(replace(FACTS, conflicts={"b": Reason("Conflict", "b conflicts with a.")}))
    assert conditions(overlay.document["status"])["ValidationSucceeded"] == ("False", "Conflict")
    assert conditions(overlay.document["status"])["Ready"][0] == "False"
    assert conditions(headroom.document["status"]) == {
        "ValidationSucceeded": ("True", "ValidationSucceeded"),
        "Ready": ("True", "Ready"),
    }


def test_a_run_that_has_not_compared_overlays_leaves_their_conditions() -> None:
    cluster = Cluster()
    overlay = ReadObject("nodeoverlay.karpenter.sh", {"metadata": {"name": "b", "generation": 4}})
    cluster.objects.append(overlay)
    cluster.write()
    assert "status" not in overlay.document, "it may conflict"
    cluster.write(replace(FACTS, conflicts={"b": Reason("Conflict", "b conflicts with a.")}))
    assert cluster.write(replace(FACTS, conflicts=None)) == 0
    assert conditions(overlay.document["status"])["Ready"][0] == "False"
    cluster.write(replace(FACTS, conflicts={}))
    assert conditions(overlay.document["status"])["Ready"][0] == "True"
    cluster.objects[-1] = replace(overlay, problem="spec.weight: 7 is odd")
    cluster.write(replace(FACTS, conflicts=None))
    valid = conditions(overlay.document["status"])["ValidationSucceeded"]
    assert valid == ("False", "ManifestInvalid"), "what is invalid needs no comparison"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    status=JSON | st.fixed_dictionaries({}, optional={"conditions": JSON, "resources": JSON}),
    spec=JSON,
)
@settings(max_examples=100)
def test_whatever_a_status_has_one_write_is_enough(status: Any, spec: Any) -> None:
    cluster = Cluster(changed(NEW_POOL, {"status": status, "spec": spec}))
    cluster.write()
    assert conditions(cluster.pool())["Ready"][0] in {"True", "False"}
    assert cluster.pool()["resources"]["nodes"].isdecimal()
    assert cluster.write() == 0
