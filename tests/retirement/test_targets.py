"""An instance ends after load balancers have drained it, if there is time."""

from datetime import timedelta

import pytest
from leeway.execution.shared_cache import CACHED
from leeway.notices import NoticeKind
from leeway.policy.rules import SPOT_WARNING, ClusterPolicy
from leeway.ports.aws import CloudRefused, CloudUnavailable, Target, TargetGroup
from leeway.retirement.targets import (
    DEREGISTERED_WITHIN,
    LONGEST_DELAY,
    LOOK_EVERY,
    decide_cut,
    decide_targets,
)

from tests.fakes.retirement import POD, RetirementFakes, retire, retirement_fakes
from tests.retirement.retirements import FACTS, NOTICED

ARN = "arn:test:elasticloadbalancing:us-east-1:1:targetgroup/web/0123"
HEALTHY, DRAINING, UNUSED = (
    Target(ARN, 30080, state) for state in ("healthy", "draining", "unused")
)


@pytest.mark.parametrize(
    ("targets", "waited", "left", "waits", "code", "why"),
    [
        ([], 0, None, False, None, ""),
        ([UNUSED], 0, None, False, None, ""),
        ([DRAINING], 0, None, True, "TargetsDrain", "1 target of the instance, in web"),
        ([HEALTHY], 0, None, True, "TargetsDrain", "web"),
        ([HEALTHY], 120, None, False, "TargetsLeft", "nothing deregisters them"),
        ([HEALTHY, DRAINING], 120, None, True, "TargetsDrain", "2 targets"),
        ([DRAINING], 120, 16, True, "TargetsDrain", ""),
        ([DRAINING], 120, 15, False, "TargetsLeft", "the deadline is here"),
        ([DRAINING], 3720, None, False, "TargetsLeft", "longest deregistration delay"),
    ],
)
def test_the_decision_waits_for_targets_that_drain(
    targets: list[Target], waited: int, left: int | None, waits: bool, code: str | None, why: str
) -> None:
    deadline = None if left is None else NOTICED + timedelta(seconds=left)
    since = NOTICED - timedelta(seconds=waited)
    decision = decide_targets(targets, since, NOTICED, deadline)
    assert decision.wait == waits
    assert (decision.reason.code if decision.reason else None) == code
    assert why in str(decision.reason or "")


def balanced(kind: NoticeKind = NoticeKind.TERMINATE_HOOK, asks: bool = True) -> RetirementFakes:
    """Return a retirement of an instance that a target group has."""
    fakes = retirement_fakes(kind, pods=[POD], blocks=False)
    fakes.policies.policy = ClusterPolicy(waits_for_targets=asks)
    fakes.targets.registered = {ARN: {FACTS.instance: 30080}}
    return fakes


def test_an_instance_ends_only_after_its_targets_have_drained() -> None:
    fakes = balanced()
    fakes.targets.deregister(ARN, FACTS.instance)
    drained_at = fakes.clock.time + fakes.targets.delay
    outcome = retire(fakes)
    assert "TargetsLeft" not in str(outcome.load_balancers)
    ended = outcome.ended_at
    assert timedelta(0) <= ended - drained_at <= LOOK_EVERY + timedelta(seconds=1)
    assert fakes.targets.reads[0] is None
    assert set(map(str, fakes.targets.reads[1:])) == {str((ARN,))}


def test_heartbeats_keep_the_hook_waiting_meanwhile() -> None:
    fakes = balanced()
    fakes.targets.delay = timedelta(minutes=20)
    fakes.targets.deregister(ARN, FACTS.instance)
    retire(fakes)
    assert len(fakes.groups.heartbeats) > 2


def test_an_instance_that_nothing_deregisters_ends_after_two_minutes() -> None:
    fakes = balanced()
    outcome = retire(fakes)
    assert "nothing deregisters them" in str(outcome.load_balancers)
    ended = outcome.ended_at
    assert ended - NOTICED < DEREGISTERED_WITHIN + timedelta(minutes=1)


