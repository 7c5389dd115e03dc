"""Since when nodes are quiet: never longer than Leeway has watched them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.capacity_return.quiet_nodes import STORED_EVERY, TRUSTED_FOR, QuietNodes
from leeway.provisioning.cluster_state import NodeDetails, PodOnNode
from leeway.selection.pods import Pod, PodSpec

from tests.fakes.provisioning import QuietRecordsInMemory

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NODE = NodeDetails("i-1", NOW - timedelta(days=1), ready=True, ready_since=NOW - timedelta(days=1))


def pod(uid: str) -> PodOnNode:
    return PodOnNode(Pod(f"default/{uid}", PodSpec()), uid, controlled=True)


def since(quiet: QuietNodes, node: NodeDetails, minute: int) -> datetime:
    return quiet.since("prod", {"n": node}, NOW + minute * MINUTE)["n"]


def test_a_node_is_quiet_from_the_first_look_on() -> None:
    quiet = QuietNodes(QuietRecordsInMemory())
    assert [since(quiet, NODE, minute) for minute in range(3)] == [NOW] * 3


def test_a_pod_that_comes_or_goes_ends_the_quiet() -> None:
    quiet = QuietNodes(QuietRecordsInMemory())
    since(quiet, NODE, 0)
    with_pod = replace(NODE, pods=(pod("a"),))
    assert since(quiet, with_pod, 1) == NOW + MINUTE
    assert since(quiet, NODE, 2) == NOW + 2 * MINUTE
    assert since(quiet, NODE, 3) == NOW + 2 * MINUTE


def test_a_pod_that_came_and_went_between_two_looks_ends_the_quiet() -> None:
    quiet = QuietNodes(QuietRecordsInMemory())
    since(quiet, NODE, 0)
    moved = replace(NODE, changed_at=NOW + 2 * MINUTE)
    assert since(quiet, moved, 2) == NOW + 2 * MINUTE
    assert since(quiet, moved, 5) == NOW + 2 * MINUTE


def test_a_node_is_not_quiet_before_it_is_ready_or_while_a_pod_ends() -> None:
    quiet = QuietNodes(QuietRecordsInMemory())
    since(quiet, NODE, 0)
    assert since(quiet, replace(NODE, ready=False), 1) == NOW + MINUTE
    assert since(quiet, replace(NODE, ready_since=NOW + MINUTE), 2) == NOW + MINUTE
    assert since(quiet, replace(NODE, busy=True), 3) == NOW + 3 * MINUTE
    assert since(quiet, replace(NODE, ready_since=NOW + timedelta(days=1)), 4) == NOW + 4 * MINUTE


def test_another_instance_with_the_same_name_is_another_node() -> None:
    quiet = QuietNodes(QuietRecordsInMemory())
    since(quiet, NODE, 0)
    assert since(quiet, replace(NODE, instance="i-2"), 1) == NOW + MINUTE


def test_a_cold_function_goes_on_with_stored_times_of_nodes_with_the_same_pods() -> None:
    records = QuietRecordsInMemory()
    nodes = {"same": replace(NODE, pods=(pod("a"),)), "other": replace(NODE, instance="i-2")}
    QuietNodes(records).since("prod", nodes, NOW)
    nodes["other"] = replace(nodes["other"], pods=(pod("b"),))
    later = NOW + 10 * MINUTE
    known = QuietNodes(records).since("prod", nodes, later)
    assert known == {"same": NOW, "other": later}
    assert QuietNodes(records).since("dev", nodes, later) == dict.fromkeys(nodes, later)


@pytest.mark.parametrize("warm", [True, False])
def test_times_that_are_too_old_or_of_the_future_are_not_used(warm: bool) -> None:
    for gap in (TRUSTED_FOR + MINUTE, -MINUTE):
        records = QuietRecordsInMemory()
        first = QuietNodes(records)
        first.since("prod", {"n": NODE}, NOW)
        quiet = first if warm else QuietNodes(records)
        assert quiet.since("prod", {"n": NODE}, NOW + gap) == {"n": NOW + gap}


def test_times_are_written_every_few_minutes_also_by_a_cold_function() -> None:
    records = QuietRecordsInMemory()
    for minute in range(10):
        quiet = QuietNodes(records)
        quiet.since("prod", {"n": NODE}, NOW + minute * MINUTE)
        quiet.since("prod", {"n": NODE}, NOW + minute * MINUTE)
    assert records.writes == 10 * MINUTE // STORED_EVERY


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=20))
def test_a_node_is_never_quiet_for_longer_than_its_pods_are_the_same(
    looks: list[tuple[str, bool]],
) -> None:
    quiet, began, before = QuietNodes(QuietRecordsInMemory()), NOW, None
    for minute, (uid, present) in enumerate(looks):
        pods = (pod(uid),) if present else ()
        if pods != before:
            began = NOW + minute * MINUTE
        before = pods
        assert since(quiet, replace(NODE, pods=pods), minute) == began


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 20)), max_size=20))
def test_a_cold_function_makes_no_node_quiet_for_longer(
    looks: list[tuple[bool, bool, int]],
) -> None:
    records = QuietRecordsInMemory()
    quiet, began, minute, pods = QuietNodes(records), NOW, 0, 0
    since(quiet, NODE, 0)
    for changes, cold, after in looks:
        minute += after
        if changes:
            pods, began = pods + 1, NOW + minute * MINUTE
        if cold:
            quiet = QuietNodes(records)
        node = replace(NODE, pods=(pod(f"{pods}"),) if pods else ())
        assert began <= since(quiet, node, minute) <= NOW + minute * MINUTE


def test_a_node_is_quiet_since_its_last_pod_ended_not_since_a_run_found_that() -> None:
    quiet = QuietNodes(QuietRecordsInMemory())
    since(quiet, replace(NODE, pods=(pod("a"),)), 0)
    ended = NOW + timedelta(seconds=7)
    assert since(quiet, replace(NODE, changed_at=ended), 1) == ended
    assert since(quiet, replace(NODE, changed_at=ended), 2) == ended
