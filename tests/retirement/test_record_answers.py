"""Updates of a pod's progress from each kind of answer of the API server."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Controller, Pod
from leeway.retirement.plan import give_up, plan
from leeway.retirement.pods import Answer, Meaning, Terms
from leeway.retirement.progress import (
    Drain,
    PodProgress,
    PodRequest,
    RemovalMethod,
    Stage,
    observe,
    record_answer,
    record_budgets,
)
from leeway.retirement.reasons import (
    BUDGET_BLOCKS,
    EVICTION_FAILED,
    POD_COMES_BACK,
    POD_EVICTED,
    POD_GONE,
    SEVERAL_BUDGETS,
)

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WEB = Pod("shop", "web-1", "u-1", "Running", 30, Controller("ReplicaSet", "web"))
DB = Pod("shop", "db-0", "u-1", "Running", 30, Controller("StatefulSet", "db"), claims=("shop/db",))
REFUSED = BUDGET_BLOCKS(answer="budget web")
THROTTLED = EVICTION_FAILED("the API server throttles it")
RETURNED = POD_COMES_BACK("its toleration (operator Exists) ignores the cordon")
ACCEPTED = Answer(Meaning.ACCEPTED, POD_EVICTED())
IN_TIME = Terms(NOW + timedelta(minutes=5), OnBlocked.DELETE)


def after(
    *answers: Answer,
    pod: Pod = WEB,
    terms: Terms = IN_TIME,
    method: RemovalMethod = RemovalMethod.EVICT,
) -> PodProgress:
    """Return the pod's progress after these answers, one per second."""
    drain = observe(Drain(), [pod], terms, NOW)
    for number, answer in enumerate(answers):
        ask = PodRequest(pod, method, None, POD_EVICTED())
        drain = record_answer(drain, ask, answer, terms, NOW + number * SECOND)
    return drain.pods[pod.uid]


def asked(
    progress: PodProgress, at: datetime, pod: Pod = WEB, terms: Terms = IN_TIME
) -> list[RemovalMethod]:
    """Return how the pod is removed at this moment."""
    return [ask.method for ask in plan(Drain(True, pods={pod.uid: progress}), [pod], terms, at)]


def test_a_throttled_eviction_is_retried_after_the_api_servers_retry_after() -> None:
    throttled = after(Answer(Meaning.THROTTLED, THROTTLED, 7))
    assert (throttled.stage, throttled.reason) == (Stage.PENDING, THROTTLED)
    assert asked(throttled, NOW + 6 * SECOND) == []
    assert asked(throttled, NOW + 7 * SECOND) == [RemovalMethod.EVICT]
    unsaid = after(Answer(Meaning.THROTTLED, THROTTLED))
    assert asked(unsaid, NOW + SECOND) == [RemovalMethod.EVICT]


def test_a_throttled_pod_is_deleted_at_its_latest_moment() -> None:
    long = after(Answer(Meaning.THROTTLED, THROTTLED, 3600))
    latest = NOW + timedelta(minutes=5) - 30 * SECOND
    assert asked(long, latest - SECOND) == []
    assert asked(long, latest) == [RemovalMethod.DELETE]


@pytest.mark.parametrize("meaning", [Meaning.BLOCKED, Meaning.NOT_EVICTABLE, Meaning.TRANSIENT])
def test_a_refused_eviction_is_retried_after_one_second_and_then_less_often(
    meaning: Meaning,
) -> None:
    first = after(Answer(meaning, REFUSED)).next_try_at
    assert first is not None
    assert 0.75 * SECOND <= first - NOW <= SECOND
    tenth = after(*[Answer(meaning, REFUSED)] * 10).next_try_at
    assert tenth is not None
    assert 3.75 * SECOND <= tenth - (NOW + 9 * SECOND) <= 5 * SECOND
    no_deadline = after(Answer(meaning, REFUSED), terms=Terms()).next_try_at
    assert no_deadline == NOW + 5 * SECOND, "as kubectl drain does"


def test_pods_that_are_refused_together_are_not_retried_together() -> None:
    pods = [Pod("shop", f"web-{n}", f"u-{n}", "Running", 30, None) for n in range(50)]
    tries = {after(Answer(Meaning.BLOCKED, REFUSED), pod=pod).next_try_at for pod in pods}
    assert len(tries) > 25


def test_the_time_and_the_budget_of_the_first_block_are_kept() -> None:
    blocked = Answer(Meaning.BLOCKED, REFUSED, budgets=("web",))
    progress = after(blocked, Answer(Meaning.BLOCKED, REFUSED))
    assert (progress.stage, progress.attempts) == (Stage.BLOCKED, 2)
    assert (progress.blocked_at, progress.budgets) == (NOW, ("web",))
    other = Answer(Meaning.BLOCKED, REFUSED, budgets=("api",))
    assert after(blocked, other).budgets == ("api",)


