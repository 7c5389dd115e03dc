"""Headroom is looked after, tick by tick, in a living cluster."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from leeway.policy.rules import ClusterPolicy

from tests.headroom.reconciling import MINUTE, NINE, WINDOW, Desk, capacity_buffer
from tests.sandbox.kubernetes.live import DEPLOYMENTS, deployment


def test_a_window_has_its_pods_from_its_lead_before_the_start_until_the_end(desk: Desk) -> None:
    desk.apply(desk.headroom(windows=[WINDOW], leadTime="5m"))
    sizes = {}
    for minutes in (-7, -6, -5, 0, 59, 60):
        desk.tick(NINE + minutes * MINUTE)
        sizes[minutes] = desk.buffer()
    # One minute more than its lead: the next tick would come too late.
    assert sizes == {-7: 0, -6: 3, -5: 3, 0: 3, 59: 3, 60: 0}


def test_a_second_tick_with_nothing_new_writes_nothing(desk: Desk) -> None:
    desk.apply(desk.headroom(replicas=2))
    first = desk.tick()
    generation = desk.live.api.get(
        f"/apis/apps/v1/namespaces/{desk.name}/deployments/{desk.name}-warm"
    ).json()["metadata"]["generation"]
    writes = desk.states.writes
    second = desk.tick(NINE + MINUTE)
    assert (len(first.changed), second.changed, desk.states.writes) == (1, (), writes)
    assert generation == 1


def test_how_many_pods_are_pending_is_remembered_and_is_no_change(desk: Desk) -> None:
    desk.apply(desk.headroom(replicas=2))
    subject = f"buffer {desk.name}/{desk.name}-warm"
    desk.tick()
    assert desk.states.of("prod")[subject].pending == 2
    deployment = f"/apis/apps/v1/namespaces/{desk.name}/deployments/{desk.name}-warm"
    status = {"status": {"replicas": 2, "readyReplicas": 1}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert desk.live.api.patch(f"{deployment}/status", json=status, headers=headers).is_success
    later = desk.tick(NINE + MINUTE)
    assert (desk.states.of("prod")[subject].pending, later.changed) == (1, ())


def test_drift_is_healed(desk: Desk) -> None:
    desk.apply(desk.headroom(replicas=2))
    desk.tick()
    path = f"/apis/apps/v1/namespaces/{desk.name}/deployments/{desk.name}-warm"
    desk.live.patch(path, {"spec": {"replicas": 40}})
    desk.tick()
    assert desk.buffer() == 2
    desk.live.api.delete(path)
    desk.tick()
    assert desk.buffer() == 2


def test_a_removed_manifest_is_cleaned_up_with_what_only_it_needed(desk: Desk) -> None:
    document = desk.headroom(replicas=1)
    document["spec"]["priority"] = -4
    desk.apply(document)
    desk.tick()
    priority = "/apis/scheduling.k8s.io/v1/priorityclasses/leeway-headroom--4"
    assert desk.live.api.get(priority).status_code == 200
    desk.apply()
    desk.tick()
    assert desk.buffer() is None
    assert desk.live.api.get(priority).status_code == 404
    assert desk.live.api.get(f"/api/v1/namespaces/{desk.name}").status_code == 200
    assert desk.states.of("prod") == {}


def test_what_a_manifest_made_stays_while_nobody_understands_the_manifest(desk: Desk) -> None:
    desk.apply(desk.headroom(replicas=1))
    desk.tick()
    desk.apply()
    desk.unreadable = frozenset({f"headroom.leeway.sh {desk.name}"})
    assert desk.tick().faulty == 1, "whoever runs Leeway is told, for as long as it lasts"
    assert desk.buffer() == 1


def test_a_target_is_scaled_by_its_windows_and_otherwise_left_alone(desk: Desk) -> None:
    target = desk.deploy(2)
    before = desk.live.api.get(f"{DEPLOYMENTS}/{target}").json()["spec"]
    desk.apply(desk.scaled_object(target, minReplicaCount=1))
    sizes = []
    for minutes in (-1, 0, 59, 60):
        desk.tick(NINE + minutes * MINUTE)
        sizes.append(desk.replicas(target))
    assert sizes == [1, 5, 5, 1]
    after = desk.live.api.get(f"{DEPLOYMENTS}/{target}").json()["spec"]
    assert {**after, "replicas": 0} == {**before, "replicas": 0}


@pytest.mark.parametrize(("restore", "left_at"), [(True, 2), (False, 5)])
def test_a_target_is_restored_or_left_when_its_manifest_goes(
    desk: Desk, restore: bool, left_at: int
) -> None:
    target = desk.deploy(2)
    desk.apply(desk.scaled_object(target, advanced={"restoreToOriginalReplicaCount": restore}))
    desk.tick()
    desk.apply()
    desk.tick()
    assert desk.replicas(target) == left_at
    metadata = desk.live.api.get(f"{DEPLOYMENTS}/{target}").json()["metadata"]
    assert not any("leeway" in key for key in metadata.get("annotations", {}))
    assert desk.states.of("prod") == {}


def test_another_object_of_a_targets_name_is_not_restored_to_the_size_of_the_first(
    desk: Desk,
) -> None:
    target = desk.deploy(2)
    restore = {"restoreToOriginalReplicaCount": True}
    desk.apply(desk.scaled_object(target, advanced=restore))
    desk.tick()
    desk.live.api.delete(f"{DEPLOYMENTS}/{target}")
    desk.live.until(lambda: desk.replicas(target) is None)
    desk.deploy(7)
    desk.apply()
    desk.tick()
    assert desk.replicas(target) == 7


def test_two_ticks_at_once_keep_the_size_that_a_target_had_before(desk: Desk) -> None:
    target = desk.deploy(2)
    desk.apply(desk.scaled_object(target))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: desk.tick(), range(4)))
    original = desk.states.of("prod")[f"Deployment default/{target}"].original
    assert original is not None
    assert original.replicas == 2
    assert desk.replicas(target) == 5


def test_a_target_that_does_not_exist_is_a_status(desk: Desk) -> None:
    desk.apply(desk.scaled_object("nowhere"), desk.headroom(replicas=1))
    (problem,) = desk.tick().problems
    assert problem.problem == (
        "there is no Deployment nowhere in namespace default: a ScaledObject scales in its own "
        "namespace only"
    )
    assert desk.buffer() == 1


def test_a_target_in_another_namespace_is_not_scaled(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target, namespace="elsewhere"))
    (problem,) = desk.tick().problems
    assert problem.problem.startswith(f"there is no Deployment {target} in namespace elsewhere: ")
    assert desk.replicas(target) == 1


def test_two_manifests_for_one_target_are_refused_and_both_named(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target, name="a"), desk.scaled_object(target, name="b"))
    (problem,) = desk.tick().problems
    assert problem.problem == (
        "scaledobject.keda.sh default/a and scaledobject.keda.sh default/b both want it: neither "
        "has its way"
    )
    assert desk.replicas(target) == 1
    assert desk.tick().changed == ()


def test_a_dry_run_says_what_would_change_and_changes_nothing(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.policy = ClusterPolicy(dry_run=True)
    desk.apply(desk.scaled_object(target), desk.headroom(replicas=2))
    changed = {kept.subject: kept.replicas for kept in desk.tick().changed}
    assert changed == {
        f"Deployment default/{target}": 5,
        f"buffer {desk.name}/{desk.name}-warm": 2,
    }
    assert (desk.replicas(target), desk.buffer()) == (1, None)
    assert desk.states.of("prod") == {}


def test_a_paused_cluster_keeps_what_it_has(desk: Desk) -> None:
    desk.apply(desk.headroom(replicas=2))
    desk.tick()
    desk.policy = ClusterPolicy(paused=True)
    desk.apply()
    assert desk.tick().paused
    assert desk.buffer() == 2


def test_a_paused_scaled_object_leaves_its_target_alone(desk: Desk) -> None:
    target = desk.deploy(1)
    document = desk.scaled_object(target)
    document["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    desk.apply(document)
    assert desk.tick().problems == ()
    assert desk.replicas(target) == 1
    document["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-replicas": "3"}
    desk.apply(document)
    desk.tick()
    assert desk.replicas(target) == 3


def test_headroom_grows_with_the_cluster(desk: Desk) -> None:
    desk.apply(desk.headroom(linear={"nodesPerReplica": 1}))
    desk.tick()
    before = desk.buffer()
    assert before is not None
    desk.live.add_nodes(951, 952)
    desk.tick()
    assert desk.buffer() == before + 2


def test_what_users_targets_will_grow_by_is_told_ahead(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target))
    (need,) = desk.tick(NINE - MINUTE).needs
    assert (need.replicas, need.since) == (5, NINE)
    assert need.target.name == target


def test_a_cluster_that_wants_nothing_is_not_even_asked(desk: Desk) -> None:
    desk.live.fail_with({"status": 500})
    assert desk.tick().problem == ""


def test_a_capacity_buffer_holds_room_for_pods_like_a_deployments(desk: Desk) -> None:
    body = deployment(desk.name, 5, requests={"cpu": "250m", "memory": "64Mi"})
    body["spec"]["template"]["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    desk.live.create(DEPLOYMENTS, body)
    desk.apply(capacity_buffer(desk, percentage=30))
    desk.tick()
    made = desk.live.api.get(f"{DEPLOYMENTS}/capacity-buffer-{desk.name}").json()["spec"]
    pod = made["template"]["spec"]
    assert made["replicas"] == 2
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "250m", "memory": "64Mi"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert "app" not in made["template"]["metadata"]["labels"]
    desk.apply(capacity_buffer(desk, limits={"cpu": "1100m"}))
    desk.tick()
    assert desk.replicas(f"capacity-buffer-{desk.name}") == 4
    desk.apply(capacity_buffer(desk, replicas=9, limits={"cpu": 1, "memory": "128Mi"}))
    desk.tick()
    assert desk.replicas(f"capacity-buffer-{desk.name}") == 2
    desk.apply()
    desk.tick()
    assert desk.replicas(f"capacity-buffer-{desk.name}") is None


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"nvidia.com/gpu": 1}, "its limits are of nothing that the pods of Deployment"),
        (None, "there is no Deployment"),
    ],
)
def test_a_capacity_buffer_that_comes_to_nothing_is_a_status(
    desk: Desk, limits: dict[str, Any] | None, said: str
) -> None:
    if limits:
        desk.deploy(1)
    desk.apply(capacity_buffer(desk, limits=limits or {"cpu": 1}))
    (problem,) = desk.tick().problems
    assert problem.problem.startswith(said)


def test_somebody_elses_deployment_of_a_buffers_name_is_not_touched(desk: Desk) -> None:
    name = f"{desk.name}-warm"
    desk.live.create(DEPLOYMENTS, deployment(name, 4))
    document = desk.headroom(replicas=1)
    document["spec"]["namespace"] = "default"
    desk.apply(document)
    (problem,) = desk.tick().problems
    assert problem.problem == f"Deployment default/{name} is somebody else's"
    assert desk.replicas(name) == 4
    desk.apply()
    desk.tick()
    assert desk.replicas(name) == 4


@pytest.mark.parametrize("goes", [True, False])
def test_a_deployment_that_has_lost_leeways_labels_is_still_leeways(desk: Desk, goes: bool) -> None:
    desk.apply(desk.headroom(replicas=2))
    desk.tick()
    path = f"/apis/apps/v1/namespaces/{desk.name}/deployments/{desk.name}-warm"
    labels = desk.live.api.get(path).json()["metadata"]["labels"]
    bare = {"metadata": {"labels": dict.fromkeys(labels)}, "spec": {"replicas": 9}}
    assert desk.live.patch(path, bare).status_code == 200
    desk.apply(*([] if goes else [desk.headroom(replicas=2)]))
    assert desk.tick().problems == ()
    assert desk.buffer() == (None if goes else 2)
    if not goes:
        assert desk.live.api.get(path).json()["metadata"]["labels"] == labels
