"""Headroom is looked after, tick by tick, in a living cluster."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.cluster.http_workloads import HttpWorkloads
from leeway.cluster.kubeconfig import kubeconfig_connection
from leeway.manifests.interpreting import Written
from leeway.manifests.reading import read_manifests
from leeway.policies import ClusterPolicy
from leeway.upkeep import KeepHeadroom, Tended

from tests.layer.headroom_states import HeadroomInMemory
from tests.sandbox.kubernetes.live import DEPLOYMENTS, Live, deployment

NUMBERS = count(1)
NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Desk:
    """What users wrote, the time, and what is remembered, each as a test sets it."""

    def __init__(self, live: Live, workloads: HttpWorkloads) -> None:
        self.live = live
        self.written: tuple[Written, ...] = ()
        self.policy = ClusterPolicy()
        self.unreadable: frozenset[str] = frozenset()
        self.states = HeadroomInMemory()
        self.at = NINE
        self.takes = timedelta(0)
        """What every look at the clock finds to have passed."""
        self.seen: list[Tended] = []
        self.name = f"t{next(NUMBERS)}"
        self._keeper = KeepHeadroom(self, self.states, lambda _: workloads, self, self)

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy

    def manifests(self, cluster: str, resources: Sequence[str]) -> tuple[Written, ...]:
        return tuple(one for one in self.written if one.kind.resource in resources)

    def unread(self, cluster: str, resources: Sequence[str]) -> frozenset[str]:
        return self.unreadable

    def faulty(self, cluster: str) -> int:
        return len(self.unreadable)

    def tended(self, tended: Tended) -> None:
        self.seen.append(tended)

    def now(self) -> datetime:
        self.at += self.takes
        return self.at

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a tick waits for nothing, let alone {seconds} s")

    def apply(self, *documents: dict[str, Any]) -> None:
        """Have these manifests, and no others."""
        reading = read_manifests(yaml.safe_dump_all(documents), "desk")
        assert not reading.problems
        self.written = reading.written

    def tick(self, at: datetime | None = None) -> Tended:
        self.at = at or self.at
        (tended,) = self._keeper.tick(["prod"])
        return tended

    def replicas(self, name: str, namespace: str = "default") -> int | None:
        """The size that a Deployment is to have; None where there is none."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        found = self.live.api.get(path)
        return int(found.json()["spec"]["replicas"]) if found.status_code == 200 else None

    def buffer(self) -> int | None:
        """The size of the buffer `warm` of this test's Headroom."""
        return self.replicas(f"{self.name}-warm", self.name)

    def headroom(self, **buffer: Any) -> dict[str, Any]:
        """A Headroom of this test's own, in a namespace of its own."""
        sized = {"name": "warm", "pod": {"requests": {"cpu": "10m"}}, **buffer}
        return {
            "apiVersion": "leeway.sh/v1",
            "kind": "Headroom",
            "metadata": {"name": self.name},
            "spec": {"namespace": self.name, "buffers": [sized]},
        }

    def scaled_object(
        self, target: str, name: str = "", namespace: str = "default", **spec: Any
    ) -> dict[str, Any]:
        """A ScaledObject that wants 5 from nine to ten."""
        cron = {"timezone": "UTC", "start": "0 9 * * *", "end": "0 10 * * *"}
        trigger = {"type": "cron", "metadata": {**cron, "desiredReplicas": "5"}}
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name or target, "namespace": namespace},
            "spec": {"scaleTargetRef": {"name": target}, "triggers": [trigger], **spec},
        }

    def deploy(self, replicas: int) -> str:
        """Somebody's Deployment of this test's own."""
        self.live.create(DEPLOYMENTS, deployment(self.name, replicas))
        return self.name


WINDOW = {"timezone": "UTC", "start": "0 9 * * *", "end": "0 10 * * *", "replicas": 3}


