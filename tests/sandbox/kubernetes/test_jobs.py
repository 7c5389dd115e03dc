"""Jobs count how their pods end, evicted ones included."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live

_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_TRACKING = "batch.kubernetes.io/job-tracking"


@pytest.fixture(scope="module")
def world(live: Live) -> Live:
    """Return a cluster of two nodes."""
    live.add_nodes(1, 2)
    return live


def job(name: str, ends_after: str = "0s", **spec: Any) -> dict[str, Any]:
    """Return a Job of one pod that runs for an hour."""
    annotations = {"runs-for": "1h", "ends-after": ends_after}
    keyed = {f"sandbox.leeway.sh/{key}": value for key, value in annotations.items()}
    pod = {"containers": [{"name": "c", "image": "pause"}], "restartPolicy": "Never"}
    template = {"metadata": {"annotations": keyed, "labels": {"app": name}}, "spec": pod}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def started(live: Live, name: str, **spec: Any) -> dict[str, Any]:
    """Create a Job and return its pod once that runs."""
    live.create(_JOBS, job(name, **spec))
    [pod] = live.until(lambda: live.running(f"app={name}"))
    return pod


def status(live: Live, name: str) -> dict[str, Any]:
    """Return a Job's status."""
    found: dict[str, Any] = live.api.get(f"{_JOBS}/{name}").json()["status"]
    return found


def test_pods_of_a_job_carry_its_labels_and_the_tracking_finalizer(world: Live) -> None:
    pod = started(world, "labelled")
    uid = world.api.get(f"{_JOBS}/labelled").json()["metadata"]["uid"]

    labels = pod["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "labelled"
    assert labels["batch.kubernetes.io/controller-uid"] == labels["controller-uid"] == uid
    assert pod["metadata"]["finalizers"] == [_TRACKING]
    selector = world.api.get(f"{_JOBS}/labelled").json()["spec"]["selector"]
    assert selector == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def test_an_evicted_pod_counts_as_failed(world: Live) -> None:
    pod = started(world, "unforgiving", backoffLimit=0)

    world.evict(pod["metadata"]["name"])

    world.until(lambda: status(world, "unforgiving").get("conditions"))
    [condition] = status(world, "unforgiving")["conditions"]
    assert (condition["type"], condition["reason"]) == ("Failed", "BackoffLimitExceeded")
    assert status(world, "unforgiving")["failed"] == 1
    world.until(lambda: not world.pods("app=unforgiving"))


def test_an_evicted_pod_is_replaced_within_the_backoff_limit(world: Live) -> None:
    first = started(world, "forgiving", backoffLimit=1)

    world.evict(first["metadata"]["name"])

    def second() -> list[dict[str, Any]]:
        uid = first["metadata"]["uid"]
        return [one for one in world.running("app=forgiving") if one["metadata"]["uid"] != uid]

    [pod] = world.until(second)
    assert status(world, "forgiving")["failed"] == 1
    world.evict(pod["metadata"]["name"])
    world.until(lambda: status(world, "forgiving").get("conditions"))
    assert status(world, "forgiving")["failed"] == 2


def test_a_policy_ignores_disruptions_and_replaces_the_pod_when_it_has_ended(world: Live) -> None:
    pattern = {"type": "DisruptionTarget", "status": "True"}
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [pattern]}]}
    first = started(world, "tolerant", ends_after="1s", backoffLimit=0, podFailurePolicy=policy)

    world.evict(first["metadata"]["name"])

    world.until(lambda: status(world, "tolerant").get("terminating") == 1)
    assert len(world.pods("app=tolerant")) == 1
    [second] = world.until(lambda: world.running("app=tolerant"))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert status(world, "tolerant")["failed"] == 0


def test_a_policy_fails_the_job_on_an_exit_code(world: Live) -> None:
    codes = {"operator": "In", "values": [143]}
    policy = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    pod = started(world, "strict", backoffLimit=6, podFailurePolicy=policy)

    world.evict(pod["metadata"]["name"])

    world.until(lambda: status(world, "strict").get("conditions"))
    assert status(world, "strict")["conditions"][0]["reason"] == "PodFailurePolicy"


def test_a_pod_that_dies_with_its_node_counts_as_failed_and_goes(world: Live) -> None:
    [name] = world.add_nodes(9, role="doomed")
    pod = job("bereaved", backoffLimit=0)
    pod["spec"]["template"]["spec"]["nodeSelector"] = {"role": "doomed"}
    world.create(_JOBS, pod)
    world.until(lambda: world.running("app=bereaved"))

    world.report(f"i-{8:017x}", "terminated")

    world.until(lambda: world.api.get(f"/api/v1/nodes/{name}").status_code == 404)
    world.until(lambda: status(world, "bereaved").get("failed") == 1)
    world.until(lambda: not world.pods("app=bereaved"))


def test_the_pods_of_a_deleted_job_go_with_it(world: Live) -> None:
    pod = started(world, "short-lived")

    world.api.delete(f"{_JOBS}/short-lived")

    path = f"{PODS}/{pod['metadata']['name']}"
    world.until(lambda: world.api.get(path).status_code == 404)


def test_a_deleted_pod_has_ended_before_it_goes(world: Live) -> None:
    pod = job("held")["spec"]["template"]
    pod["metadata"] |= {"name": "held", "finalizers": ["example.com/wait"]}
    world.create(PODS, pod)
    path = f"{PODS}/held"
    world.until(lambda: world.api.get(path).json()["status"]["phase"] == "Running")

    world.api.delete(path)

    world.until(lambda: world.api.get(path).json()["status"]["phase"] == "Failed")
    [status] = world.api.get(path).json()["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 143
    world.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "hook",
    [{"sleep": {"seconds": 2}}, {"exec": {"command": ["sh", "-c", "nginx -s quit; sleep 2"]}}],
)
def test_a_pre_stop_hook_that_sleeps_takes_its_time(world: Live, hook: dict[str, Any]) -> None:
    name = "sleeps-by-" + next(iter(hook))
    container = {"name": "c", "image": "pause", "lifecycle": {"preStop": hook}}
    world.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}})
    world.until(lambda: world.api.get(f"{PODS}/{name}").json()["status"]["phase"] == "Running")

    world.api.delete(f"{PODS}/{name}")

    world.until(lambda: world.api.get(f"{PODS}/{name}").status_code == 404)
    whole = {
        one["kind"]: one["at"] for one in world.journal() if one.get("pod") == f"default/{name}"
    }
    assert whole["pod-ended"] - whole["pod-deletion"] >= 2


def test_a_pre_stop_hook_is_cut_by_the_grace(world: Live) -> None:
    container = {
        "name": "c",
        "image": "pause",
        "lifecycle": {"preStop": {"sleep": {"seconds": 90}}},
    }
    world.create(PODS, {"metadata": {"name": "cut"}, "spec": {"containers": [container]}})
    world.until(lambda: world.api.get(f"{PODS}/cut").json()["status"]["phase"] == "Running")

    world.evict("cut", gracePeriodSeconds=1)

    world.until(lambda: world.api.get(f"{PODS}/cut").status_code == 404)
    [end] = [one for one in world.journal("pod-ended") if one["pod"] == "default/cut"]
    assert end["how"] == "grace-ran-out"
