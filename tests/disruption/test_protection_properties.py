"""Of random clusters: nothing protected is given back, budgets hold at every instant, also with
interruptions in between, and a decision depends on its snapshot alone."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from leeway.disruption.decide import decide_returns
from leeway.disruption.moves import Moving
from leeway.disruption.rules import Budget, ReturnRules
from leeway.disruption.snapshot import OwnNode
from leeway.policy.rules import Worth

from tests.disruption.snapshots import NOW, own_node, snapshot, with_pods
from tests.selection.workloads import ZONES, spec

FEW = settings(max_examples=30, deadline=None)
AFTER = timedelta(minutes=10)
BUDGETS = (Budget("30%"), Budget("2"))


@st.composite
def clusters(draw: DrawFn) -> tuple[OwnNode, ...]:
    """Up to eight nodes with a few pods; some of them, or of their pods, are protected."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        sizes = draw(st.lists(st.sampled_from([100, 700, 1500]), max_size=3))
        one = own_node(
            f"n{number}",
            *(spec(cpu) for cpu in sizes),
            kind=draw(st.sampled_from(["small", "medium", "large"])),
            zone=draw(st.sampled_from(ZONES[:2])),
            capacity_type=draw(st.sampled_from(["spot", "on-demand"])),
            quiet=timedelta(minutes=draw(st.sampled_from([0, 9, 10, 600]))),
            age=timedelta(days=draw(st.sampled_from([1, 40]))),
        )
        until = draw(st.sampled_from([None, None, NOW, NOW + timedelta(seconds=1)]))
        blocked = draw(st.sampled_from([(), (), ("budget",)]))
        pods = [replace(each, protected_until=until, blocked_by=blocked) for each in one.pods]
        found.append(
            replace(
                with_pods(one, pods),
                protected=draw(st.sampled_from([False, False, True])),
                ready=draw(st.sampled_from([True, True, False])),
                going=draw(st.sampled_from([False, False, False, True])),
            )
        )
    return tuple(found)


@FEW
@given(clusters())
def test_nothing_protected_is_given_back(own: tuple[OwnNode, ...]) -> None:
    rules = ReturnRules(AFTER, expires=timedelta(days=30), budgets=())
    given_ = snapshot(*own, rules=rules, worth=Worth(per_pod=0))
    decision = decide_returns(given_)
    assert decide_returns(given_) == decision, "the same snapshot gives the same decision"
    by_name = {one.name: one for one in own}
    for name in (name for one in decision.returns for name in one.nodes):
        one = by_name[name]
        assert not one.protected
        assert not one.going
        assert all(not m.blocked_by for m in one.pods)
        assert all(m.protected_until is None or m.protected_until <= NOW for m in one.pods)
    returned = {name for one in decision.returns for name in one.nodes}
    assert returned | decision.kept.keys() == by_name.keys(), "every node has its reason"
    assert not returned & decision.kept.keys()


@FEW
@given(clusters(), st.none() | st.integers(0, 8))
def test_a_forceful_expiration_forces_expired_nodes_only_and_only_within_the_cluster_budget(
    own: tuple[OwnNode, ...], most: int | None
) -> None:
    month = timedelta(days=30)
    rules = ReturnRules(None, expires=month, forceful=True, budgets=(Budget("0"),))
    decision = decide_returns(snapshot(*own, rules=rules, most=most))
    expired = {one.name for one in own if NOW - one.created_at >= month and not one.going}
    returned = {name for one in decision.returns for name in one.nodes}
    assert returned <= expired
    assert len(returned) == min(len(own) if most is None else most, len(expired))


@FEW
@given(clusters())
def test_a_node_that_is_not_quiet_or_starts_is_not_consolidated(own: tuple[OwnNode, ...]) -> None:
    rules = ReturnRules(AFTER, budgets=())
    decision = decide_returns(snapshot(*own, rules=rules, worth=Worth(per_pod=0)))
    by_name = {one.name: one for one in own}
    for name in (name for one in decision.returns for name in one.nodes):
        assert by_name[name].ready
        assert NOW - by_name[name].quiet_since >= AFTER


@FEW
@given(clusters(), st.lists(st.integers(0, 7), max_size=4), st.lists(st.booleans(), max_size=4))
def test_budgets_hold_at_every_instant_with_interruptions_in_between(
    own: tuple[OwnNode, ...], interrupted: list[int], ends: list[bool]
) -> None:
    rules = ReturnRules(AFTER, expires=timedelta(days=30), budgets=BUDGETS)
    steps = max(len(interrupted), len(ends), 1)
    for step in range(steps):
        before = _disrupted(own)
        limit = min(budget.limit(len(own)) for budget in BUDGETS)
        decision = decide_returns(snapshot(*own, rules=rules, worth=Worth(per_pod=0)))
        gone = {name for one in decision.returns for name in one.nodes}
        own = tuple(replace(one, going=one.going or one.name in gone) for one in own)
        assert _disrupted(own) <= max(limit, before)
        if step < len(interrupted):
            hit = interrupted[step] % len(own)
            own = tuple(replace(one, going=one.going or at == hit) for at, one in enumerate(own))
        if step < len(ends) and ends[step]:
            own = tuple(one for one in own if not one.going) or own


def _disrupted(own: tuple[OwnNode, ...]) -> int:
    return sum(one.going or not one.ready for one in own)


@FEW
@given(clusters())
def test_pods_of_consolidated_nodes_go_to_settled_nodes_only(own: tuple[OwnNode, ...]) -> None:
    rules = ReturnRules(AFTER, budgets=())
    starting = frozenset(one.name for one in own if not one.ready)
    given_back = snapshot(*own, rules=rules, worth=Worth(per_pod=0), starting=starting)
    by_name = {one.name: one for one in own}
    for one in decide_returns(given_back).returns:
        gone = [by_name[name] for name in one.nodes]
        moved = {movable.pod.name for each in gone for movable in each.pods}
        for place in Moving(given_back).without(gone, launch=one.replaced).existing:
            there = by_name[place.node]
            settled = there.ready and NOW - there.quiet_since >= AFTER
            assert settled or not moved & set(place.pods)
