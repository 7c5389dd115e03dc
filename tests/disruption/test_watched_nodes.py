"""Since when nodes are quiet, and which decisions are confirmed: never earlier than they may be."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.disruption.return_capacity import WATCHED
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import NodeReturn, ReturnDecision
from leeway.disruption.watched_nodes import (
    FORGOTTEN_AFTER,
    HELD_FOR,
    STORED_EVERY,
    TRUSTED_FOR,
    WatchedNodes,
    confirm,
    watch,
)
from leeway.ports.kubernetes_objects import FOREVER
from leeway.provisioning.cluster_state import NodeDetails, ObservedPod
from leeway.reasons import Reason
from leeway.selection.pods import Pod, PodSpec

from tests.fakes.table import TableInMemory

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
NODE = NodeDetails("i-1", NOW - timedelta(days=1), ready=True, ready_since=NOW - timedelta(days=1))


@dataclass
class Table:
    """What runs store for a cluster. Each run may be made by another environment."""

    stored: WatchedNodes | None = None
    writes: int = 0

    def since(self, nodes: dict[str, NodeDetails], at: datetime) -> dict[str, datetime]:
        watched, since = watch(self.stored, nodes, at)
        self.store(watched)
        return dict(since)

    def confirmed(self, decision: ReturnDecision, at: datetime) -> tuple[list[str], timedelta]:
        """The nodes that go, and how soon the next one can be confirmed."""
        watched, _ = watch(self.stored, {}, at)
        watched, confirmed, later = confirm(self.stored, watched, decision, at)
        self.store(watched)
        return [one.nodes[0] for one in confirmed], later - at if later else timedelta(0)

    def store(self, watched: WatchedNodes) -> None:
        if not watched.is_stored_by(self.stored):
            self.stored = watched
            self.writes += 1


def pod(uid: str) -> ObservedPod:
    return ObservedPod(Pod(f"default/{uid}", PodSpec()), uid, NOW, "replica-set")


def since(table: Table, node: NodeDetails, minute: int) -> datetime:
    return table.since({"n": node}, NOW + minute * MINUTE)["n"]


def test_a_pod_that_came_and_went_between_two_looks_ends_the_quiet() -> None:
    table = Table()
    since(table, NODE, 0)
    moved = replace(NODE, changed_at=NOW + 2 * MINUTE)
    assert since(table, moved, 2) == NOW + 2 * MINUTE
    assert since(table, moved, 5) == NOW + 2 * MINUTE


def test_a_node_is_not_quiet_before_it_is_ready_or_while_a_pod_ends() -> None:
    table = Table()
    since(table, NODE, 0)
    assert since(table, replace(NODE, ready=False), 1) == NOW + MINUTE
    assert since(table, replace(NODE, ready_since=NOW + MINUTE), 2) == NOW + MINUTE
    assert since(table, replace(NODE, busy_until=FOREVER), 3) == NOW + 3 * MINUTE
    assert since(table, replace(NODE, ready_since=NOW + timedelta(days=1)), 4) == NOW + 4 * MINUTE


def test_another_instance_with_the_same_name_is_another_node() -> None:
    table = Table()
    since(table, NODE, 0)
    assert since(table, replace(NODE, instance="i-2"), 1) == NOW + MINUTE


def test_times_of_nodes_with_the_same_pods_stay() -> None:
    table = Table()
    nodes = {"same": replace(NODE, pods=(pod("a"),)), "other": replace(NODE, instance="i-2")}
    table.since(nodes, NOW)
    nodes["other"] = replace(nodes["other"], pods=(pod("b"),))
    later = NOW + 10 * MINUTE
    assert table.since(nodes, later) == {"same": NOW, "other": later}


@pytest.mark.parametrize("gap", [TRUSTED_FOR + MINUTE, -MINUTE])
def test_times_that_are_too_old_or_of_the_future_are_not_used(gap: timedelta) -> None:
    table = Table()
    table.since({"n": NODE}, NOW)
    assert table.since({"n": NODE}, NOW + gap) == {"n": NOW + gap}


def test_times_are_written_when_they_change_and_every_few_minutes() -> None:
    table = Table()
    for minute in range(10):
        since(table, NODE, minute)
    assert table.writes == 10 * MINUTE // STORED_EVERY
    since(table, replace(NODE, pods=(pod("a"),)), 10)
    since(table, replace(NODE, pods=(pod("a"),)), 11)
    assert table.writes == 10 * MINUTE // STORED_EVERY + 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=20))
def test_a_node_is_never_quiet_for_longer_than_its_pods_are_the_same(
    looks: list[tuple[str, bool]],
) -> None:
    table, began, before = Table(), NOW, None
    for minute, (uid, present) in enumerate(looks):
        pods = (pod(uid),) if present else ()
        if pods != before:
            began = NOW + minute * MINUTE
        before = pods
        assert since(table, replace(NODE, pods=pods), minute) == began


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=20))
def test_a_gap_between_runs_makes_no_node_quiet_for_longer(looks: list[tuple[bool, int]]) -> None:
    table, began, minute, pods = Table(), NOW, 0, 0
    since(table, NODE, 0)
    for changes, after in looks:
        minute += after
        if changes:
            pods, began = pods + 1, NOW + minute * MINUTE
        node = replace(NODE, pods=(pod(f"{pods}"),) if pods else ())
        assert began <= since(table, node, minute) <= NOW + minute * MINUTE


def test_a_node_is_quiet_since_its_last_pod_ended_not_since_a_run_found_that() -> None:
    table = Table()
    since(table, replace(NODE, pods=(pod("a"),)), 0)
    ended = NOW + timedelta(seconds=7)
    assert since(table, replace(NODE, changed_at=ended), 1) == ended
    assert since(table, replace(NODE, changed_at=ended), 2) == ended


def given_back(*names: str, cause: Cause = Cause.EMPTY) -> tuple[NodeReturn, ...]:
    return tuple(NodeReturn((name,), cause, Reason("NodeEmpty", "It is empty.")) for name in names)


def test_a_decision_is_confirmed_when_it_was_held_for_15_seconds() -> None:
    table, decision = Table(), ReturnDecision(given_back("a"))
    assert table.confirmed(decision, NOW) == ([], HELD_FOR)
    assert table.confirmed(decision, NOW + HELD_FOR - SECOND) == ([], SECOND)
    assert table.confirmed(decision, NOW + HELD_FOR) == (["a"], timedelta(0))


def test_a_decision_that_a_run_in_between_did_not_make_is_a_first_one_again() -> None:
    table, decision = Table(), ReturnDecision(given_back("a"))
    table.confirmed(decision, NOW)
    table.confirmed(ReturnDecision(given_back("a", cause=Cause.EXPIRED)), NOW + 5 * SECOND)
    assert table.confirmed(decision, NOW + HELD_FOR) == ([], HELD_FOR)


def test_a_decision_that_no_run_has_confirmed_for_minutes_is_a_first_one_again() -> None:
    table, decision = Table(), ReturnDecision(given_back("a"))
    table.confirmed(decision, NOW)
    late = NOW + FORGOTTEN_AFTER + SECOND
    assert table.confirmed(decision, late) == ([], HELD_FOR)


def test_a_decision_that_only_a_budget_forbids_is_held_for_as_long_as_it_does() -> None:
    table, waiting = Table(), ReturnDecision(waiting=given_back("b"))
    for minute in range(10):
        assert table.confirmed(waiting, NOW + minute * MINUTE) == ([], timedelta(0))
    at = NOW + 10 * MINUTE
    assert table.confirmed(ReturnDecision(given_back("b")), at) == (["b"], timedelta(0))


TIME = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
TIMES = st.dictionaries(st.binary(min_size=8, max_size=8).filter(any), TIME)


@given(quiet=TIMES, held=TIMES, undecided_since=st.none() | TIME)
def test_watched_nodes_are_read_as_they_were_written(
    quiet: dict[bytes, datetime], held: dict[bytes, datetime], undecided_since: datetime | None
) -> None:
    seen_at = NOW + timedelta(microseconds=7)
    table, watched = TableInMemory(), WatchedNodes(seen_at, quiet, held, undecided_since)
    table.put(WATCHED, watched, cluster="prod")
    assert table.get(WATCHED, cluster="prod") == watched
    assert table.get(WATCHED, cluster="dev") is None
