"""The headroom of a running cluster, reconciled run by run."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from leeway.headroom.reasons import DEPLOYMENT_NOT_OWNED, SCALE_CONFLICT, TARGET_NOT_FOUND
from leeway.headroom.reconciler import ORIGINAL
from leeway.policy.rules import ClusterPolicy

from tests.headroom.headroom_run import MINUTE, NINE, WINDOW, HeadroomRun, capacity_buffer
from tests.sandbox.kubernetes.live import DEPLOYMENTS, deployment


def test_a_window_has_its_pods_from_its_lead_before_the_start_until_its_end(
    headroom: HeadroomRun,
) -> None:
    headroom.apply(headroom.headroom(windows=[WINDOW], leadTime="5m"))
    sizes = {}
    for minutes in (-7, -6, -5, 0, 59, 60):
        headroom.run(NINE + minutes * MINUTE)
        sizes[minutes] = headroom.buffer()
    # One minute before its lead: the next run would be too late.
    assert sizes == {-7: 0, -6: 3, -5: 3, 0: 3, 59: 3, 60: 0}


def test_a_second_run_without_changes_writes_nothing(headroom: HeadroomRun) -> None:
    headroom.apply(headroom.headroom(replicas=2))
    first = headroom.run()
    generation = headroom.live.api.get(
        f"/apis/apps/v1/namespaces/{headroom.name}/deployments/{headroom.name}-warm"
    ).json()["metadata"]["generation"]
    writes = len(headroom.table.written)
    second = headroom.run(NINE + MINUTE)
    assert (len(first.changed), second.changed, len(headroom.table.written)) == (1, (), writes)
    assert generation == 1


def test_the_number_of_pending_pods_is_stored_and_is_not_reported_as_a_change(
    headroom: HeadroomRun,
) -> None:
    headroom.apply(headroom.headroom(replicas=2))
    subject = f"buffer {headroom.name}/{headroom.name}-warm"
    headroom.run()
    assert headroom.statuses()[subject].pending == 2
    deployment = f"/apis/apps/v1/namespaces/{headroom.name}/deployments/{headroom.name}-warm"
    status = {"status": {"replicas": 2, "readyReplicas": 1}}
    headers = {"Content-Type": "application/merge-patch+json"}

    def is_stored() -> bool:
        # The Deployment's controller may write its status once more after the rollout has begun.
        api = headroom.live.api
        assert api.patch(f"{deployment}/status", json=status, headers=headers).is_success
        assert headroom.run(NINE + MINUTE).changed == ()
        return headroom.statuses()[subject].pending == 1

    headroom.live.until(is_stored)


def test_drift_is_corrected(headroom: HeadroomRun) -> None:
    headroom.apply(headroom.headroom(replicas=2))
    headroom.run()
    path = f"/apis/apps/v1/namespaces/{headroom.name}/deployments/{headroom.name}-warm"
    headroom.live.patch(path, {"spec": {"replicas": 40}})
    headroom.run()
    assert headroom.buffer() == 2
    headroom.live.api.delete(path)
    headroom.run()
    assert headroom.buffer() == 2


def test_the_objects_of_a_deleted_manifest_are_deleted(headroom: HeadroomRun) -> None:
    document = headroom.headroom(replicas=1)
    document["spec"]["priority"] = -4
    headroom.apply(document)
    headroom.run()
    priority = "/apis/scheduling.k8s.io/v1/priorityclasses/leeway-headroom--4"
    assert headroom.live.api.get(priority).status_code == 200
    headroom.apply()
    headroom.run()
    assert headroom.buffer() is None
    assert headroom.live.api.get(priority).status_code == 404
    assert headroom.live.api.get(f"/api/v1/namespaces/{headroom.name}").status_code == 200
    assert headroom.statuses() == {}


def test_the_objects_of_an_unreadable_manifest_are_kept(headroom: HeadroomRun) -> None:
    headroom.apply(headroom.headroom(replicas=1))
    headroom.run()
    headroom.apply()
    headroom.unreadable = frozenset({f"headroom.leeway.sh {headroom.name}"})
    assert headroom.run().invalid_manifests == 1
    assert headroom.buffer() == 1


def test_an_unreadable_manifest_keeps_only_its_own_objects(headroom: HeadroomRun) -> None:
    deleted, unread = headroom.headroom(replicas=1), headroom.headroom(replicas=1)
    unread["metadata"]["name"] = f"{headroom.name}-b"
    for document in (deleted, unread):
        document["spec"]["priority"] = -5
    headroom.apply(deleted, unread)
    headroom.run()
    priority = "/apis/scheduling.k8s.io/v1/priorityclasses/leeway-headroom--5"
    headroom.apply()
    headroom.unreadable = frozenset({f"headroom.leeway.sh {headroom.name}-b"})
    headroom.run()
    assert headroom.buffer() is None
    assert headroom.replicas(f"{headroom.name}-b-warm", headroom.name) == 1
    assert headroom.live.api.get(priority).status_code == 200, "the other buffer still has it"
    headroom.unreadable = frozenset()
    headroom.run()
    assert headroom.replicas(f"{headroom.name}-b-warm", headroom.name) is None
    assert headroom.live.api.get(priority).status_code == 404
    assert headroom.statuses() == {}


def test_a_target_is_scaled_by_its_windows_and_nothing_else_of_it_changes(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(2)
    before = headroom.live.api.get(f"{DEPLOYMENTS}/{target}").json()["spec"]
    headroom.apply(headroom.scaled_object(target, minReplicaCount=1))
    sizes = []
    for minutes in (-1, 0, 59, 60):
        headroom.run(NINE + minutes * MINUTE)
        sizes.append(headroom.replicas(target))
    assert sizes == [1, 5, 5, 1]
    after = headroom.live.api.get(f"{DEPLOYMENTS}/{target}").json()["spec"]
    assert {**after, "replicas": 0} == {**before, "replicas": 0}


@pytest.mark.parametrize(("restore", "left_at"), [(True, 2), (False, 5)])
def test_a_target_is_restored_on_request_when_its_manifest_is_deleted(
    headroom: HeadroomRun, restore: bool, left_at: int
) -> None:
    target = headroom.deploy(2)
    headroom.apply(
        headroom.scaled_object(target, advanced={"restoreToOriginalReplicaCount": restore})
    )
    headroom.run()
    headroom.apply()
    headroom.run()
    assert headroom.replicas(target) == left_at
    metadata = headroom.live.api.get(f"{DEPLOYMENTS}/{target}").json()["metadata"]
    assert not any("leeway" in key for key in metadata.get("annotations", {}))
    assert headroom.statuses() == {}


def test_another_object_with_the_name_of_a_target_is_not_restored(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(2)
    restore = {"restoreToOriginalReplicaCount": True}
    headroom.apply(headroom.scaled_object(target, advanced=restore))
    headroom.run()
    headroom.live.api.delete(f"{DEPLOYMENTS}/{target}")
    headroom.live.until(lambda: headroom.replicas(target) is None)
    headroom.deploy(7)
    headroom.apply()
    headroom.run()
    assert headroom.replicas(target) == 7


def test_each_object_with_the_name_of_a_target_has_its_own_original_scale(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(2)
    restore = {"restoreToOriginalReplicaCount": True}
    headroom.apply(headroom.scaled_object(target, advanced=restore))
    headroom.run()
    headroom.live.api.delete(f"{DEPLOYMENTS}/{target}")
    headroom.live.until(lambda: headroom.replicas(target) is None)
    headroom.deploy(3)
    headroom.run()
    assert headroom.replicas(target) == 5
    headroom.apply()
    headroom.run()
    assert headroom.replicas(target) == 3
    assert headroom.table.items == {}


def test_concurrent_runs_keep_the_original_scale_of_a_target(headroom: HeadroomRun) -> None:
    target = headroom.deploy(2)
    headroom.apply(headroom.scaled_object(target))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: headroom.run(), range(4)))
    (original,) = headroom.table.list(ORIGINAL, cluster="prod")
    assert (original.subject, original.replicas) == (f"Deployment default/{target}", 2)
    assert headroom.replicas(target) == 5


def test_a_target_that_does_not_exist_is_a_problem(headroom: HeadroomRun) -> None:
    headroom.apply(headroom.scaled_object("nowhere"), headroom.headroom(replicas=1))
    (problem,) = headroom.run().problems
    assert problem.problem == TARGET_NOT_FOUND(
        kind="Deployment", name="nowhere", namespace="default"
    )
    assert headroom.buffer() == 1


def test_a_target_in_another_namespace_is_not_scaled(headroom: HeadroomRun) -> None:
    target = headroom.deploy(1)
    headroom.apply(headroom.scaled_object(target, namespace="elsewhere"))
    (problem,) = headroom.run().problems
    assert problem.problem == TARGET_NOT_FOUND(
        kind="Deployment", name=target, namespace="elsewhere"
    )
    assert headroom.replicas(target) == 1


def test_two_manifests_for_one_target_are_a_conflict_and_neither_is_applied(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(1)
    headroom.apply(
        headroom.scaled_object(target, name="a"), headroom.scaled_object(target, name="b")
    )
    (problem,) = headroom.run().problems
    assert problem.problem == SCALE_CONFLICT(
        sources="scaledobject.keda.sh default/a and scaledobject.keda.sh default/b"
    )
    assert headroom.replicas(target) == 1
    assert headroom.run().changed == ()


def test_a_target_is_restored_when_its_conflicting_manifests_are_deleted(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(2)
    restore = {"restoreToOriginalReplicaCount": True}
    first = headroom.scaled_object(target, name="a", advanced=restore)
    headroom.apply(first)
    headroom.run()
    headroom.apply(first, headroom.scaled_object(target, name="b"))
    (problem,) = headroom.run().problems
    assert (problem.replicas, headroom.replicas(target)) == (5, 5)
    headroom.apply()
    headroom.run()
    assert headroom.replicas(target) == 2
    assert headroom.table.items == {}


@pytest.mark.parametrize("unread", ["a", "b"])
def test_a_target_is_kept_while_one_of_its_conflicting_manifests_is_unreadable(
    headroom: HeadroomRun, unread: str
) -> None:
    target = headroom.deploy(2)
    restore = {"restoreToOriginalReplicaCount": True}
    first = headroom.scaled_object(target, name="a", advanced=restore)
    headroom.apply(first)
    headroom.run()
    headroom.apply(first, headroom.scaled_object(target, name="b"))
    headroom.run()
    headroom.apply()
    headroom.unreadable = frozenset({f"scaledobject.keda.sh default/{unread}"})
    headroom.run()
    assert headroom.replicas(target) == 5
    headroom.unreadable = frozenset()
    headroom.run()
    assert headroom.replicas(target) == 2


def test_a_dry_run_reports_changes_and_applies_none(headroom: HeadroomRun) -> None:
    target = headroom.deploy(1)
    headroom.policy = ClusterPolicy(dry_run=True)
    headroom.apply(headroom.scaled_object(target), headroom.headroom(replicas=2))
    changed = {status.subject: status.replicas for status in headroom.run().changed}
    assert changed == {
        f"Deployment default/{target}": 5,
        f"buffer {headroom.name}/{headroom.name}-warm": 2,
    }
    assert (headroom.replicas(target), headroom.buffer()) == (1, None)
    assert headroom.statuses() == {}


def test_the_headroom_of_a_paused_cluster_is_not_changed(headroom: HeadroomRun) -> None:
    headroom.apply(headroom.headroom(replicas=2))
    headroom.run()
    headroom.policy = ClusterPolicy(paused=True)
    headroom.apply()
    assert headroom.run().paused
    assert headroom.buffer() == 2


def test_the_target_of_a_paused_scaled_object_is_not_scaled(headroom: HeadroomRun) -> None:
    target = headroom.deploy(1)
    document = headroom.scaled_object(target)
    document["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    headroom.apply(document)
    assert headroom.run().problems == ()
    assert headroom.replicas(target) == 1
    document["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-replicas": "3"}
    headroom.apply(document)
    headroom.run()
    assert headroom.replicas(target) == 3


def test_headroom_grows_with_the_cluster(headroom: HeadroomRun) -> None:
    headroom.apply(headroom.headroom(linear={"nodesPerReplica": 1}))
    headroom.run()
    before = headroom.buffer()
    assert before is not None
    headroom.live.add_nodes(951, 952)
    headroom.run()
    assert headroom.buffer() == before + 2


def test_the_growth_of_targets_is_reported_ahead(headroom: HeadroomRun) -> None:
    target = headroom.deploy(1)
    headroom.apply(headroom.scaled_object(target))
    (need,) = headroom.run(NINE - MINUTE).needs
    assert (need.replicas, need.since) == (5, NINE)
    assert need.target.name == target


def test_a_cluster_without_headroom_is_not_called(headroom: HeadroomRun) -> None:
    headroom.live.fail_with({"status": 500})
    assert headroom.run().problem is None


def test_a_capacity_buffer_has_the_requests_of_the_pods_of_a_deployment(
    headroom: HeadroomRun,
) -> None:
    body = deployment(headroom.name, 5, requests={"cpu": "250m", "memory": "64Mi"})
    body["spec"]["template"]["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    headroom.live.create(DEPLOYMENTS, body)
    headroom.apply(capacity_buffer(headroom, percentage=30))
    headroom.run()
    made = headroom.live.api.get(f"{DEPLOYMENTS}/capacity-buffer-{headroom.name}").json()["spec"]
    pod = made["template"]["spec"]
    assert made["replicas"] == 2
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "250m", "memory": "64Mi"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert "app" not in made["template"]["metadata"]["labels"]
    headroom.apply(capacity_buffer(headroom, limits={"cpu": "1100m"}))
    headroom.run()
    assert headroom.replicas(f"capacity-buffer-{headroom.name}") == 4
    headroom.apply(capacity_buffer(headroom, replicas=9, limits={"cpu": 1, "memory": "128Mi"}))
    headroom.run()
    assert headroom.replicas(f"capacity-buffer-{headroom.name}") == 2
    headroom.apply()
    headroom.run()
    assert headroom.replicas(f"capacity-buffer-{headroom.name}") is None


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"nvidia.com/gpu": 1}, "BufferWithoutSize"), (None, "TargetNotFound")],
)
def test_a_capacity_buffer_without_size_or_template_is_a_problem(
    headroom: HeadroomRun, limits: dict[str, Any] | None, code: str
) -> None:
    if limits:
        headroom.deploy(1)
    headroom.apply(capacity_buffer(headroom, limits=limits or {"cpu": 1}))
    (problem,) = headroom.run().problems
    assert problem.problem is not None
    assert problem.problem.code == code


def test_a_deployment_of_another_owner_with_the_name_of_a_buffer_is_not_changed(
    headroom: HeadroomRun,
) -> None:
    name = f"{headroom.name}-warm"
    headroom.live.create(DEPLOYMENTS, deployment(name, 4))
    document = headroom.headroom(replicas=1)
    document["spec"]["namespace"] = "default"
    headroom.apply(document)
    (problem,) = headroom.run().problems
    assert problem.problem == DEPLOYMENT_NOT_OWNED(namespace="default", name=name)
    assert headroom.replicas(name) == 4
    headroom.apply()
    headroom.run()
    assert headroom.replicas(name) == 4


@pytest.mark.parametrize("deleted", [True, False])
def test_a_deployment_without_the_labels_of_leeway_is_still_owned_by_leeway(
    headroom: HeadroomRun, deleted: bool
) -> None:
    headroom.apply(headroom.headroom(replicas=2))
    headroom.run()
    path = f"/apis/apps/v1/namespaces/{headroom.name}/deployments/{headroom.name}-warm"
    labels = headroom.live.api.get(path).json()["metadata"]["labels"]
    bare = {"metadata": {"labels": dict.fromkeys(labels)}, "spec": {"replicas": 9}}
    assert headroom.live.patch(path, bare).status_code == 200
    headroom.apply(*([] if deleted else [headroom.headroom(replicas=2)]))
    assert headroom.run().problems == ()
    assert headroom.buffer() == (None if deleted else 2)
    if not deleted:
        assert headroom.live.api.get(path).json()["metadata"]["labels"] == labels