@pytest.fixture
def desk(live: Live, kubeconfig: Path) -> Iterator[Desk]:
    live.fail_with()
    connection = kubeconfig_connection(kubeconfig)
    desk = Desk(live, HttpWorkloads(connection))
    yield desk
    live.fail_with()
    desk.apply()
    desk.unreadable, desk.policy, desk.takes = frozenset(), ClusterPolicy(), timedelta(0)
    desk.tick()
    connection.close()


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
    annotations = desk.live.api.get(f"{DEPLOYMENTS}/{target}").json()["metadata"]["annotations"]
    assert "leeway.sh/original-replicas" not in annotations
    assert desk.states.of("prod") == {}


def test_two_ticks_at_once_keep_the_size_that_a_target_had_before(desk: Desk) -> None:
    target = desk.deploy(2)
    desk.apply(desk.scaled_object(target))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: desk.tick(), range(4)))
    annotations = desk.live.api.get(f"{DEPLOYMENTS}/{target}").json()["metadata"]["annotations"]
    assert annotations["leeway.sh/original-replicas"] == "2"
    assert desk.replicas(target) == 5


def test_a_target_that_does_not_exist_is_a_status(desk: Desk) -> None:
    desk.apply(desk.scaled_object("nowhere"), desk.headroom(replicas=1))
    (problem,) = desk.tick().problems
    assert problem.problem == "there is no Deployment nowhere in namespace default"
    assert desk.buffer() == 1


def test_a_target_in_another_namespace_is_a_status_that_says_where(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target, namespace="elsewhere"))
    (problem,) = desk.tick().problems
    assert problem.problem == (
        f"there is no Deployment {target} in namespace elsewhere, but there is one in default: a "
        "ScaledObject scales in its own namespace only"
    )
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


def test_an_api_server_that_was_away_for_ten_ticks_finds_all_right_at_the_next(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target), desk.headroom(windows=[WINDOW], leadTime="1m"))
    desk.tick(NINE - 10 * MINUTE)
    assert (desk.replicas(target), desk.buffer()) == (0, 0)
    desk.live.fail_with({"status": 503})
    for minutes in range(-9, 1):
        assert desk.tick(NINE + minutes * MINUTE).problem.startswith("ClusterUnavailable")
    desk.live.fail_with()
    desk.tick(NINE + MINUTE)
    assert (desk.replicas(target), desk.buffer()) == (5, 3)


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


def capacity_buffer(desk: Desk, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": desk.name, "namespace": "default"},
        "spec": {"scalableRef": {"kind": "Deployment", "name": desk.name}, **spec},
    }


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


def test_a_target_that_may_no_longer_be_touched_is_kept_in_mind_and_stops_nothing(
    desk: Desk,
) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target), desk.headroom(replicas=1))
    desk.tick()
    desk.apply(desk.headroom(replicas=2))
    desk.live.fail_with({"status": 403, "verb": "get", "resource": "deployments"})
    (problem,) = desk.tick().problems
    assert problem.subject == f"Deployment default/{target}"
    desk.live.fail_with()
    assert desk.buffer() == 2
    assert desk.tick().problems == ()
    assert f"Deployment default/{target}" not in desk.states.of("prod")


def test_a_shared_object_that_is_refused_is_said_and_the_rest_goes_on(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target), desk.headroom(replicas=1))
    desk.live.fail_with({"status": 403, "verb": "patch", "resource": "namespaces"})
    subjects = {problem.subject for problem in desk.tick().problems}
    assert f"Namespace {desk.name}" in subjects
    assert desk.replicas(target) == 5
    desk.live.fail_with()
    assert desk.tick().problems == ()
    assert desk.buffer() == 1


WEBHOOK_DOWN = {"status": 500, "verb": "patch"}
"""What the API server answers when an admission webhook that must be asked can't be."""