@pytest.mark.parametrize("kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.TERMINATE_HOOK])
def test_a_cluster_that_does_not_ask_reads_no_target(kind: NoticeKind) -> None:
    fakes = balanced(kind, asks=False)
    retire(fakes)
    assert fakes.targets.reads == []
    assert [name for name in fakes.steps.names if "targets" in name] == []


@pytest.mark.parametrize(
    ("states", "delay", "cut"),
    [
        (
            ("draining",),
            300,
            "target group web lacks at least 190 s of its deregistration delay of 300 s.",
        ),
        (("draining", "unused"), 111, "lacks at least 1 s"),
        (("draining",), 110, ""),
        (
            ("healthy",),
            110,
            "lacks at least 15 s of its deregistration delay of 110 s, and nothing",
        ),
        (("draining", "healthy"), 300, "lacks at least 205 s"),
        (("healthy",), 95, ""),
        (("unused",), 300, ""),
        ((), 300, ""),
    ],
)
def test_what_two_minutes_cut_of_a_deregistration_is_at_least_what_is_lacking(
    states: tuple[str, ...], delay: int, cut: str
) -> None:
    since, now = NOTICED + timedelta(seconds=10), NOTICED + timedelta(seconds=40)
    groups = {ARN: TargetGroup({FACTS.instance: states} if states else {}, delay)}
    end = NOTICED + SPOT_WARNING
    reason = decide_cut(groups, FACTS.instance, since, now, end)
    assert (reason.code if reason else None) == ("TargetsCut" if cut else None)
    assert cut in str(reason or "")


def test_an_interruption_says_what_it_cuts_and_waits_for_nothing() -> None:
    fakes = balanced(NoticeKind.SPOT_INTERRUPTION)
    fakes.targets.deregister(ARN, FACTS.instance)
    outcome = retire(fakes)
    assert outcome.load_balancers is not None
    assert outcome.load_balancers.code == "TargetsCut"
    assert "target group web lacks at least 181 s" in outcome.summary.message
    assert [name for name in fakes.steps.names if "targets" in name] == ["targets-cut"]
    assert outcome.result == "drained"
    assert outcome.ended_at - NOTICED < timedelta(minutes=1)
    shown = [str(one.problem) for one in fakes.fast.states if one.problem is not None]
    assert ["web lacks" in one for one in shown] == [True]


def test_functions_share_what_one_has_read_of_target_groups() -> None:
    fakes = balanced(NoticeKind.SPOT_INTERRUPTION)
    retire(fakes)
    assert fakes.targets.reads == [None, (ARN,)]
    assert fakes.table.get(CACHED, what=f"target-group-{ARN}") is not None


def test_a_refused_read_in_an_interruption_is_said() -> None:
    fakes = balanced(NoticeKind.SPOT_INTERRUPTION)
    fakes.targets.error = CloudRefused("DescribeTargetGroups: AccessDenied")
    outcome = retire(fakes)
    assert "AccessDenied" in outcome.summary.message
    assert outcome.result == "drained"


def test_a_missing_right_does_not_keep_the_instance() -> None:
    fakes = balanced()
    fakes.targets.error = CloudRefused("DescribeTargetGroups: AccessDenied")
    outcome = retire(fakes)
    assert "cannot read their targets: DescribeTargetGroups: AccessDenied" in str(
        outcome.load_balancers
    )
    assert [name for name in fakes.steps.names if "wait-for-targets" in name] == []


def test_a_service_that_throttles_is_asked_again_for_two_minutes() -> None:
    fakes = balanced()
    fakes.targets.error = CloudUnavailable("DescribeTargetGroups: Throttling")
    outcome = retire(fakes)
    assert "Throttling" in str(outcome.load_balancers)
    assert len(fakes.targets.reads) == DEREGISTERED_WITHIN // LOOK_EVERY + 1


def test_a_newer_attempt_ends_the_wait() -> None:
    fakes = balanced()
    fakes.targets.delay = LONGEST_DELAY
    fakes.targets.deregister(ARN, FACTS.instance)
    fakes.steps.at("targets-2")(fakes.supersede)
    assert fakes.run_attempt() is None
    assert len(fakes.targets.reads) == 2


def test_a_step_that_runs_again_waits_no_shorter_and_deregisters_nothing() -> None:
    fakes = balanced()
    fakes.targets.deregister(ARN, FACTS.instance)
    drained_at = fakes.clock.time + fakes.targets.delay
    inner = fakes.steps.run

    def twice(name: str, kind: type, work: object) -> object:
        if name.startswith("targets-"):
            work()  # type: ignore[operator]
        return inner(name, kind, work)  # type: ignore[arg-type]

    fakes.steps.run = twice  # type: ignore[method-assign,assignment]
    assert retire(fakes).ended_at >= drained_at


def test_the_status_shows_which_target_groups_a_retirement_waits_for() -> None:
    fakes = balanced()
    fakes.targets.deregister(ARN, FACTS.instance)
    retire(fakes)
    shown = [state for state in fakes.fast.states if state.problem is not None]
    assert [(state.node, str(state.problem)) for state in shown] == [
        ("node-1", "Load balancers drain 1 target of the instance, in web.")
    ]


def test_a_service_that_throttles_once_in_a_long_wait_does_not_end_it() -> None:
    fakes = balanced()
    fakes.targets.delay = timedelta(minutes=10)
    fakes.targets.deregister(ARN, FACTS.instance)
    drained_at = fakes.clock.time + fakes.targets.delay
    late = f"targets-{timedelta(minutes=4) // LOOK_EVERY}"

    def throttle(step: str) -> None:
        throttled = CloudUnavailable("DescribeTargetHealth: Throttling")
        fakes.targets.error = throttled if step == late else None

    fakes.steps.before_step = throttle
    outcome = retire(fakes)
    assert late in fakes.steps.names
    assert outcome.ended_at >= drained_at
    assert "Throttling" not in str(outcome.load_balancers)
