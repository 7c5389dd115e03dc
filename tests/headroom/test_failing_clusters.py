"""A run of headroom continues where it can if the cluster fails, refuses or does not answer."""

from datetime import timedelta

import pytest

from tests.headroom.headroom_run import MINUTE, NINE, WINDOW, HeadroomRun, capacity_buffer
from tests.sandbox.kubernetes.live import DEPLOYMENTS, deployment


def test_the_first_run_after_an_outage_of_the_api_server_applies_all_sizes(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(1)
    headroom.apply(
        headroom.scaled_object(target), headroom.headroom(windows=[WINDOW], leadTime="1m")
    )
    headroom.run(NINE - 10 * MINUTE)
    assert (headroom.replicas(target), headroom.buffer()) == (0, 0)
    headroom.live.fail_with({"status": 503})
    for minutes in range(-9, 1):
        problem = headroom.run(NINE + minutes * MINUTE).problem
        assert problem is not None
        assert problem.code == "HeadroomNotReconciled"
        assert "ClusterUnavailable" in problem.message
    headroom.live.fail_with()
    headroom.run(NINE + MINUTE)
    assert (headroom.replicas(target), headroom.buffer()) == (5, 3)


def test_a_refused_restore_keeps_the_status_and_stops_no_other_object(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(1)
    restore = {"restoreToOriginalReplicaCount": True}
    headroom.apply(headroom.scaled_object(target, advanced=restore), headroom.headroom(replicas=1))
    headroom.run()
    headroom.apply(headroom.headroom(replicas=2))
    headroom.live.fail_with({"status": 403, "verb": "get", "resource": "deployments/scale"})
    (problem,) = headroom.run().problems
    assert problem.subject == f"Deployment default/{target}"
    headroom.live.fail_with()
    assert headroom.buffer() == 2
    assert headroom.run().problems == ()
    assert f"Deployment default/{target}" not in headroom.statuses()


def test_a_refused_priority_class_is_a_problem_and_the_run_continues(headroom: HeadroomRun) -> None:
    target = headroom.deploy(1)
    headroom.apply(headroom.scaled_object(target), headroom.headroom(replicas=1))
    headroom.live.fail_with({"status": 403, "verb": "patch", "resource": "priorityclasses"})
    subjects = {problem.subject for problem in headroom.run().problems}
    assert "PriorityClass leeway-headroom--10" in subjects
    assert headroom.replicas(target) == 5
    headroom.live.fail_with()
    assert headroom.run().problems == ()
    assert headroom.buffer() == 1


@pytest.mark.parametrize(("resource", "grown"), [("pods", 3), ("nodes", 1)])
def test_a_refused_list_stops_only_the_buffers_that_need_it_for_their_size(
    headroom: HeadroomRun, resource: str, grown: int
) -> None:
    target = headroom.deploy(1)
    document = headroom.headroom(replicas=1, linear={"nodesPerReplica": 1, "max": 1})
    headroom.apply(headroom.scaled_object(target), document)
    headroom.run(NINE - 10 * MINUTE)
    assert (headroom.buffer(), headroom.replicas(target)) == (1, 0)
    document["spec"]["buffers"][0]["replicas"] = 3
    headroom.apply(headroom.scaled_object(target), document)
    headroom.live.fail_with({"status": 403, "verb": "list", "resource": resource})
    (problem,) = headroom.run(NINE).problems
    assert problem.subject == f"the cluster's {resource}"
    headroom.live.fail_with()
    assert (headroom.buffer(), headroom.replicas(target)) == (grown, 5)
    assert headroom.run(NINE + MINUTE).problems == ()
    assert (headroom.buffer(), headroom.replicas(target)) == (3, 5)


WEBHOOK_DOWN = {"status": 500, "verb": "patch"}
"""The answer of the API server if a required admission webhook cannot be called."""


def test_a_failing_webhook_is_a_problem_of_its_object_only(headroom: HeadroomRun) -> None:
    target = headroom.deploy(1)
    document = headroom.headroom(replicas=1)
    document["spec"]["buffers"].append({**document["spec"]["buffers"][0], "name": "hot"})
    headroom.apply(headroom.scaled_object(target), document)
    headroom.live.fail_with({**WEBHOOK_DOWN, "resource": "deployments", "count": 1})
    report = headroom.run()
    assert report.problem is None
    (problem,) = report.problems
    assert problem.subject.startswith(f"buffer {headroom.name}/{headroom.name}-")
    assert problem.problem is not None
    assert problem.problem.code == "HeadroomObjectUnavailable"
    assert "500" in problem.problem.message
    assert problem.replicas is None, "no size was applied yet"
    assert report.replicas == 1
    assert {headroom.buffer(), headroom.replicas(f"{headroom.name}-hot", headroom.name)} == {
        1,
        None,
    }
    assert headroom.replicas(target) == 5
    assert headroom.run().problems == ()
    assert (headroom.buffer(), headroom.replicas(f"{headroom.name}-hot", headroom.name)) == (1, 1)


def test_a_target_with_a_failing_webhook_keeps_its_size_and_the_others_are_scaled(
    headroom: HeadroomRun,
) -> None:
    target = headroom.deploy(1)
    headroom.apply(headroom.scaled_object(target))
    headroom.run()
    headroom.apply(headroom.scaled_object(target, minReplicaCount=2), headroom.headroom(replicas=1))
    headroom.live.fail_with({**WEBHOOK_DOWN, "resource": "deployments/scale"})
    (problem,) = headroom.run(NINE + 60 * MINUTE).problems
    assert (problem.subject, problem.replicas) == (f"Deployment default/{target}", 5)
    assert (headroom.replicas(target), headroom.buffer()) == (5, 1)
    headroom.live.fail_with()
    assert headroom.run(NINE + 61 * MINUTE).problems == ()
    assert headroom.replicas(target) == 2


@pytest.mark.parametrize("status", [403, 500])
def test_a_failed_deletion_is_retried_and_stops_no_other_object(
    headroom: HeadroomRun, status: int
) -> None:
    target = headroom.deploy(1)
    headroom.apply(headroom.headroom(replicas=1))
    headroom.run()
    headroom.apply(headroom.scaled_object(target))
    headroom.live.fail_with({"status": status, "verb": "delete", "resource": "deployments"})
    (problem,) = headroom.run().problems
    assert problem.subject == f"buffer {headroom.name}/{headroom.name}-warm"
    assert (headroom.replicas(target), headroom.buffer()) == (5, 1)
    headroom.live.fail_with()
    assert headroom.run().problems == ()
    assert headroom.buffer() is None


def test_a_buffer_whose_pod_template_cannot_be_read_keeps_its_size(headroom: HeadroomRun) -> None:
    headroom.deploy(5)
    headroom.apply(capacity_buffer(headroom, replicas=2))
    headroom.run()
    headroom.live.fail_with({"status": 500, "verb": "get", "resource": "deployments"})
    report = headroom.run()
    assert [one.subject for one in report.problems] == [f"capacitybuffer default/{headroom.name}"]
    assert (report.changed, report.replicas) == (report.problems, 2)
    headroom.live.fail_with()
    assert headroom.replicas(f"capacity-buffer-{headroom.name}") == 2
    assert headroom.run().problems == ()


def test_a_run_ends_if_the_api_server_fails_for_twenty_seconds(
    headroom: HeadroomRun,
) -> None:
    names = [f"{headroom.name}-{letter}" for letter in "abc"]
    for name in names:
        headroom.live.create(DEPLOYMENTS, deployment(name, 1))
    headroom.apply(*(headroom.scaled_object(name) for name in names))
    headroom.clock_step = timedelta(seconds=12)
    headroom.live.fail_with({"status": 504, "resource": "deployments/scale", "count": 2})
    problem = headroom.run().problem
    assert problem is not None
    assert "ClusterUnavailable: 504" in problem.message
    assert [headroom.replicas(name) for name in names] == [1, 1, 1], "the third was not requested"
    headroom.clock_step = timedelta(0)
    assert headroom.run().problems == ()
    assert [headroom.replicas(name) for name in names] == [5, 5, 5]


def test_a_run_that_fails_later_loses_nothing_that_it_has_changed(headroom: HeadroomRun) -> None:
    target = headroom.deploy(2)
    headroom.apply(
        headroom.headroom(replicas=1),
        headroom.scaled_object(target, advanced={"restoreToOriginalReplicaCount": True}),
        headroom.scaled_object("down", scaleTargetRef={"kind": "StatefulSet", "name": "down"}),
    )
    headroom.clock_step = timedelta(seconds=25)
    headroom.live.fail_with({"status": 504, "resource": "statefulsets/scale"})
    assert headroom.run().problem is not None
    assert (headroom.buffer(), headroom.replicas(target)) == (1, 5)
    headroom.clock_step = timedelta(0)
    headroom.live.fail_with()
    headroom.apply()
    assert headroom.run().problems == ()
    assert (headroom.buffer(), headroom.replicas(target)) == (None, 2)
    assert headroom.table.items == {}
