"""What is given back: empty, expired, drifted, not needed and replaceable nodes."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from leeway.disruption import reasons
from leeway.disruption.decide import MOST_SIMULATED, decide_returns
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import OwnNode
from leeway.headroom.windows import parse_cron
from leeway.policy.repair import Unhealthy
from leeway.policy.rules import Worth
from leeway.reasons import Reason
from leeway.selection.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from leeway.selection.pods import NodePool, Pod, PodSpec, Spread, Weighted
from leeway.selection.reading.claims import DEVICE_CLAIMS_NOT_PLANNED
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.disruption.snapshots import NOW, ON_DEMAND, own_node, snapshot, with_pods
from tests.selection.workloads import catalog, instance_type, spec, term

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def codes(kept: dict[str, object]) -> dict[str, str]:
    return {name: str(reason.code) for name, reason in kept.items()}  # type: ignore[attr-defined]


def test_an_empty_node_is_given_back_when_it_has_been_quiet_long_enough() -> None:
    rules = ReturnRules(after=30 * MINUTE, budgets=())
    quiet, busy = own_node("quiet", quiet=31 * MINUTE), own_node("busy", quiet=29 * MINUTE)
    found = decide_returns(snapshot(quiet, busy, rules=rules))
    assert [(one.nodes, one.cause, one.replaced) for one in found.returns] == [
        (("quiet",), Cause.EMPTY, False)
    ]
    assert found.returns[0].saving == pytest.approx(0.11)
    assert found.kept["busy"].code == reasons.NODE_NOT_QUIET.name


def test_an_empty_node_that_waiting_pods_fit_on_is_kept() -> None:
    waiting = (Pod("default/coming", spec(3000)),)
    found = decide_returns(snapshot(own_node("here"), waiting=waiting))
    assert not found.returns
    assert found.kept["here"].code == reasons.NODE_IS_EXPECTED.name


def test_a_waiting_pod_that_no_node_can_take_keeps_no_empty_node() -> None:
    unmet = replace(spec(3000), unmet=Reason("VolumeClaimNotMet", "Its claim is lost."))
    found = decide_returns(snapshot(own_node("here"), waiting=(Pod("default/lost", unmet),)))
    assert [one.nodes for one in found.returns] == [("here",)]


def test_a_pod_with_device_claims_keeps_the_node_that_it_runs_on() -> None:
    devices = replace(spec(500), unmet=DEVICE_CLAIMS_NOT_PLANNED())
    found = decide_returns(snapshot(own_node("one", devices), own_node("other", spec(500))))
    assert found.kept["one"].code == reasons.POD_NOT_PLANNED.name
    assert [one.nodes for one in found.returns] == [("other",)]


def test_a_node_that_starts_is_not_empty() -> None:
    found = decide_returns(snapshot(replace(own_node("new"), ready=False)))
    assert found.kept["new"].code == reasons.NODE_STARTS.name


def test_a_pool_with_consolidate_after_never_keeps_its_nodes() -> None:
    found = decide_returns(snapshot(own_node("here"), rules=ReturnRules(after=None, budgets=())))
    assert found.kept["here"].code == reasons.POOL_NEVER_CONSOLIDATED.name


def test_an_expired_node_is_replaced_before_it_goes() -> None:
    rules = ReturnRules(expires=timedelta(days=30), budgets=())
    old = own_node("old", spec(3000), age=timedelta(days=30))
    found = decide_returns(snapshot(old, own_node("young", spec(3000)), rules=rules))
    assert [(one.nodes, one.cause, one.replaced) for one in found.returns] == [
        (("old",), Cause.EXPIRED, True)
    ]


def test_a_drifted_node_is_replaced_and_its_reason_says_what_differs() -> None:
    why = "It runs another AMI."
    found = decide_returns(snapshot(replace(own_node("old", spec(3000)), drift=(why,))))
    assert found.returns[0].cause is Cause.DRIFTED
    assert "another AMI" in found.returns[0].reason.message


def test_a_node_whose_pods_fit_elsewhere_is_not_needed() -> None:
    own = [own_node("one", spec(1000)), own_node("two", spec(2000), spec(500))]
    found = decide_returns(snapshot(*own))
    assert [(one.nodes, one.moves, one.replaced) for one in found.returns] == [(("one",), 1, False)]
    assert "two" in found.returns[0].reason.message


def test_pods_that_must_be_apart_keep_their_nodes() -> None:
    apart = spec(1000, labels={"app": "db"}, pod_anti_affinity=(term(HOSTNAME, app="db"),))
    found = decide_returns(snapshot(own_node("one", apart), own_node("two", apart)))
    # Each may still become a smaller node; neither pod may move to the other node.
    assert all(one.replaced for one in found.returns)


@pytest.mark.parametrize(("topology", "moves"), [(CAPACITY_TYPE, False), ("rack", True)])
def test_pods_stay_apart_by_any_label(topology: str, moves: bool) -> None:
    db = {"app": "db"}
    apart = spec(1000, labels=db, pod_anti_affinity=(term(topology, app="web"),))
    web = spec(1000, labels={"app": "web"})
    own = own_node("here", web), own_node("there", apart, capacity_type="spot")
    found = decide_returns(snapshot(*own)).returns
    assert any(not one.replaced for one in found) is moves


def test_small_nodes_of_one_type_become_one_beside_nodes_that_promise_more() -> None:
    apart = spec(9000, labels={"app": "db"}, pod_anti_affinity=(term(HOSTNAME, app="db"),))
    first = [own_node(f"large-{i}", apart, spec(4000, 31_000), kind="large") for i in range(2)]
    small = [own_node(f"small-{i}", spec(500, 3000), kind="small") for i in range(3)]
    found = decide_returns(snapshot(*first, *small))
    (one,) = found.returns
    assert (sorted(one.nodes), one.replaced) == ([each.name for each in small], True)
    assert one.saving == pytest.approx(3 * 0.05 - 0.11)


def test_what_a_budget_has_left_bounds_how_many_nodes_become_one() -> None:
    apart = spec(9000, labels={"app": "db"}, pod_anti_affinity=(term(HOSTNAME, app="db"),))
    full = own_node("large", apart, spec(4000, 31_000), kind="large")
    small = [own_node(f"small-{i}", spec(500, 3000), kind="small") for i in range(4)]
    rules = ReturnRules(budgets=(Budget("4"),))
    for going, most in ((False, 4), (True, 3)):
        (one,) = decide_returns(snapshot(replace(full, going=going), *small, rules=rules)).returns
        assert (len(one.nodes), one.replaced) == (most, True)


def test_a_large_node_with_few_pods_is_replaced_by_a_cheaper_one() -> None:
    found = decide_returns(snapshot(own_node("large", spec(1500), kind="large")))
    (one,) = found.returns
    assert (one.replaced, one.cause) == (True, Cause.UNDERUTILIZED)
    assert one.saving == pytest.approx(0.35)
    assert "small" in one.reason.message


def test_a_node_is_replaced_though_its_pods_need_a_label_that_the_pool_leaves_open() -> None:
    team = Requirements([Requirement.of("example.com/team", "Exists")])
    pool = replace(ON_DEMAND, requirements=ON_DEMAND.requirements.intersection(team))
    asked = spec(1500, terms=(Requirements.from_labels({"example.com/team": "a"}),))
    found = decide_returns(snapshot(own_node("large", asked, kind="large"), pools=(pool,)))
    (one,) = found.returns
    assert (one.replaced, one.cause) == (True, Cause.UNDERUTILIZED)


@pytest.mark.parametrize(("least", "replaced"), [(3, True), (4, False)])
def test_the_cheaper_types_of_a_replacement_keep_the_min_values_of_the_pool(
    least: int, replaced: bool
) -> None:
    several = Requirement.of(INSTANCE_TYPE, "Exists", [], least)
    requirements = ON_DEMAND.requirements.intersection(Requirements([several]))
    pool = replace(ON_DEMAND, requirements=requirements)
    large = own_node("large", spec(1500), kind="large")
    found = decide_returns(snapshot(large, pools=(pool,)))
    assert bool(found.returns) is replaced, "four types hold the pod, and three of them cost less"
    assert replaced or "minValues 4 of instance-type, and only 3" in found.kept["large"].message


@pytest.mark.parametrize(("most", "replaced"), [(1, []), (2, [("large",)])])
def test_a_node_is_replaced_only_if_the_limit_has_room_for_both(
    most: int, replaced: list[tuple[str, ...]]
) -> None:
    limited = replace(ON_DEMAND, limits={"nodes": most})
    own = own_node("large", spec(1500), kind="large")
    found = decide_returns(snapshot(own, pools=(limited,)))
    assert [one.nodes for one in found.returns] == replaced


def test_a_replacement_that_saves_too_little_is_not_worth_the_move() -> None:
    worth = Worth(per_pod=10.0)
    found = decide_returns(snapshot(own_node("large", spec(1500), kind="large"), worth=worth))
    assert not found.returns
    assert found.kept["large"].code == reasons.MOVE_NOT_WORTH.name


def test_a_node_is_not_replaced_by_one_whose_price_is_not_known() -> None:
    unpriced = catalog(instance_type("unpriced", 4000, 16384, None))
    own = own_node("large", spec(1500), kind="large")
    found = decide_returns(snapshot(own, catalog=unpriced))
    assert not found.returns
    assert found.kept["large"].code == reasons.NOTHING_CHEAPER.name


def test_a_spot_node_is_replaced_only_with_many_other_spot_types() -> None:
    large = own_node("large", spec(1500), kind="large", capacity_type="spot")
    found = decide_returns(snapshot(large, pools=(NodePool("plain"),)))
    assert not found.returns
    assert found.kept["large"].code == reasons.SPOT_NOT_FLEXIBLE.name


def test_a_pool_that_gives_back_only_empty_nodes_keeps_those_with_pods() -> None:
    rules = ReturnRules(only_empty=True, budgets=())
    found = decide_returns(snapshot(own_node("large", spec(100), kind="large"), rules=rules))
    assert found.kept["large"].code == reasons.POOL_ONLY_EMPTY.name


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"protected": True}, reasons.NODE_IS_PROTECTED),
        ({"going": True}, reasons.NODE_GOES_ALREADY),
        ({"price": None}, reasons.NODE_WITHOUT_PRICE),
    ],
)
def test_nodes_are_kept_for_a_reason(change: dict[str, object], code: object) -> None:
    one = replace(own_node("here", spec(100), kind="large"), **change)  # type: ignore[arg-type]
    found = decide_returns(snapshot(one))
    assert not found.returns
    assert found.kept["here"].code == code.name  # type: ignore[attr-defined]


def test_pods_that_may_not_be_disrupted_keep_their_node() -> None:
    one = own_node("here", spec(100), kind="large")
    forever = [replace(m, protected_until=NOW + MINUTE) for m in one.pods]
    blocked = [replace(m, blocked_by=("web",)) for m in one.pods]
    found = decide_returns(snapshot(with_pods(one, forever)))
    assert found.kept["here"].code == reasons.POD_IS_PROTECTED.name
    found = decide_returns(snapshot(with_pods(one, blocked)))
    assert found.kept["here"].code == reasons.POD_IS_BLOCKED.name
    surging = [replace(m, blocked_by=("web",), surges=True) for m in one.pods]
    assert decide_returns(snapshot(with_pods(one, surging))).returns
    over = [replace(m, protected_until=NOW) for m in one.pods]
    assert decide_returns(snapshot(with_pods(one, over))).returns


def test_budgets_limit_how_many_nodes_go_at_once() -> None:
    own = [own_node(f"n{number}") for number in range(15)]
    rules = ReturnRules(budgets=(Budget("10%"),))
    found = decide_returns(snapshot(*own, rules=rules))
    assert len(found.returns) == 2  # 10% of 15, rounded up
    going = [replace(one, going=True) for one in own[:1]]
    found = decide_returns(snapshot(*going, *own[1:], rules=rules))
    assert len(found.returns) == 1
    assert reasons.DISRUPTION_BUDGET_USED.name in {why.code for why in found.kept.values()}


def test_a_budget_applies_to_its_causes_and_in_its_windows() -> None:
    day = Budget("0", cron=parse_cron("0 9 * * *"), duration=timedelta(hours=8))
    assert day.applies(Cause.EMPTY, NOW)
    assert not day.applies(Cause.EMPTY, NOW + timedelta(hours=5))
    assert not day.applies(Cause.EMPTY, NOW - timedelta(hours=3, minutes=1))
    assert day.applies(Cause.EMPTY, NOW - timedelta(hours=3))
    drift = Budget("0", causes=frozenset({Cause.DRIFTED}))
    rules = ReturnRules(budgets=(drift,))
    assert len(decide_returns(snapshot(own_node("here"), rules=rules)).returns) == 1


def test_the_budget_of_the_cluster_limits_all_pools() -> None:
    own = [own_node(f"n{number}", spec(1000), age=DAY) for number in range(5)]
    rules = ReturnRules(expires=DAY, budgets=())
    assert len(decide_returns(snapshot(*own, rules=rules, most=2)).returns) == 2
    assert not decide_returns(snapshot(*own, rules=rules, most=0)).returns


def test_the_budget_of_the_cluster_keeps_no_empty_node() -> None:
    own = [own_node(f"n{number}") for number in range(5)]
    assert len(decide_returns(snapshot(*own, most=0)).returns) == 5
    within = ReturnRules(budgets=(Budget("2"),))
    assert len(decide_returns(snapshot(*own, rules=within, most=0)).returns) == 2


def test_a_pool_without_a_manifest_keeps_its_nodes() -> None:
    found = decide_returns(snapshot(own_node("here"), rules=None))
    assert found.returns
    stranger = replace(own_node("here"), pool="gone")
    found = decide_returns(snapshot(stranger))
    assert found.kept["here"].code == reasons.POOL_UNKNOWN.name


def test_a_node_with_pods_is_kept_until_it_is_old_enough() -> None:
    young = own_node("young", spec(1000), age=29 * MINUTE)
    found = decide_returns(snapshot(young, own_node("other", spec(2000), spec(500))))
    assert "young" not in {name for one in found.returns for name in one.nodes}
    assert found.kept["young"].code == reasons.NODE_TOO_YOUNG.name
    empty = own_node("young", age=29 * MINUTE)
    assert [one.nodes for one in decide_returns(snapshot(empty)).returns] == [("young",)]


def test_a_plan_is_expected_to_hold_as_long_as_the_node_was_quiet() -> None:
    # 0.11 USD per hour: two moves for 0.01 USD each pay after eleven minutes.
    worth = Worth(per_pod=0.01)
    for quiet, gone in ((10, False), (11, True)):
        one = own_node("one", spec(100), spec(100), quiet=quiet * MINUTE)
        other = own_node("two", *[spec(900)] * 4, quiet=MINUTE)
        rules = ReturnRules(after=MINUTE, budgets=())
        found = decide_returns(snapshot(one, other, rules=rules, worth=worth))
        assert bool(found.returns) is gone, quiet


def test_only_nodes_that_were_examined_are_said_to_have_nothing_cheaper() -> None:
    """Without limits on a run, each node is either given back or examined."""
    full = [own_node(f"full{n}", spec(3000, 10_000)) for n in range(3)]
    found = decide_returns(snapshot(*full))
    assert not found.returns
    assert {one.code for one in found.kept.values()} == {reasons.NOTHING_CHEAPER.name}
    found = decide_returns(snapshot(*full, own_node("empty")))
    assert [one.nodes for one in found.returns] == [("empty",)]
    assert {one.code for one in found.kept.values()} == {reasons.NODE_NOT_EXAMINED.name}


def test_a_node_whose_price_is_not_worth_the_moves_is_not_said_to_have_nothing_cheaper() -> None:
    young = own_node("young", spec(500), quiet=timedelta(seconds=30))
    roomy = own_node("roomy", spec(1000), quiet=timedelta(seconds=30))
    found = decide_returns(snapshot(young, roomy))
    assert not found.returns
    assert {one.code for one in found.kept.values()} == {reasons.MOVE_NOT_WORTH.name}


def test_the_decision_says_when_the_next_empty_node_is_due() -> None:
    rules = ReturnRules(after=30 * MINUTE, budgets=())
    soon, late = own_node("soon", quiet=29 * MINUTE), own_node("late", quiet=2 * MINUTE)
    full = own_node("full", spec(3000), quiet=29.5 * MINUTE)
    starts = replace(own_node("starts", quiet=29.5 * MINUTE), ready=False)
    found = decide_returns(snapshot(soon, late, full, starts, rules=rules))
    assert found.due_at == NOW + MINUTE
    waiting = (Pod("default/coming", spec(3000)),)
    expected = decide_returns(snapshot(soon, waiting=waiting, rules=rules))
    assert expected.due_at is None, "a run for the pod follows"


def test_what_only_a_budget_forbids_is_decided_and_waits() -> None:
    rules = ReturnRules(after=MINUTE, budgets=(Budget("1"),))
    found = decide_returns(snapshot(own_node("one"), own_node("two"), rules=rules))
    assert [one.nodes for one in found.returns] == [("one",)]
    assert [one.nodes for one in found.waiting] == [("two",)]
    assert found.kept["two"].code == reasons.DISRUPTION_BUDGET_USED.name


def test_a_node_that_is_gone_uses_no_budget() -> None:
    rules = ReturnRules(after=MINUTE, budgets=(Budget("1"),))
    goes = replace(own_node("goes"), going=True)
    left = own_node("left")
    assert not decide_returns(snapshot(goes, left, rules=rules)).returns
    found = decide_returns(snapshot(replace(goes, gone=True), left, rules=rules))
    assert [one.nodes for one in found.returns] == [("left",)]


def test_a_reason_has_durations_as_manifests_have_them() -> None:
    old = ReturnRules(expires=timedelta(seconds=1), budgets=())
    (returned,) = decide_returns(snapshot(own_node("old"), rules=old)).returns
    assert returned.reason.message.startswith("Node old is older than 1s, the expireAfter of")
    waits = ReturnRules(after=timedelta(minutes=90))
    busy = replace(own_node("busy"), quiet_since=NOW - timedelta(seconds=61, milliseconds=7))
    found = decide_returns(snapshot(busy, rules=waits)).kept["busy"].message
    assert "1m1s ago; pool plain waits 1h30m" in found


SPREAD_PLACES = {
    ZONE: [("a", "on-demand"), ("b", "on-demand"), ("c", "on-demand")],
    HOSTNAME: [("a", "on-demand")] * 3,
    CAPACITY_TYPE: [("a", "spot"), ("a", "on-demand")],
}


def spread_nodes(topology: str, required: bool) -> list[OwnNode]:
    """A replica on a small node in each domain."""
    spread = Spread(term(topology, app="web"), 1, required=required)
    web = spec(100, labels={"app": "web"}, spreads=(spread,))
    return [
        own_node(f"n{at}", web, kind="small", zone=zone, capacity_type=capacity_type)
        for at, (zone, capacity_type) in enumerate(SPREAD_PLACES[topology])
    ]


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("topology", SPREAD_PLACES)
def test_consolidation_keeps_spreads(topology: str, required: bool) -> None:
    assert not decide_returns(snapshot(*spread_nodes(topology, required))).returns


def test_a_spread_that_does_not_hold_keeps_no_node() -> None:
    """Of four replicas, a skew of 1 allows two in zone a, where all of them are."""
    spread = Spread(term(ZONE, app="web"), 1, required=False)
    web = spec(100, labels={"app": "web"}, spreads=(spread,))
    nodes = [own_node(f"n{at}", *[web] * 2, kind="small", zone="a") for at in range(2)]
    foreign = own_node("other", kind="small", zone="b").node
    assert decide_returns(snapshot(*nodes, others=(foreign,))).returns


def hoping(**hopes: object) -> PodSpec:
    return replace(spec(100, labels={"app": "web"}), **hopes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "web",
    [
        hoping(preferred_pod_anti_affinity=(Weighted(1, term(HOSTNAME, app="web")),)),
        hoping(preferred_terms=(Weighted(1, Requirements.from_labels({CAPACITY_TYPE: "spot"})),)),
        hoping(preferred_pod_affinity=(Weighted(1, term(ZONE, app="cache")),)),
    ],
    ids=["apart", "on spot", "together"],
)
def test_consolidation_breaks_a_preference_that_holds_only_for_its_price(web: PodSpec) -> None:
    """One replica is on a Spot node in zone a, where a full node has a cache. The only node with
    room is in another zone, and it has a replica, too."""
    roomy = own_node("roomy", web, zone="b").node
    full = replace(own_node("full", spec(labels={"app": "cache"})).node, allocatable=Resources())
    one = own_node("here", web, kind="small", capacity_type="spot", quiet=timedelta(hours=4))
    given = snapshot(one, others=(roomy, full), pools=())
    assert not decide_returns(given).returns
    cheap = decide_returns(replace(given, worth=Worth(per_preference=0.01)))
    assert cheap.returns
    assert "Pods that lose preferences there: 1." in cheap.returns[0].reason.message
    dear = decide_returns(replace(given, worth=Worth(per_preference=1.0)))
    assert not dear.returns


def test_a_preference_that_does_not_hold_keeps_no_node() -> None:
    """Five replicas that would rather be apart are on two nodes."""
    web = hoping(preferred_pod_anti_affinity=(Weighted(1, term(HOSTNAME, app="web")),))
    nodes = [own_node("n0", *[web] * 2, kind="small"), own_node("n1", *[web] * 3, kind="small")]
    assert decide_returns(snapshot(*nodes, pools=())).returns


def test_a_pod_that_has_no_place_while_its_node_drains_keeps_no_other_node() -> None:
    """The only other node for it has a replica, and its own node is a domain until it has ended."""
    only = {"only": "web"}
    spread = Spread(term(HOSTNAME, app="web"), 1)
    web = hoping(spreads=(spread,), terms=(Requirements.from_labels(only),))
    stays, goes = (
        replace(one, node=replace(one.node, labels={**one.node.labels, **only}))
        for one in (own_node("stays", web), own_node("goes", web))
    )
    spare = [own_node(name, spec(1000)) for name in "ab"]
    found = decide_returns(snapshot(stays, replace(goes, going=True), *spare, pools=()))
    assert [one.nodes for one in found.returns] == [("a",)]


@pytest.mark.parametrize(
    ("change", "returned"),
    [
        ({"drift": ("It runs another AMI.",)}, []),
        ({"created_at": NOW - DAY}, [("here",)]),
    ],
    ids=["drifted", "expired"],
)
def test_an_annotation_of_a_node_keeps_it_until_it_expires_though_its_drain_is_bounded(
    change: dict[str, object], returned: list[tuple[str, ...]]
) -> None:
    rules = ReturnRules(expires=DAY, drain_within=MINUTE, budgets=())
    young = own_node("here", spec(100), kind="small", age=MINUTE)
    one = replace(young, protected=True, **change)  # type: ignore[arg-type]
    found = decide_returns(snapshot(one, rules=rules))
    assert [each.nodes for each in found.returns] == returned
    # The annotation of a pod keeps neither.
    pods = [replace(m, protected_until=NOW + MINUTE) for m in one.pods]
    of_pod = with_pods(replace(one, protected=False), pods)
    assert [e.nodes for e in decide_returns(snapshot(of_pod, rules=rules)).returns] == [("here",)]


FORCEFUL = ReturnRules(expires=DAY, forceful=True, budgets=(Budget("0"),))


def test_a_forceful_expiration_waits_for_nothing_of_the_pool_or_of_the_node() -> None:
    """Karpenter, nodeclaim/expiration: neither budgets nor do-not-disrupt delay it."""
    old = own_node("old", spec(3000), age=DAY)
    held = replace(
        with_pods(old, [replace(m, blocked_by=("web",), bare=True) for m in old.pods]),
        protected=True,
    )
    young = own_node("young", spec(3000), age=DAY - MINUTE)
    found = decide_returns(snapshot(held, young, rules=FORCEFUL))
    assert [(one.nodes, one.cause) for one in found.returns] == [(("old",), Cause.EXPIRED)]
    graceful = replace(FORCEFUL, forceful=False)
    found = decide_returns(snapshot(held, rules=graceful))
    assert not found.returns
    assert found.kept["old"].code == reasons.NODE_IS_PROTECTED.name


def test_a_graceful_expiration_respects_budgets_and_their_windows() -> None:
    """Core issue 1718."""
    old = own_node("old", spec(3000), age=DAY)
    closed = Budget("0", cron=parse_cron("0 9 * * *"), duration=timedelta(hours=8))
    rules = ReturnRules(expires=DAY, drain_within=MINUTE, budgets=(closed,))
    found = decide_returns(snapshot(old, rules=rules))
    assert found.kept["old"].code == reasons.DISRUPTION_BUDGET_USED.name
    later = snapshot(old, rules=rules, now=NOW + timedelta(hours=5))
    assert [one.cause for one in decide_returns(later).returns] == [Cause.EXPIRED]


def test_the_budget_of_the_cluster_bounds_a_forceful_expiration() -> None:
    own = [own_node(f"n{number}", spec(1000), age=DAY) for number in range(5)]
    assert len(decide_returns(snapshot(*own, rules=FORCEFUL)).returns) == 5
    assert len(decide_returns(snapshot(*own, rules=FORCEFUL, most=2)).returns) == 2


def test_a_forceful_expiration_forces_no_other_cause() -> None:
    rules = replace(FORCEFUL, budgets=())
    one = replace(own_node("here", spec(3000), age=MINUTE), drift=("It runs another AMI.",))
    held = with_pods(one, [replace(m, protected_until=NOW + MINUTE) for m in one.pods])
    assert not decide_returns(snapshot(held, rules=rules)).returns


def test_an_unhealthy_node_is_named_where_it_keeps_others() -> None:
    why = Unhealthy("Ready", "Unknown", NOW - MINUTE, NOW + DAY)
    dead = replace(own_node("dead"), ready=False, unhealthy=why)
    rules = ReturnRules(budgets=(Budget("1"),))
    found = decide_returns(snapshot(dead, own_node("spare"), rules=rules))
    assert not found.returns
    assert found.kept["dead"].code == "NodeUnhealthy"
    assert "its condition Ready is Unknown since 2026-11-20 11:59 UTC" in found.kept["dead"].message
    assert "1 are disrupted, among them dead, not Ready" in found.kept["spare"].message


def test_a_node_that_starts_uses_no_budget_and_does_not_count() -> None:
    starts = replace(own_node("starts", age=MINUTE), ready=False, initialized=False)
    spare = own_node("spare")
    for budget in ("1", "10%"):
        rules = ReturnRules(budgets=(Budget(budget),))
        found = decide_returns(snapshot(starts, spare, rules=rules))
        assert [one.nodes for one in found.returns] == [("spare",)]
    half = [replace(starts, node=replace(starts.node, name=f"new-{i}")) for i in range(3)]
    rules = ReturnRules(budgets=(Budget("50%"),))
    found = decide_returns(snapshot(*half, spare, own_node("b"), rules=rules))
    assert len(found.returns) == 1, "half of two, not of five"


def test_a_node_that_was_kept_shortly_before_uses_no_budget() -> None:
    rules = ReturnRules(budgets=(Budget("1"),), expires=DAY, forceful=True)
    first, second = own_node("a", age=3 * DAY), own_node("b", age=2 * DAY)
    found = decide_returns(snapshot(first, second, rules=rules, declined={"a": NOW + MINUTE}))
    assert [one.nodes for one in found.returns] == [("b",)]
    assert found.kept["a"].code == "NodeWasKept"


OTHER = NodePool("other")


def test_a_drifted_node_stays_while_the_only_pool_for_its_pods_is_in_doubt() -> None:
    old = replace(own_node("old", spec(3000)), drift=("It runs another AMI.",))
    found = decide_returns(snapshot(old, doubted=frozenset({"plain"})))
    assert found.returns == ()
    assert found.kept["old"].code == reasons.DESTINATION_IN_DOUBT.name
    assert "plain" in found.kept["old"].message
    beside = snapshot(old, pools=(ON_DEMAND, OTHER), doubted=frozenset({"plain"}))
    assert len(decide_returns(beside).returns) == 1
    found = decide_returns(snapshot(old, own_node("ready"), doubted=frozenset({"plain"})))
    assert [one.nodes for one in found.returns] == [("old",)], "ready is kept for its pod"


def test_an_expired_node_stays_too_unless_its_pool_bounds_the_drain() -> None:
    old = own_node("old", spec(3000), age=timedelta(days=30))
    for bound, gone in ((None, 0), (MINUTE, 1)):
        rules = ReturnRules(expires=timedelta(days=30), budgets=(), drain_within=bound)
        found = decide_returns(snapshot(old, rules=rules, doubted=frozenset({"plain"})))
        assert len(found.returns) == gone


def test_no_node_is_replaced_by_one_of_a_pool_in_doubt_nor_emptied_for_one_on_its_way() -> None:
    small = own_node("big", spec(500), kind="large")
    assert len(decide_returns(snapshot(small)).returns) == 1, "a smaller one is cheaper"
    assert decide_returns(snapshot(small, doubted=frozenset({"plain"}))).returns == ()
    coming = replace(own_node("i-late").node, name="i-late")
    drifted = replace(own_node("old", spec(3000)), drift=("It runs another AMI.",))
    doubted = frozenset({"plain"})
    joined = snapshot(drifted, others=(coming,), doubted=doubted)
    assert len(decide_returns(joined).returns) == 1
    late = replace(joined, awaited=frozenset({"i-late"}))
    assert decide_returns(late).returns == ()


DOUBT = reasons.DESTINATION_IN_DOUBT.name
GPU = NodePool("gpu", weight=-1, limits={"nodes": 0})


def drifted(name: str, *pods: PodSpec) -> OwnNode:
    return replace(own_node(name, *pods), drift=("It runs another AMI.",))


def test_a_pool_in_doubt_that_could_not_help_holds_no_node() -> None:
    full = replace(ON_DEMAND, limits={"nodes": 1})
    old = own_node("old", spec(3000), age=30 * DAY)
    rules = ReturnRules(expires=30 * DAY, budgets=())
    for doubted in (frozenset[str](), frozenset({"gpu"})):
        found = decide_returns(snapshot(old, pools=(full, GPU), rules=rules, doubted=doubted))
        assert [one.nodes for one in found.returns] == [("old",)], doubted


@pytest.mark.parametrize("doubted", [frozenset[str](), frozenset({"gpu"})])
def test_a_drifted_node_whose_pod_has_no_other_place_stays_and_the_next_one_goes(
    doubted: frozenset[str],
) -> None:
    gone = Requirements.from_labels({"example.com/gone": "yes"})
    lost = replace(drifted("a", spec(3000, terms=(gone,))), created_at=NOW - 9 * DAY)
    one = ReturnRules(budgets=(Budget("1"),))
    found = decide_returns(snapshot(lost, drifted("b", spec(3000)), rules=one, doubted=doubted))
    assert [one.nodes for one in found.returns] == [("b",)]
    assert found.kept["a"].code == "NoPlaceToMoveTo"
    assert "its pod default/a-0 would have no place" in found.kept["a"].message


def without_a_way_out(count: int) -> list[OwnNode]:
    """Drifted nodes older than others, whose pods have no other place."""
    gone = Requirements.from_labels({"example.com/gone": "yes"})
    return [
        replace(drifted(f"a-{n:02}", spec(3000, terms=(gone,))), created_at=NOW - 9 * DAY)
        for n in range(count)
    ]


def test_many_drifted_nodes_without_another_place_keep_no_younger_one() -> None:
    nodes = without_a_way_out(MOST_SIMULATED + 1)
    rules = ReturnRules(after=None, budgets=())
    found = decide_returns(snapshot(*nodes, drifted("b", spec(3000)), rules=rules))
    assert [one.nodes for one in found.returns] == [("b",)]
    codes = Counter(why.code for why in found.kept.values())
    assert codes == {"NoPlaceToMoveTo": MOST_SIMULATED, reasons.NODE_NOT_EXAMINED.name: 1}


def test_younger_drifted_nodes_get_their_turn_when_the_oldest_fill_the_budget() -> None:
    one = ReturnRules(after=None, budgets=(Budget("1"),))
    given = snapshot(*without_a_way_out(2 * MOST_SIMULATED), drifted("b", spec(3000)), rules=one)
    times = [NOW + number * MINUTE for number in range(20)]
    went = [bool(decide_returns(replace(given, now=at)).returns) for at in times]
    assert any(map(all, pairwise(went))), "two runs in a row decide it, which confirms it"


def test_a_place_that_a_plan_has_given_to_drifted_nodes_is_given_to_no_other() -> None:
    """The plan leaves one of three nodes out: the room is for the pods of the two others."""
    full = replace(ON_DEMAND, limits={"nodes": 0})
    nodes = [drifted(name, spec(1500)) for name in "abc"]
    found = decide_returns(snapshot(*nodes, own_node("room", spec(500)), pools=(full,)))
    assert len(found.returns) == 2
    assert [why.code for name, why in found.kept.items() if name in "abc"] == ["NoPlaceToMoveTo"]


def test_all_drifted_nodes_that_budgets_let_go_are_simulated_together() -> None:
    nodes = [drifted(f"n-{number:03}", spec(3000)) for number in range(MOST_SIMULATED + 5)]
    assert len(decide_returns(snapshot(*nodes)).returns) == len(nodes)
    room = own_node("room", spec(100))
    found = decide_returns(snapshot(drifted("a", spec(500)), drifted("b", spec(500)), room))
    assert [one.nodes for one in found.returns] == [("a",), ("b",)], "room is kept for their pods"


def test_a_drifted_node_goes_although_its_pods_prefer_what_it_has() -> None:
    here = Weighted(1, Requirements.from_labels({ZONE: "a"}))
    elsewhere = replace(ON_DEMAND, requirements=Requirements.from_labels({ZONE: "b"}))
    old = drifted("old", replace(spec(3000), preferred_terms=(here,)))
    found = decide_returns(snapshot(old, pools=(elsewhere,)))
    assert [one.nodes for one in found.returns] == [("old",)]


def test_a_node_that_no_budget_lets_go_reserves_no_room() -> None:
    closed = ReturnRules(budgets=(Budget("0", frozenset({Cause.DRIFTED})),))
    old, empty = drifted("old", spec(500)), own_node("empty")
    for doubted in (frozenset[str](), frozenset({"plain"})):
        found = decide_returns(snapshot(old, empty, rules=closed, doubted=doubted))
        assert [one.nodes for one in found.returns] == [("empty",)], doubted


def test_nodes_of_one_run_do_not_share_the_same_room() -> None:
    first, second = drifted("a", spec(3000)), drifted("b", spec(3000))
    room = own_node("room", spec(100))
    found = decide_returns(snapshot(first, second, room, doubted=frozenset({"plain"})))
    assert [one.nodes for one in found.returns] == [("a",)]
    assert found.kept["b"].code == reasons.DESTINATION_IN_DOUBT.name


def test_outdated_nodes_of_a_run_are_simulated_up_to_a_number() -> None:
    nodes = [drifted(f"n-{number:03}", spec(3000)) for number in range(MOST_SIMULATED + 5)]
    found = decide_returns(snapshot(*nodes, doubted=frozenset({"plain"})))
    assert found.returns == ()
    assert Counter(why.code for why in found.kept.values())[DOUBT] == MOST_SIMULATED