def test_a_webhook_that_fails_on_one_object_is_that_objects_problem(desk: Desk) -> None:
    target = desk.deploy(1)
    document = desk.headroom(replicas=1)
    document["spec"]["buffers"].append({**document["spec"]["buffers"][0], "name": "hot"})
    desk.apply(desk.scaled_object(target), document)
    desk.live.fail_with({**WEBHOOK_DOWN, "resource": "deployments", "count": 1})
    tended = desk.tick()
    assert tended.problem == ""
    (problem,) = tended.problems
    assert problem.subject.startswith(f"buffer {desk.name}/{desk.name}-")
    assert problem.problem.startswith("500")
    assert problem.replicas is None, "it has no size yet"
    assert tended.replicas == 1
    assert {desk.buffer(), desk.replicas(f"{desk.name}-hot", desk.name)} == {1, None}
    assert desk.replicas(target) == 5
    assert desk.tick().problems == ()
    assert (desk.buffer(), desk.replicas(f"{desk.name}-hot", desk.name)) == (1, 1)


def test_a_webhook_that_fails_on_a_target_leaves_it_its_size_and_the_others_theirs(
    desk: Desk,
) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target))
    desk.tick()
    desk.apply(desk.scaled_object(target, minReplicaCount=2), desk.headroom(replicas=1))
    desk.live.fail_with({**WEBHOOK_DOWN, "resource": "deployments/scale"})
    (problem,) = desk.tick(NINE + 60 * MINUTE).problems
    assert (problem.subject, problem.replicas) == (f"Deployment default/{target}", 5)
    assert (desk.replicas(target), desk.buffer()) == (5, 1)
    desk.live.fail_with()
    assert desk.tick(NINE + 61 * MINUTE).problems == ()
    assert desk.replicas(target) == 2


@pytest.mark.parametrize("status", [403, 500])
def test_a_deployment_that_can_not_be_removed_is_tried_again_and_stops_nothing(
    desk: Desk, status: int
) -> None:
    target = desk.deploy(1)
    desk.apply(desk.headroom(replicas=1))
    desk.tick()
    desk.apply(desk.scaled_object(target))
    desk.live.fail_with({"status": status, "verb": "delete", "resource": "deployments"})
    (problem,) = desk.tick().problems
    assert problem.subject == f"buffer {desk.name}/{desk.name}-warm"
    assert (desk.replicas(target), desk.buffer()) == (5, 1)
    desk.live.fail_with()
    assert desk.tick().problems == ()
    assert desk.buffer() is None


def test_room_for_pods_whose_template_can_not_be_read_stays(desk: Desk) -> None:
    desk.deploy(5)
    desk.apply(capacity_buffer(desk, replicas=2))
    desk.tick()
    desk.live.fail_with({"status": 500, "verb": "get", "resource": "deployments"})
    tended = desk.tick()
    assert [one.subject for one in tended.problems] == [f"capacitybuffer default/{desk.name}"]
    assert (tended.changed, tended.replicas) == (tended.problems, 2)
    desk.live.fail_with()
    assert desk.replicas(f"capacity-buffer-{desk.name}") == 2
    assert desk.tick().problems == ()


def test_an_api_server_that_keeps_failing_slowly_is_left_alone_until_the_next_tick(
    desk: Desk,
) -> None:
    names = [f"{desk.name}-{letter}" for letter in "abc"]
    for name in names:
        desk.live.create(DEPLOYMENTS, deployment(name, 1))
    desk.apply(*(desk.scaled_object(name) for name in names))
    desk.takes = timedelta(seconds=12)
    desk.live.fail_with({"status": 504, "resource": "deployments/scale", "count": 2})
    assert desk.tick().problem.startswith("ClusterUnavailable: 504")
    assert [desk.replicas(name) for name in names] == [1, 1, 1], "the third was not asked for"
    desk.takes = timedelta(0)
    assert desk.tick().problems == ()
    assert [desk.replicas(name) for name in names] == [5, 5, 5]
