"""Invariants of drains with any pods, budgets, deadlines and failures."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.pods import Terms, latest_moment
from leeway.retirement.progress import Drain, RemovalMethod, Stage

from tests.retirement.budget_model import BudgetedNode, Workload

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
SECOND = timedelta(seconds=1)

any_workload = st.builds(
    Workload,
    name=st.uuids().map(lambda u: f"w{u.hex[:6]}"),
    here=st.integers(1, 4),
    elsewhere=st.integers(0, 3),
    grace=st.integers(0, 200),
    budgets=st.sampled_from([0, 1, 1, 2]),
    needs=st.integers(0, 7),
    starts_in=st.sampled_from([None, 1, 4, 20]),
    returns=st.booleans(),
    stuck=st.sampled_from([False, False, False, True]),
    critical=st.booleans(),
    volumes=st.booleans(),
    detaches_in=st.sampled_from([0, 3, 30, None]),
    daemon=st.sampled_from([False, False, True]),
    mirror=st.sampled_from([False, False, False, True]),
    terminating=st.sampled_from([None, None, None, 5, 300]),
    protected=st.sampled_from([None, None, 0, 60, 10_000]),
)
workloads = st.lists(any_workload, max_size=5, unique_by=lambda one: one.name)


def evictable(*, critical: bool) -> st.SearchStrategy[Workload]:
    """Draw a workload whose pods the drain must evict, and which ends when it is evicted."""
    name = "critical" if critical else "ordinary"
    return any_workload.map(
        lambda one: replace(
            one,
            name=name,
            critical=critical,
            returns=False,
            stuck=False,
            daemon=False,
            mirror=False,
            terminating=None,
            protected=None,
        )
    )


terms = st.builds(
    lambda seconds, on_blocked, grace, keeps: Terms(
        NOW + timedelta(seconds=seconds), on_blocked, grace=grace, keeps_protected=keeps
    ),
    st.integers(-10, 240),
    st.sampled_from(OnBlocked),
    st.sampled_from([None, None, 7]),
    st.booleans(),
)


def run(some: list[Workload], rules: Terms, fails_every: int = 0) -> tuple[BudgetedNode, Drain]:
    node = BudgetedNode(NOW, some, fails_every)
    return node, node.drain(rules)


@settings(max_examples=100)
@given(some=workloads, rules=terms, fails_every=st.sampled_from([0, 0, 3, 10]))
def test_any_drain_keeps_pods_budgets_protections_deadlines_and_pauses(
    some: list[Workload], rules: Terms, fails_every: int
) -> None:
    node, drain = run(some, rules, fails_every)
    stay_without_a_request(node, drain)
    bypasses_no_budget(node, rules)
    waits_for_annotations(node, rules)
    exceeds_no_deadline(node, drain, rules)
    pauses_between_requests(node, rules)


def stay_without_a_request(node: BudgetedNode, drain: Drain) -> None:
    """Pods that stay get no request."""
    for one in node.asked:
        assert not one.ask.pod.mirror
        assert one.ask.pod.controller is not None
        assert one.ask.pod.controller.kind != "DaemonSet"
    assert all(progress.reason for progress in drain.pods.values())


def bypasses_no_budget(node: BudgetedNode, rules: Terms) -> None:
    """No budget is bypassed before the latest moment, or against the policy."""
    evicted: dict[str, int] = defaultdict(int)
    for one in node.asked:
        latest = latest_moment(one.ask.pod, rules)
        assert latest is not None
        if one.ask.method is RemovalMethod.DELETE:
            assert one.at >= latest
            removed_before = evicted[one.ask.pod.workload] > 0
            assert rules.on_blocked is OnBlocked.DELETE or removed_before
            assert node.of[one.ask.pod.uid].budgets or node.fails_every or removed_before
        if one.ask.method is RemovalMethod.EVICT and one.granted:
            evicted[one.ask.pod.workload] += 1
        if one.ask.method is RemovalMethod.SHORTEN:
            assert one.ask.pod.deletion is not None


def waits_for_annotations(node: BudgetedNode, rules: Terms) -> None:
    """A pod that an annotation keeps is evicted at its latest moment at the earliest."""
    for one in node.asked if rules.keeps_protected else ():
        latest, until = latest_moment(one.ask.pod, rules), one.ask.pod.protected_until
        shortens = one.ask.method is RemovalMethod.SHORTEN
        assert latest is not None
        assert shortens or until is None or one.at >= min(until, latest)


def exceeds_no_deadline(node: BudgetedNode, drain: Drain, rules: Terms) -> None:
    """Neither the drain nor a grace period exceeds the deadline, and no grace period that of its
    pod. A pod that no budget keeps is gone by then."""
    assert rules.deadline is not None
    assert node.now <= max(rules.deadline, NOW) + SECOND
    assert all(p.stage in {Stage.LEFT, Stage.GONE, Stage.FAILED} for p in drain.pods.values())
    for one in node.asked:
        grace = one.ask.pod.grace if one.ask.grace is None else one.ask.grace
        assert one.at + timedelta(seconds=grace) <= max(rules.deadline, one.at) + SECOND
        if one.ask.pod.deletion is None:
            assert grace <= max(one.ask.pod.grace, rules.grace or 0)
    in_time = rules.deadline > NOW and not node.fails_every
    for uid, progress in drain.pods.items() if in_time else ():
        of = node.of[uid]
        odd = of.returns or of.stuck or of.daemon or of.mirror or of.volumes
        if not (odd or of.budgets or of.terminating or of.protected):
            assert progress.stage is Stage.GONE


def pauses_between_requests(node: BudgetedNode, rules: Terms) -> None:
    """Requests for one pod have pauses between them."""
    assert rules.deadline is not None
    last: dict[tuple[str, RemovalMethod], datetime] = {}
    for one in node.asked:
        key = (one.ask.pod.uid, one.ask.method)
        if key in last and one.at < rules.deadline:
            assert one.at - last[key] >= timedelta(seconds=0.7)
        last[key] = one.at


@settings(max_examples=40)
@given(some=workloads, seconds=st.integers(0, 240))
def test_under_delete_every_pod_that_can_end_is_gone_or_terminating(
    some: list[Workload], seconds: int
) -> None:
    rules = Terms(NOW + timedelta(seconds=seconds), OnBlocked.DELETE)
    node, drain = run(some, rules)
    asked = {one.ask.pod.uid for one in node.asked if one.granted}
    for uid, progress in drain.pods.items():
        workload = node.of[uid]
        if workload.daemon or workload.mirror or workload.stuck or workload.returns:
            continue
        if workload.terminating is None:
            assert uid in asked, progress


@settings(max_examples=40)
@given(
    some=workloads,
    critical=evictable(critical=True),
    ordinary=evictable(critical=False),
    seconds=st.integers(70, 240),
    on_blocked=st.sampled_from(OnBlocked),
    fails_every=st.sampled_from([0, 0, 3, 10]),
    keeps_protected=st.booleans(),
)
def test_no_critical_pod_is_evicted_before_its_latest_moment_beside_an_ordinary_pod(
    some: list[Workload],
    critical: Workload,
    ordinary: Workload,
    seconds: int,
    on_blocked: OnBlocked,
    fails_every: int,
    keeps_protected: bool,
) -> None:
    deadline = NOW + timedelta(seconds=seconds)
    rules = Terms(deadline, on_blocked, keeps_protected=keeps_protected)
    # The critical one is listed first: the order of the list must not decide.
    node, _ = run([critical, *some, ordinary], rules, fails_every)

    of_each = defaultdict(list)
    for one in node.asked:
        of_each[node.of[one.ask.pod.uid].name].append(one)
    assert of_each["ordinary"][0].at == NOW
    assert of_each["critical"]
    for one in node.asked:
        latest = latest_moment(one.ask.pod, rules)
        assert latest is not None
        if one.ask.pod.critical and one.ask.method is RemovalMethod.EVICT and one.at < latest:
            assert not [pod.name for pod in one.beside if holds_up(node, pod, rules, one.at)]


def holds_up(node: BudgetedNode, pod: Pod, rules: Terms, at: datetime) -> bool:
    """Return whether a critical pod has to wait for this pod: an ordinary one that can end.

    Under `fail`, a pod that is blocked at its latest moment is given up.
    """
    workload, latest = node.of[pod.uid], latest_moment(pod, rules)
    odd = workload.returns or workload.stuck or workload.daemon or workload.mirror
    given_up = rules.on_blocked is OnBlocked.FAIL and latest is not None and latest <= at
    return not (workload.critical or odd or given_up)
