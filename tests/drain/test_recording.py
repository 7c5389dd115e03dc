"""What each answer of the API server makes of the pod that was asked to go."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from leeway.drain.answers import Answer, Meaning
from leeway.drain.deadline import Terms
from leeway.drain.observe import observe
from leeway.drain.plan import PodRequest, give_up, plan
from leeway.drain.progress import Drain, PodProgress, RemovalMethod, Stage
from leeway.drain.record_answers import name_budgets, record
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Controller, Pod

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WEB = Pod("shop", "web-1", "u-1", "Running", 30, Controller("ReplicaSet", "web"))
DB = Pod("shop", "db-0", "u-1", "Running", 30, Controller("StatefulSet", "db"), claims=("shop/db",))
IN_TIME = Terms(NOW + timedelta(minutes=5), OnBlocked.DELETE)


def after(
    *answers: Answer,
    pod: Pod = WEB,
    terms: Terms = IN_TIME,
    way: RemovalMethod = RemovalMethod.EVICT,
) -> PodProgress:
    """The pod after these answers, one a second."""
    drain = observe(Drain(), [pod], terms, NOW)
    for number, answer in enumerate(answers):
        ask = PodRequest(pod, way, None, "evicted")
        drain = record(drain, ask, answer, terms, NOW + number * SECOND)
    return drain.pods[pod.uid]


def asked(
    progress: PodProgress, at: datetime, pod: Pod = WEB, terms: Terms = IN_TIME
) -> list[RemovalMethod]:
    """How it is asked to go at this moment."""
    return [ask.way for ask in plan(Drain(True, pods={pod.uid: progress}), [pod], terms, at)]


def test_an_api_server_that_throttles_is_left_alone_for_as_long_as_it_says() -> None:
    throttled = after(Answer(Meaning.THROTTLED, "patience", 7))
    assert (throttled.stage, throttled.reason) == (Stage.PENDING, "patience")
    assert asked(throttled, NOW + 6 * SECOND) == []
    assert asked(throttled, NOW + 7 * SECOND) == [RemovalMethod.EVICT]
    unsaid = after(Answer(Meaning.THROTTLED, "patience"))
    assert asked(unsaid, NOW + SECOND) == [RemovalMethod.EVICT]


def test_even_then_a_pod_goes_by_its_latest_moment() -> None:
    long = after(Answer(Meaning.THROTTLED, "patience", 3600))
    latest = NOW + timedelta(minutes=5) - 30 * SECOND
    assert asked(long, latest - SECOND) == []
    assert asked(long, latest) == [RemovalMethod.DELETE]


@pytest.mark.parametrize("meaning", [Meaning.BLOCKED, Meaning.NOT_EVICTABLE, Meaning.TRANSIENT])
def test_what_does_not_go_is_tried_after_one_second_and_then_more_rarely(meaning: Meaning) -> None:
    first = after(Answer(meaning, "not now")).next_try_at
    assert first is not None
    assert 0.75 * SECOND <= first - NOW <= SECOND
    tenth = after(*[Answer(meaning, "not now")] * 10).next_try_at
    assert tenth is not None
    assert 3.75 * SECOND <= tenth - (NOW + 9 * SECOND) <= 5 * SECOND
    leisure = after(Answer(meaning, "not now"), terms=Terms()).next_try_at
    assert leisure == NOW + 5 * SECOND, "as kubectl does"


def test_pods_that_are_refused_at_the_same_time_do_not_come_again_at_the_same_time() -> None:
    pods = [Pod("shop", f"web-{n}", f"u-{n}", "Running", 30, None) for n in range(50)]
    tries = {after(Answer(Meaning.BLOCKED, "no"), pod=pod).next_try_at for pod in pods}
    assert len(tries) > 25


def test_the_first_block_and_its_budget_are_remembered() -> None:
    blocked = Answer(Meaning.BLOCKED, "budget web", budgets=("web",))
    progress = after(blocked, Answer(Meaning.BLOCKED, "it is being processed"))
    assert (progress.stage, progress.attempts) == (Stage.BLOCKED, 2)
    assert (progress.blocked_at, progress.budgets) == (NOW, ("web",))
    other = Answer(Meaning.BLOCKED, "budget api", budgets=("api",))
    assert after(blocked, other).budgets == ("api",)


def test_several_budgets_end_a_drain_that_has_neither_a_deadline_nor_to_wait() -> None:
    several = Answer(Meaning.NOT_EVICTABLE, "more than one")
    like_kubectl = Terms(on_blocked=OnBlocked.FAIL)
    assert after(several, terms=like_kubectl).stage is Stage.FAILED
    assert after(several, terms=Terms(on_blocked=OnBlocked.WAIT)).stage is Stage.BLOCKED
    assert after(several, terms=Terms(IN_TIME.deadline, OnBlocked.FAIL)).stage is Stage.BLOCKED
    one = Answer(Meaning.BLOCKED, "budget web")
    assert after(one, terms=like_kubectl).stage is Stage.BLOCKED, "kubectl tries it again"


def test_the_names_of_several_budgets_are_told() -> None:
    several = after(Answer(Meaning.NOT_EVICTABLE, "more than one"))
    named = name_budgets(Drain(True, pods={"u-1": several}), "u-1", ("web", "all")).pods["u-1"]
    assert named.budgets == ("web", "all")
    assert named.reason == "it has more than one PodDisruptionBudget: web, all"
    assert named.stage is Stage.BLOCKED


def test_a_pod_in_a_namespace_that_is_deleted_is_waited_for_once_it_goes() -> None:
    refused = Answer(Meaning.TERMINATING, "namespace shop is being terminated")
    assert after(refused).stage is Stage.PENDING
    going = Pod("shop", "web-1", "u-1", "Running", 30, None, deletion=NOW + 30 * SECOND)
    assert after(refused, pod=going).stage is Stage.TERMINATING


def test_a_refusal_ends_a_drain_without_a_deadline_and_is_tried_to_the_end_with_one() -> None:
    forbidden = Answer(Meaning.DENIED, "403: cannot create pods/eviction")
    assert after(forbidden, terms=Terms()).stage is Stage.FAILED
    tried = after(forbidden)
    assert tried.stage is Stage.PENDING
    latest = NOW + timedelta(minutes=5) - 30 * SECOND
    assert asked(tried, latest) == [RemovalMethod.DELETE]


def test_what_is_gone_has_its_volumes_waited_for_up_to_a_deadline() -> None:
    gone = Answer(Meaning.GONE, "another pod has its name now")
    assert (after(gone).stage, after(gone).reason) == (Stage.GONE, gone.detail)
    waits = after(gone, pod=DB)
    assert (waits.stage, waits.attached, waits.gone_at) == (Stage.DETACHING, ("shop/db",), NOW)
    assert after(gone, pod=DB, terms=Terms()).stage is Stage.GONE


def test_a_cut_grace_is_said() -> None:
    drain = observe(Drain(), [WEB], IN_TIME, NOW)
    ask = PodRequest(WEB, RemovalMethod.EVICT, 12, "evicted")
    cut = record(drain, ask, Answer(Meaning.ACCEPTED), IN_TIME, NOW).pods["u-1"]
    assert (cut.stage, cut.asked_at, cut.next_try_at) == (Stage.TERMINATING, NOW, None)
    assert cut.reason == "evicted, its grace of 30s cut to 12s"
    assert after(Answer(Meaning.ACCEPTED)).reason == "evicted"
    for grace in (30, 60):
        given = record(drain, replace(ask, grace=grace), Answer(Meaning.ACCEPTED), IN_TIME, NOW)
        assert given.pods["u-1"].reason == "evicted", "as it was, or longer because that was asked"


def test_without_a_deadline_what_came_back_is_left() -> None:
    back = PodProgress("shop/web-1", "u-1", "web", Stage.RETURNED, "it came back")
    drain = Drain(True, pods={"u-1": back})
    assert give_up(drain, [WEB], Terms(), NOW).pods["u-1"].stage is Stage.LEFT
    assert give_up(drain, [WEB], IN_TIME, NOW).pods["u-1"].stage is Stage.RETURNED
