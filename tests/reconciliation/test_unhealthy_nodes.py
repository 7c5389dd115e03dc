"""Unhealthy nodes: found once each time, by owner and policy, and not if too many are unhealthy."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.execution.attempt import Phase
from leeway.instances.facts import InstanceFacts, ObservedInstance, Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.repair import Unhealthy, too_many
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy
from leeway.ports.kubernetes_objects import Condition, Node
from leeway.reconciliation.lost_events import check_unhealthy_node
from leeway.reconciliation.unhealthy_nodes import DueRepairs, due_repairs
from leeway.retirement.reasons import REPLACEMENT_DECIDED
from leeway.retirement.record import Method, ReplacementIntent, Retirement

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.reconciliation.account import Account, facts, node, observed, run
from tests.reconciliation.lost_notices import I, context, notice_of
from tests.retirement.retirements import NOTICED, at, take

KIND = NoticeKind.UNHEALTHY_NODE
DEFAULT = DEFAULTS[KIND]
SINCE = NOTICED - timedelta(minutes=30)
DEAD = Condition("Ready", "Unknown", SINCE)
GOOD = Condition("Ready", "True", SINCE)
POOL = Owner(OwnerKind.LEEWAY, "general")
GROUP = Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")
REPAIRS_GROUPS = ClusterPolicy(notices={**DEFAULTS, KIND: replace(DEFAULT, groups=True)})


def launched(number: int, owner: Owner = POOL) -> InstanceFacts:
    """An instance; that of a pool with the tags that only EC2 and EKS write."""
    given = facts(number, owner=owner)
    return given.model_copy(update={"joined": True, "from_fleet": owner.kind is OwnerKind.LEEWAY})


def with_condition(one: InstanceFacts, condition: Condition, **more: Any) -> Node:
    return node(one, ready=condition == GOOD, conditions=(condition,), **more)


def nodes_of(
    conditions: Mapping[int, Condition], owner: Owner = POOL
) -> tuple[list[Node], dict[str, ObservedInstance]]:
    made = {launched(number, owner): condition for number, condition in conditions.items()}
    here = {one.instance: observed(one) for one in made}
    return [with_condition(*each) for each in made.items()], here


def due(
    nodes: Iterable[Node],
    here: Mapping[str, ObservedInstance],
    policy: ClusterPolicy | None = None,
    now: datetime = NOTICED,
) -> DueRepairs:
    return due_repairs("prod", list(nodes), here, policy or ClusterPolicy(), now)


def names(found: DueRepairs) -> set[int]:
    return {int(name.removeprefix("i-"), 16) for name in found.due}


def healthy(*numbers: int) -> dict[int, Condition]:
    return dict.fromkeys(numbers, GOOD)


def test_a_node_is_due_when_its_condition_has_lasted_long_enough() -> None:
    nodes, here = nodes_of({1: DEAD, **healthy(2, 3)})
    assert due(nodes, here, now=NOTICED - timedelta(seconds=1)) == DueRepairs({})
    found = due(nodes, here)
    assert (names(found), found.held) == ({1}, ())


def test_the_only_node_of_a_pool_is_repaired() -> None:
    nodes, here = nodes_of({1: DEAD})
    others, elsewhere = nodes_of(healthy(2, 3, 4), GROUP)
    assert names(due([*nodes, *others], here | elsewhere)) == {1}


def test_more_than_a_fifth_of_a_pool_that_is_unhealthy_holds_its_repairs() -> None:
    """A node counts from the first second on: a network that fails makes all nodes Unknown long
    before the first of them is due."""
    new = Condition("Ready", "False", NOTICED)
    nodes, here = nodes_of({1: DEAD, 2: new, **healthy(3, 4, 5)})
    others, elsewhere = nodes_of(healthy(*range(10, 30)), GROUP)
    found = due([*nodes, *others], here | elsewhere)
    assert found.due == {}
    assert "2 of 5 nodes of pool general are unhealthy" in found.held[0].message


def test_pools_of_one_node_each_are_not_all_replaced_when_the_network_fails() -> None:
    """Karpenter's brake is by pool, and lets each of them go."""
    nodes: list[Node] = []
    here: dict[str, ObservedInstance] = {}
    for number in range(1, 11):
        one, there = nodes_of({number: DEAD}, Owner(OwnerKind.LEEWAY, f"pool-{number}"))
        nodes, here = [*nodes, *one], here | there
    found = due(nodes, here)
    assert found.due == {}
    assert "10 of 10 nodes of cluster prod are unhealthy" in found.held[0].message


