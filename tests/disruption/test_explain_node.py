"""Why a node is kept or given back: everything that blocks it, and the nearest miss."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from leeway.disruption import reasons
from leeway.disruption.decide import decide_returns
from leeway.disruption.explain import ForeignNode, NodeExplanation, explain_node
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import Snapshot
from leeway.headroom.windows import parse_cron
from leeway.instances.facts import Owner, OwnerKind
from leeway.policy.rules import Worth
from leeway.ports.kubernetes_objects import FOREVER
from leeway.selection.labels import HOSTNAME
from leeway.selection.pods import NodePool

from tests.disruption.snapshots import NOW, own_node, snapshot, with_pods
from tests.selection.workloads import spec, term

MINUTE = timedelta(minutes=1)
GROUP = Owner(OwnerKind.AUTO_SCALING_GROUP, "web\x1b[31m")


def explained(given: Snapshot, name: str = "here", *foreign: ForeignNode) -> NodeExplanation:
    return explain_node(name, given, decide_returns(given), foreign)


def blocking(found: NodeExplanation) -> dict[str, datetime | None]:
    """The codes of what blocks a node, each with its end."""
    return {blocker.reason.code: blocker.until for blocker in found.blockers}


def test_a_node_that_is_given_back_has_no_blocker() -> None:
    found = explained(snapshot(own_node("here")))
    assert found.step is not None
    assert found.step.allowed
    assert found.step.returned.cause is Cause.EMPTY
    assert (found.reason.code, found.blockers) == (reasons.NODE_EMPTY.name, ())


def test_everything_that_blocks_a_node_is_listed_with_its_end() -> None:
    one = own_node("here", spec(100), spec(100), quiet=MINUTE, kind="large")
    until = NOW + timedelta(hours=2)
    pods = [
        replace(one.pods[0], protected_until=until),
        replace(one.pods[1], blocked_by=("web", "all")),
    ]
    window = Budget("0", cron=parse_cron("0 9 * * *"), duration=timedelta(hours=8))
    rules = ReturnRules(after=10 * MINUTE, only_empty=True, budgets=(window,))
    given = snapshot(replace(with_pods(one, pods), protected=True), rules=rules, most=0)
    found = explained(given)
    assert blocking(found) == {
        reasons.NODE_IS_PROTECTED.name: None,
        reasons.POD_IS_PROTECTED.name: until,
        reasons.POD_IS_BLOCKED.name: None,
        reasons.NODE_NOT_QUIET.name: NOW + 9 * MINUTE,
        reasons.POOL_ONLY_EMPTY.name: None,
        reasons.CLUSTER_BUDGET_USED.name: None,
        reasons.DISRUPTION_BUDGET_USED.name: datetime(2026, 11, 20, 17, tzinfo=UTC),
    }
    budgets = [b.reason.message for b in found.blockers if "PodDisruptionBudget" in str(b.reason)]
    assert [("budget web " in text, "budget all " in text) for text in map(str.lower, budgets)] == [
        (True, False),
        (False, True),
    ]


def test_a_pool_that_bounds_the_drain_is_blocked_by_no_annotation_when_a_node_has_expired() -> None:
    one = own_node("here", spec(100), kind="large")
    held = with_pods(one, [replace(one.pods[0], protected_until=FOREVER)])
    day = timedelta(days=1)
    rules = ReturnRules(expires=day, drain_within=day, budgets=(Budget("0"),))
    found = explained(snapshot(held, rules=rules))
    assert blocking(found) == {reasons.DISRUPTION_BUDGET_USED.name: None}


def test_an_annotation_without_a_duration_never_ends() -> None:
    one = own_node("here", spec(100), kind="large")
    pods = [replace(one.pods[0], protected_until=FOREVER)]
    found = explained(snapshot(with_pods(one, pods)))
    assert blocking(found) == {reasons.POD_IS_PROTECTED.name: None}


def test_windows_without_a_gap_have_no_end() -> None:
    hourly = Budget("0", cron=parse_cron("0 * * * *"), duration=timedelta(hours=1))
    assert hourly.ends(NOW) is None
    gaps = Budget("0", cron=parse_cron("0 9,10 * * *"), duration=timedelta(hours=2))
    assert gaps.ends(NOW - timedelta(hours=2, minutes=30)) == NOW
    assert Budget("0").ends(NOW) is None


def test_a_budget_that_this_run_uses_up_blocks_the_next_node() -> None:
    rules = ReturnRules(budgets=(Budget("1"),))
    given = snapshot(own_node("a"), own_node("b"), rules=rules)
    first = decide_returns(given).returns[0].nodes[0]
    (other,) = {"a", "b"} - {first}
    found = explained(given, other)
    assert reasons.DISRUPTION_BUDGET_USED.name in blocking(found)
    assert found.step is not None
    assert not found.step.allowed


def test_a_node_that_is_quiet_soon_goes_later() -> None:
    rules = ReturnRules(after=30 * MINUTE, budgets=())
    found = explained(snapshot(own_node("here", quiet=20 * MINUTE), rules=rules))
    assert found.reason.code == reasons.NODE_NOT_QUIET.name
    assert found.step is not None
    assert found.step.at == NOW + 10 * MINUTE


def test_the_nearest_miss_of_a_node_without_a_cheaper_one_is_named() -> None:
    found = explained(snapshot(own_node("here", spec(3000, 10_000))))
    assert found.reason.code == reasons.NOTHING_CHEAPER.name
    assert found.instead is not None
    (new,) = found.instead.launches
    assert (new.cheapest.type.name, new.cheapest.price) == ("medium", 0.11)
    assert found.shortfall is not None
    assert found.shortfall.saving == pytest.approx(0)
    # 0.005 USD for the pod in half an hour, which is more than 5 % of 0.11 USD.
    assert found.shortfall.missing == pytest.approx(0.01)


def test_how_far_a_move_is_from_being_worth_it_is_said() -> None:
    worth = Worth(per_pod=2.0)
    found = explained(snapshot(own_node("here", spec(1500), kind="large"), worth=worth))
    assert found.reason.code == reasons.MOVE_NOT_WORTH.name
    assert found.shortfall is not None
    assert found.shortfall.pods == 1
    assert found.shortfall.saving == pytest.approx(0.35)
    assert found.shortfall.least == pytest.approx(4.0)
    quiet = timedelta(days=1)
    assert worth.pays_replacement(found.shortfall.least, 0.4, 1, quiet)
    assert not worth.pays_replacement(found.shortfall.least - 0.001, 0.4, 1, quiet)


def test_pods_without_another_place_are_named_with_their_reasons() -> None:
    nowhere = spec(3000, terms=())
    given = snapshot(own_node("here", nowhere), pools=(NodePool("gone", limits={"nodes": 0}),))
    found = explained(given)
    assert found.instead is not None
    assert [one.pod for one in found.instead.homeless] == ["default/here-0"]
    assert found.shortfall is None


def test_a_node_that_one_run_did_not_examine_is_examined_alone() -> None:
    """The others would gain more, and only packing finds that two of their pods are apart."""
    apart = spec(300, labels={"app": "web"}, pod_anti_affinity=(term(HOSTNAME, app="web"),))
    own = [own_node(f"n{n:02}", apart, apart, kind="large") for n in range(30)]
    last = own_node("zz", *[spec(240, 900)] * 16, kind="large")
    given = snapshot(*own, last)
    assert decide_returns(given).kept["zz"].code == reasons.NODE_NOT_EXAMINED.name
    found = explained(given, "zz")
    assert found.reason.code == reasons.NODES_REPLACEABLE.name
    assert found.step is not None
    assert explained(given, "n20").reason.code == reasons.NOTHING_CHEAPER.name


@pytest.mark.parametrize("price", [None, 0.11])
def test_a_node_of_a_group_is_explained_with_its_owner(price: float | None) -> None:
    other = replace(own_node("theirs", spec(100)), price=price)
    given = snapshot(own_node("here", spec(3000)), others=(other.node,))
    found = explained(given, "theirs", ForeignNode(other, GROUP))
    assert found.reason.code == reasons.NODE_NOT_OF_LEEWAY.name
    assert "Auto Scaling group web\\u001b[31m" in found.reason.message
    assert found.spare
    assert found.instead is not None
    assert [place.node for place in found.instead.existing] == ["here"]


def test_a_node_that_nobody_knows_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        explained(snapshot(own_node("here")), "there")
