"""What the comparison of a rehearsal with a real run shows."""

from collections import Counter
from datetime import timedelta

import pytest
from leeway_cli.rehearse.cluster import Pace
from leeway_cli.rehearse.storm import Storm
from leeway_cli.report.model import Attempt, Evaluation, Outcome, PodReport, PodTrace, Workload

from bench.fates import (
    LATE_BY,
    Compared,
    Verdict,
    compare_fates,
    removed_otherwise,
    request_times,
)
from tests.rehearse.documents import NOW, Object, node, pod, storm_of, workload

WEB = "Deployment/shop/web"
BEGAN = NOW.timestamp()
MOVED, CUT = Counter(moved=1), Counter(cut=1)


@pytest.mark.parametrize(
    ("own", "happened", "late", "verdict"),
    [
        (MOVED, MOVED, 0.0, Verdict.SAME),
        (CUT, MOVED, 9.0, Verdict.SAME),
        (CUT, CUT, LATE_BY, Verdict.LATE),
        (MOVED, CUT, 9.0, Verdict.LATE_UNEXPLAINED),
        (CUT, CUT, LATE_BY - 0.1, Verdict.DIFFERS),
        (MOVED, CUT, 0.0, Verdict.DIFFERS),
    ],
)
def test_only_a_request_that_was_late_explains_another_fate(
    own: Counter[str], happened: Counter[str], late: float, verdict: Verdict
) -> None:
    found = Compared(WEB, MOVED, own, happened, late)

    assert found.verdict is verdict
    assert f"{late:.1f} s late" in str(found)


def test_a_pod_that_the_machine_removed_too_late_is_cut_in_the_run_and_at_its_times() -> None:
    usual, own, run = _late_storm(at=112)
    found = compare_fates(usual, own, run)

    assert [(one.workload, one.verdict) for one in found] == [(WEB, Verdict.LATE)]
    assert found[0].late == pytest.approx(111)
    assert (found[0].rehearsed, found[0].happened) == (MOVED, CUT)


def test_the_same_fates_in_time_have_no_late_request() -> None:
    usual, own, _ = _late_storm(at=1)
    found = compare_fates(usual, own, [_report(requested=1.2, ended=4.7, outcome=Outcome.MOVED)])

    assert [one.verdict for one in found] == [Verdict.SAME]
    assert found[0].late == pytest.approx(0.2)


def test_a_pod_without_a_request_is_late_until_its_end() -> None:
    usual, own, _ = _late_storm(at=1)
    found = compare_fates(usual, own, [_report(requested=None, ended=120, outcome=Outcome.DIED)])

    assert found[0].late == pytest.approx(119)
    assert found[0].verdict is Verdict.LATE_UNEXPLAINED


def test_a_pod_that_is_missing_in_the_run_differs() -> None:
    usual, own, _ = _late_storm(at=1)

    assert [one.verdict for one in compare_fates(usual, own, [])] == [Verdict.DIFFERS]


def test_a_death_in_the_last_second_of_a_grace_period_counts_as_cut() -> None:
    usual, own, _ = _late_storm(at=112)
    died = _report(requested=112, ended=114.2, outcome=Outcome.DIED)

    assert compare_fates(usual, own, [died])[0].happened == CUT


def test_a_pod_that_was_deleted_instead_of_evicted_is_counted() -> None:
    _, own, run = _late_storm(at=112)

    assert removed_otherwise(own, run) == 0
    deleted = _report(requested=112, ended=115, outcome=Outcome.CUT, by="delete")
    assert removed_otherwise(own, [deleted]) == 1


def test_the_times_of_a_run_are_those_of_its_evictions_and_of_a_deletion_after_them() -> None:
    refused = (Attempt(BEGAN + 2, 429), Attempt(BEGAN + 4, 429))
    granted = (*refused[:1], Attempt(BEGAN + 5, 201))
    deleted = _report(requested=9, ended=10, outcome=Outcome.MOVED, attempts=refused)
    evicted = _report(requested=5, ended=10, outcome=Outcome.MOVED, attempts=granted)
    never = _report(requested=None, ended=120, outcome=Outcome.DIED)

    assert [_seconds(one) for one in (deleted, evicted, never)] == [[2, 4, 9], [2, 5], []]


def _seconds(one: PodReport) -> list[float]:
    times = request_times([one.trace])[one.trace.uid]
    return [(at - NOW) / timedelta(seconds=1) for at in times]


def _late_storm(at: float) -> tuple[Storm, Storm, list[PodReport]]:
    """A pod that needs 3.5 of its 60 seconds: at the usual pace, at the times of a run that
    requests its end so many seconds after the notice, and that run."""
    objects: list[Object] = [node("a"), node("b"), pod("web-1", "a", grace=60)]
    objects.append(workload("Deployment", "web", 1))
    replica_set = workload("ReplicaSet", "web-1", 1)
    owner = {"kind": "Deployment", "name": "web", "uid": "web", "controller": True}
    replica_set["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", **owner}]
    objects.append(replica_set)
    pace = Pace(pod_stop=3.5)
    usual = storm_of(*objects, lost="a", pace=pace)
    own = storm_of(*objects, lost="a", pace=pace, recorded={"web-1": [at]})
    return usual, own, [_report(requested=at, ended=115, outcome=Outcome.CUT)]


def _report(
    *,
    requested: float | None,
    ended: float,
    outcome: Outcome,
    by: str = "eviction",
    attempts: tuple[Attempt, ...] = (),
) -> PodReport:
    trace = PodTrace(
        pod="shop/web-1",
        uid="uid-web-1",
        node="a",
        workload=Workload(WEB, grace=60),
        owned=True,
        attempts=attempts,
        requested_at=None if requested is None else BEGAN + requested,
        requested_by=None if requested is None else by,
        grace_given=None if requested is None else 115 - requested,
        ended_at=BEGAN + ended,
    )
    return PodReport(trace, Evaluation(outcome, fault=False, reason=""))