def test_nodes_of_groups_are_repaired_only_if_the_policy_says_so() -> None:
    nodes, here = nodes_of({1: DEAD, **healthy(2, 3)}, GROUP)
    assert due(nodes, here) == DueRepairs({})
    assert names(due(nodes, here, REPAIRS_GROUPS)) == {1}
    managed, there = nodes_of({1: DEAD}, Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"))
    assert due(managed, there, REPAIRS_GROUPS) == DueRepairs({})
    takes = replace(REPAIRS_GROUPS, retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
    assert names(due(managed, there, takes)) == {1}
    none, alone = nodes_of({1: DEAD}, Owner(OwnerKind.NONE))
    assert due(none, alone, REPAIRS_GROUPS) == DueRepairs({})


def test_tags_that_anybody_can_write_do_not_suffice() -> None:
    tagged = launched(1).model_copy(update={"from_fleet": False})
    assert due([with_condition(tagged, DEAD)], {tagged.instance: observed(tagged)}).due == {}


def test_a_node_that_names_the_instance_of_another_one_causes_nothing() -> None:
    """Whoever creates a Node chooses its provider id."""
    victim = launched(1)
    real = with_condition(victim, GOOD)
    here = {victim.instance: observed(victim)}
    forged = with_condition(victim, DEAD, name="forged")
    many = [with_condition(facts(number), GOOD) for number in range(10, 20)]
    assert due([forged, real, *many], here).due == {}
    renamed = replace(real, name="its-own-name")
    assert due([forged, renamed, *many], here).due == {}, "nothing says which one is right"


def test_an_instance_that_does_not_run_is_left_to_its_end() -> None:
    one = launched(1)
    here = {one.instance: observed(one, "shutting-down")}
    assert due([with_condition(one, DEAD)], here) == DueRepairs({})


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans(), st.booleans()), max_size=30)
)
def test_no_more_than_a_fifth_of_a_pool_or_of_the_cluster_is_ever_due(
    drawn: list[tuple[str, bool, bool]],
) -> None:
    nodes: list[Node] = []
    here: dict[str, ObservedInstance] = {}
    pools: dict[str, list[bool]] = {}
    for number, (pool, bad, old) in enumerate(drawn, 1):
        condition = GOOD
        if bad:
            condition = DEAD if old else Condition("KernelReady", "False", NOTICED)
        one, there = nodes_of({number: condition}, Owner(OwnerKind.LEEWAY, pool))
        nodes, here = [*nodes, *one], here | there
        pools.setdefault(pool, []).append(bad)
    found = due(nodes, here)
    for name in found.due:
        nodes_there = pools[here[name].facts.owner.name]
        assert not too_many(sum(nodes_there), len(nodes_there))
        assert not too_many(sum(bad for _, bad, _ in drawn), len(drawn))
    ready = [old for _, bad, old in drawn if bad]
    assert bool(found.due) or bool(found.held) or not any(ready)


# Against the records


WHY = Unhealthy("Ready", "Unknown", SINCE, NOTICED)


def check(record: Retirement | None, after: timedelta = timedelta(0), dry_run: bool = False) -> Any:
    return check_unhealthy_node(I, WHY, record, context(NOTICED + after, dry_run))


def test_an_unhealthy_node_becomes_a_notice() -> None:
    finding = check(None)
    notice = notice_of(finding)
    assert (notice.kind, notice.instances, notice.time) == (KIND, (I,), NOTICED)
    assert finding.reason.code == "StateDiffers"
    assert "its condition Ready is Unknown since 2026-11-20 09:15 UTC" in finding.reason.message
    assert notice_of(check(None)).id == notice.id


