"""A tick of headroom goes as far as it can where the cluster fails, refuses or does not answer."""

from datetime import timedelta

import pytest

from tests.headroom.reconciling import MINUTE, NINE, WINDOW, Desk, capacity_buffer
from tests.sandbox.kubernetes.live import DEPLOYMENTS, deployment


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


def test_a_target_that_may_no_longer_be_touched_is_kept_in_mind_and_stops_nothing(
    desk: Desk,
) -> None:
    target = desk.deploy(1)
    restore = {"restoreToOriginalReplicaCount": True}
    desk.apply(desk.scaled_object(target, advanced=restore), desk.headroom(replicas=1))
    desk.tick()
    desk.apply(desk.headroom(replicas=2))
    desk.live.fail_with({"status": 403, "verb": "get", "resource": "deployments/scale"})
    (problem,) = desk.tick().problems
    assert problem.subject == f"Deployment default/{target}"
    desk.live.fail_with()
    assert desk.buffer() == 2
    assert desk.tick().problems == ()
    assert f"Deployment default/{target}" not in desk.states.of("prod")


def test_a_shared_object_that_is_refused_is_said_and_the_rest_goes_on(desk: Desk) -> None:
    target = desk.deploy(1)
    desk.apply(desk.scaled_object(target), desk.headroom(replicas=1))
    desk.live.fail_with({"status": 403, "verb": "patch", "resource": "priorityclasses"})
    subjects = {problem.subject for problem in desk.tick().problems}
    assert "PriorityClass leeway-headroom--10" in subjects
    assert desk.replicas(target) == 5
    desk.live.fail_with()
    assert desk.tick().problems == ()
    assert desk.buffer() == 1


@pytest.mark.parametrize(("resource", "grown"), [("pods", 3), ("nodes", 1)])
def test_a_list_that_is_refused_stops_only_what_is_sized_by_it(
    desk: Desk, resource: str, grown: int
) -> None:
    target = desk.deploy(1)
    document = desk.headroom(replicas=1, linear={"nodesPerReplica": 1, "max": 1})
    desk.apply(desk.scaled_object(target), document)
    desk.tick(NINE - 10 * MINUTE)
    assert (desk.buffer(), desk.replicas(target)) == (1, 0)
    document["spec"]["buffers"][0]["replicas"] = 3
    desk.apply(desk.scaled_object(target), document)
    desk.live.fail_with({"status": 403, "verb": "list", "resource": resource})
    (problem,) = desk.tick(NINE).problems
    assert problem.subject == f"the cluster's {resource}"
    desk.live.fail_with()
    assert (desk.buffer(), desk.replicas(target)) == (grown, 5)
    assert desk.tick(NINE + MINUTE).problems == ()
    assert (desk.buffer(), desk.replicas(target)) == (3, 5)


WEBHOOK_DOWN = {"status": 500, "verb": "patch"}
"""What the API server answers when an admission webhook that must be asked can't be."""


def test_a_webhook_that_fails_on_one_object_is_that_objects_problem(desk: Desk) -> None:
    target = desk.deploy(1)
    document = desk.headroom(replicas=1)
    document["spec"]["buffers"].append({**document["spec"]["buffers"][0], "name": "hot"})
    desk.apply(desk.scaled_object(target), document)
    desk.live.fail_with({**WEBHOOK_DOWN, "resource": "deployments", "count": 1})
    report = desk.tick()
    assert report.problem == ""
    (problem,) = report.problems
    assert problem.subject.startswith(f"buffer {desk.name}/{desk.name}-")
    assert problem.problem.startswith("500")
    assert problem.replicas is None, "it has no size yet"
    assert report.replicas == 1
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
    report = desk.tick()
    assert [one.subject for one in report.problems] == [f"capacitybuffer default/{desk.name}"]
    assert (report.changed, report.replicas) == (report.problems, 2)
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