def test_several_budgets_fail_a_pod_without_a_deadline_under_on_blocked_fail() -> None:
    several = Answer(Meaning.NOT_EVICTABLE, REFUSED)
    like_kubectl = Terms(on_blocked=OnBlocked.FAIL)
    assert after(several, terms=like_kubectl).stage is Stage.FAILED
    assert after(several, terms=Terms(on_blocked=OnBlocked.WAIT)).stage is Stage.BLOCKED
    assert after(several, terms=Terms(IN_TIME.deadline, OnBlocked.FAIL)).stage is Stage.BLOCKED
    one = Answer(Meaning.BLOCKED, REFUSED)
    assert after(one, terms=like_kubectl).stage is Stage.BLOCKED, "kubectl drain retries it"


def test_the_names_of_several_budgets_are_reported() -> None:
    several = after(Answer(Meaning.NOT_EVICTABLE, REFUSED))
    named = record_budgets(Drain(True, pods={"u-1": several}), "u-1", ("web", "all")).pods["u-1"]
    assert named.budgets == ("web", "all")
    assert named.reason == SEVERAL_BUDGETS(budgets="web, all")
    assert named.stage is Stage.BLOCKED


def test_the_drain_waits_for_a_terminating_pod_of_a_deleted_namespace() -> None:
    refused = Answer(Meaning.TERMINATING, REFUSED)
    assert after(refused).stage is Stage.PENDING
    going = Pod("shop", "web-1", "u-1", "Running", 30, None, deletion=NOW + 30 * SECOND)
    assert after(refused, pod=going).stage is Stage.TERMINATING


def test_a_denied_eviction_fails_a_pod_without_a_deadline_and_is_retried_with_one() -> None:
    forbidden = Answer(Meaning.DENIED, REFUSED)
    assert after(forbidden, terms=Terms()).stage is Stage.FAILED
    tried = after(forbidden)
    assert tried.stage is Stage.PENDING
    latest = NOW + timedelta(minutes=5) - 30 * SECOND
    assert asked(tried, latest) == [RemovalMethod.DELETE]


def test_the_drain_waits_for_the_volumes_of_a_gone_pod_until_the_deadline() -> None:
    gone = Answer(Meaning.GONE, POD_GONE(" Another pod has its name now."))
    assert (after(gone).stage, after(gone).reason) == (Stage.GONE, gone.reason)
    waits = after(gone, pod=DB)
    assert (waits.stage, waits.attached, waits.gone_at) == (Stage.DETACHING, ("shop/db",), NOW)
    assert after(gone, pod=DB, terms=Terms()).stage is Stage.GONE


def test_a_shortened_grace_period_is_reported() -> None:
    drain = observe(Drain(), [WEB], IN_TIME, NOW)
    ask = PodRequest(WEB, RemovalMethod.EVICT, 12, POD_EVICTED())
    cut = record_answer(drain, ask, ACCEPTED, IN_TIME, NOW).pods["u-1"]
    assert (cut.stage, cut.requested_at, cut.next_try_at) == (Stage.TERMINATING, NOW, None)
    assert cut.reason == POD_EVICTED().and_then(
        f"The grace period of the pod is shortened from {30} s to {12} s by the deadline."
    )
    assert after(ACCEPTED).reason == POD_EVICTED()
    for grace in (30, 60):
        given = record_answer(drain, replace(ask, grace=grace), ACCEPTED, IN_TIME, NOW)
        assert given.pods["u-1"].reason == POD_EVICTED(), (
            "the grace period is the pod's own, or longer as requested"
        )


def test_without_a_deadline_a_pod_that_came_back_is_left() -> None:
    back = PodProgress("shop/web-1", "u-1", "web", Stage.RETURNED, RETURNED)
    drain = Drain(True, pods={"u-1": back})
    assert give_up(drain, [WEB], Terms(), NOW).pods["u-1"].stage is Stage.LEFT
    assert give_up(drain, [WEB], IN_TIME, NOW).pods["u-1"].stage is Stage.RETURNED


@pytest.mark.parametrize("terms", [IN_TIME, Terms(on_blocked=OnBlocked.FAIL)])
@pytest.mark.parametrize("meaning", [Meaning.BLOCKED, Meaning.NOT_EVICTABLE])
def test_a_refusal_that_comes_after_the_deletion_of_the_pod_changes_nothing(
    terms: Terms, meaning: Meaning
) -> None:
    """The list shows the deletion before the API server answers the eviction that hung."""
    drain = observe(Drain(), [WEB], terms, NOW)
    drain = observe(drain, [replace(WEB, deletion=NOW + 30 * SECOND)], terms, NOW)
    ask = PodRequest(WEB, RemovalMethod.EVICT, None, POD_EVICTED())
    assert record_answer(drain, ask, Answer(meaning, REFUSED), terms, NOW) == drain