@pytest.mark.parametrize("phase", [Phase.NOTICED, Phase.RUNNING, Phase.FINISHED])
def test_it_is_found_once(phase: Phase) -> None:
    assert check(at(take(None, KIND, "n-1").record, phase), timedelta(hours=5)) is None


def test_it_is_found_again_an_hour_after_a_retirement_without_effect() -> None:
    record = take(None, KIND, "n-1").record
    declined = record.model_copy(update={"phase": Phase.FINISHED, "ended_at": NOTICED})
    assert check(declined, timedelta(minutes=59)) is None
    assert notice_of(check(declined, timedelta(minutes=61))).kind is KIND
    assert check(declined, timedelta(minutes=61), dry_run=True) is None


def test_a_drain_without_a_deadline_that_a_dead_kubelet_cannot_end_is_taken_over() -> None:
    returned = take(None, NoticeKind.CAPACITY_RETURN, "n-1").record
    drains = at(returned, Phase.RUNNING).model_copy(update={"drain_began_at": NOTICED})
    finding = check(drains, timedelta(minutes=1))
    change = take(drains, KIND, "n-2", after=60)
    assert notice_of(finding).kind is KIND
    assert (change.write, change.record.attempt, change.record.kind) == (True, 2, KIND)
    bounded = drains.model_copy(update={"deadline": NOTICED + timedelta(hours=1)})
    assert check(bounded, timedelta(minutes=1)) is None
    assert take(bounded, KIND, "n-2", after=60).record.attempt == 1


def test_a_drain_for_failed_status_checks_that_left_pods_is_taken_over() -> None:
    record = take(None, NoticeKind.IMPAIRED_STATUS, "n-1").record
    drains = at(record, Phase.RUNNING).model_copy(update={"drain_began_at": NOTICED})
    assert check(drains, timedelta(minutes=1)) is None
    left = ReplacementIntent(
        method=Method.REQUEST_CAPACITY,
        reason=REPLACEMENT_DECIDED("of a pool"),
        requested_at=NOTICED,
        to_terminate=True,
    )
    ended = at(record, Phase.FINISHED).model_copy(update={"replacement_intent": left})
    assert notice_of(check(ended, timedelta(minutes=20))).kind is KIND
    assert take(ended, KIND, "n-2", after=1200).record.attempt == 2


def test_an_interruption_serves_it() -> None:
    assert check(take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record) is None


# A run


def account(*nodes: Node, **more: Any) -> Account:
    ours = launched(1)
    cluster = LeftoversInMemory({one.name: one for one in nodes})
    return Account([observed(ours)], clusters={"prod": cluster}, now_=NOTICED, **more)


def test_reconcile_submits_a_notice_of_a_dead_node() -> None:
    dead = account(with_condition(launched(1), DEAD))
    (found,) = run(dead).findings
    assert (found.instance, dead.received[0].kind) == (launched(1).instance, KIND)


def test_reconcile_ignores_it_by_policy() -> None:
    ignore = {**DEFAULTS, KIND: replace(DEFAULT, action=Action.IGNORE)}
    dead = account(with_condition(launched(1), DEAD), policy=ClusterPolicy(notices=ignore))
    assert run(dead).findings == []


def test_reconcile_reports_that_it_holds_repairs() -> None:
    others = [with_condition(facts(number), DEAD) for number in range(2, 5)]
    report = run(account(with_condition(launched(1), DEAD), *others))
    assert report.findings == []
    assert [one.code for one in report.problems] == ["RepairsHeld"]


def test_nodes_that_cannot_be_read_are_not_repaired_and_reported() -> None:
    down = account()
    down.clusters["prod"].down = True
    codes = {one.code for one in run(down).problems}
    assert (codes, down.received) == ({"ReconcileIncomplete"}, [])
