"""The report of a storm from journals: observations and evaluations."""

from leeway_cli.report.evaluation import missing_for, summarize, to_cordon, to_ready
from leeway_cli.report.from_journal import report_from_journal
from leeway_cli.report.model import NodeReport, Outcome, PodReport, StormReport

from tests.cli.journals import (
    AGENT,
    BY_HAND,
    DNS,
    GROUP,
    INSTANCE,
    LATE,
    NEW_INSTANCE,
    NODE,
    OTHER_INSTANCE,
    OTHER_NODE,
    PLAN,
    SLOW,
    WEB,
    ZERO,
    Journal,
    good_storm,
    without,
)


def read(journal: Journal) -> StormReport:
    return report_from_journal(journal.entries, PLAN)


def only_node(report: StormReport) -> NodeReport:
    (node,) = report.nodes
    return node


def pod(report: StormReport, name: str) -> PodReport:
    (found,) = [pod for pod in only_node(report).pods if pod.trace.pod == name]
    return found


def test_a_pod_that_ends_and_runs_on_another_node_moved_in_time() -> None:
    report = read(good_storm().moved("shop/web-1", WEB, at=0.5, took=2.0))

    moved = pod(report, "shop/web-1")
    assert moved.evaluation.outcome is Outcome.MOVED
    assert moved.trace.successor is not None
    assert moved.trace.successor.node == OTHER_NODE
    assert missing_for(moved.trace) == 0.0
    assert report.good


def test_a_node_report_has_the_times_of_cordon_drain_replacement_and_reclaim() -> None:
    report = read(good_storm(cordoned=0.3).moved("shop/web-1", WEB, at=0.5, took=2.0))

    node = only_node(report)
    assert round(to_cordon(node) or 0, 3) == 0.3
    assert round((node.drained_at or 0) - ZERO, 3) == 2.5
    assert round(to_ready(node) or 0, 3) == 6.0
    assert node.trace.replacement is not None
    assert node.trace.replacement.instance == NEW_INSTANCE
    assert node.trace.reclaimed_by_ec2
    assert node.trace.reclaim_at == ZERO - LATE + 120


def test_an_instance_that_was_terminated_after_its_drain_is_not_reclaimed_by_ec2() -> None:
    journal = good_storm().moved("shop/web-1", WEB, at=0.5)
    journal.add(10.0, "instance-state", instance=INSTANCE, state="shutting-down", group="spot")
    entries = without(journal, "reclaimed", instance=INSTANCE)

    node = only_node(report_from_journal(entries, PLAN))
    assert not node.trace.reclaimed_by_ec2
    assert node.trace.instance_gone_at == ZERO + 10.0


def test_a_pod_without_a_termination_request_dies_with_its_node() -> None:
    journal = good_storm().runs("shop/web-1", WEB)
    report = read(journal.ended(40.1, "shop/web-1", WEB, how="died-with-node"))

    died = pod(report, "shop/web-1")
    assert died.evaluation.outcome is Outcome.DIED
    assert died.evaluation.reason == "It got no termination request before its instance ended."
    assert report.all_faults == (f"shop/web-1: {died.evaluation.reason}",)
    assert (
        summarize(report).nodes_drained,
        summarize(report).least_seconds_to_spare,
    ) == (0, None)


def test_the_reason_of_a_pod_that_died_has_the_delay_of_its_termination_request() -> None:
    journal = good_storm().runs("shop/web-1", WEB).terminated(38.0, "shop/web-1", grace=10)
    report = read(journal.ended(40.0, "shop/web-1", WEB, how="died-with-node"))

    reason = pod(report, "shop/web-1").evaluation.reason
    assert reason == (
        "Its termination was requested only 2.0 s before its instance ended,"
        " 38.0 s after the notice."
    )


def test_a_pod_that_still_runs_at_the_end_is_a_fault() -> None:
    report = read(good_storm().runs("shop/web-1", WEB))

    assert pod(report, "shop/web-1").evaluation.fault


def test_a_grace_period_that_was_reduced_to_the_remaining_time_is_no_fault() -> None:
    journal = good_storm().runs("media/slow", SLOW).evicted(0.5, "media/slow")
    journal.terminated(0.5, "media/slow", grace=34).runs("media/slow-2", SLOW, 0.5, OTHER_NODE)
    report = read(journal.ended(34.5, "media/slow", SLOW, how="grace-period-expired"))

    evaluation = pod(report, "media/slow").evaluation
    assert evaluation.outcome is Outcome.CUT
    assert "reduced to the 34 s that were left" in evaluation.reason
    assert report.good


def test_a_grace_period_that_was_reduced_further_than_needed_is_a_fault() -> None:
    journal = good_storm().runs("media/slow", SLOW).evicted(0.5, "media/slow")
    journal.terminated(0.5, "media/slow", grace=5)
    report = read(journal.ended(5.5, "media/slow", SLOW, how="grace-period-expired"))

    evaluation = pod(report, "media/slow").evaluation
    assert evaluation.fault
    assert evaluation.reason == "Its grace period was reduced to 5 s, but 34 s were left."


def test_a_pod_that_exceeds_its_own_grace_period_is_no_fault() -> None:
    journal = good_storm().runs("shop/web-1", WEB).evicted(0.5, "shop/web-1")
    journal.terminated(0.5, "shop/web-1", grace=10)
    report = read(journal.ended(10.5, "shop/web-1", WEB, how="grace-period-expired"))

    assert pod(report, "shop/web-1").evaluation.outcome is Outcome.CUT
    assert report.good


def test_a_pod_that_was_killed_without_a_grace_period_is_a_fault() -> None:
    journal = good_storm().runs("shop/web-1", WEB).terminated(0.5, "shop/web-1", 0, via="delete")
    report = read(journal.ended(0.5, "shop/web-1", WEB, how="forced"))

    assert pod(report, "shop/web-1").evaluation.outcome is Outcome.DIED


def test_the_reason_of_a_pod_that_its_budget_blocked_has_the_duration() -> None:
    journal = good_storm()
    for second in (0.5, 1.5, 3.0):
        journal.evicted(second, "shop/web-1", status=429)
    report = read(journal.moved("shop/web-1", WEB, at=4.5))

    assert pod(report, "shop/web-1").evaluation.reason == (
        "It ended in time. Its budget blocked it for 4.0 s (3 refusals)."
    )
    assert summarize(report).refusals_by_budgets == 3


def test_a_pod_whose_budget_blocks_every_eviction_may_be_deleted_at_its_latest_time() -> None:
    journal = good_storm().runs("shop/web-1", WEB).evicted(0.5, "shop/web-1", status=429)
    journal.terminated(25.0, "shop/web-1", grace=10, via="delete")
    journal.runs("shop/web-2", WEB, 25.0, OTHER_NODE).ended(26.0, "shop/web-1", WEB)
    report = read(journal)

    assert pod(report, "shop/web-1").evaluation.outcome is Outcome.MOVED
    assert "deleted at its latest time" in pod(report, "shop/web-1").evaluation.reason
    assert report.good


def test_a_pod_that_was_deleted_past_its_budget_before_its_latest_time_is_a_fault() -> None:
    journal = good_storm().runs("shop/web-1", WEB).evicted(0.5, "shop/web-1", status=429)
    journal.terminated(5.0, "shop/web-1", grace=10, via="delete")
    journal.runs("shop/web-2", WEB, 5.0, OTHER_NODE).ended(6.0, "shop/web-1", WEB)

    evaluation = pod(read(journal), "shop/web-1").evaluation
    assert evaluation.reason == "It was deleted past its budget 20 s before its latest time."


def test_a_pod_without_an_owner_ends_in_time_without_a_replacement() -> None:
    journal = good_storm().runs("staging/by-hand", BY_HAND).evicted(0.5, "staging/by-hand")
    journal.terminated(0.5, "staging/by-hand", 20).ended(3.0, "staging/by-hand", BY_HAND)
    report = read(journal)

    assert pod(report, "staging/by-hand").evaluation.outcome is Outcome.ENDED
    assert report.good


def test_a_pod_whose_replacement_does_not_run_is_not_rescheduled() -> None:
    journal = good_storm().runs("shop/web-1", WEB).terminated(0.5, "shop/web-1", 10)
    journal.add(0.5, "pod-created", pod="shop/web-2", uid="uid-shop/web-2", owner=WEB.owner)
    report = read(journal.ended(1.0, "shop/web-1", WEB))

    assert pod(report, "shop/web-1").evaluation.outcome is Outcome.NOT_RESCHEDULED
    assert not report.good


def test_a_replacement_that_ended_before_it_ran_is_skipped() -> None:
    journal = good_storm().runs("shop/web-1", WEB).terminated(0.5, "shop/web-1", 10)
    journal.add(0.5, "pod-created", pod="shop/web-2", uid="uid-shop/web-2", owner=WEB.owner)
    journal.terminated(0.8, "shop/web-2", 10).ended(0.9, "shop/web-2", WEB)
    journal.runs("shop/web-3", WEB, 0.9, OTHER_NODE).ended(1.0, "shop/web-1", WEB)

    trace = pod(read(journal), "shop/web-1").trace
    assert trace.successor is not None
    assert trace.successor.pod == "shop/web-3"


def test_two_pods_of_one_owner_have_two_replacements() -> None:
    journal = good_storm().moved("shop/web-1", WEB, 0.5).moved("shop/web-2", WEB, 0.6)
    node = only_node(read(journal))

    successors = {pod.trace.successor.uid for pod in node.pods if pod.trace.successor}
    assert len(successors) == 2


def test_daemonset_pods_stay_and_do_not_count_as_lost() -> None:
    journal = good_storm().runs("kube-system/agent-1", AGENT)
    report = read(journal.ended(40.0, "kube-system/agent-1", AGENT, how="died-with-node"))

    assert pod(report, "kube-system/agent-1").evaluation.outcome is Outcome.STAYED
    assert summarize(report).pods == 0
    assert report.good


def test_an_evicted_daemonset_pod_is_a_fault() -> None:
    journal = good_storm().runs("kube-system/agent-1", AGENT).evicted(0.5, "kube-system/agent-1")
    journal.terminated(0.5, "kube-system/agent-1", 30).ended(1.0, "kube-system/agent-1", AGENT)

    assert pod(read(journal), "kube-system/agent-1").evaluation.fault


def test_a_duplicate_notice_is_counted_and_causes_no_second_drain() -> None:
    report = read(good_storm().notice(1.5).moved("shop/web-1", WEB, at=0.5))

    assert summarize(report).duplicate_notices == 1
    assert report.good


def test_a_critical_pod_that_ends_after_the_other_pods_is_no_fault() -> None:
    journal = good_storm().moved("shop/web-1", WEB, at=0.5, took=1.0)
    report = read(journal.moved("kube-system/dns-1", DNS, at=2.0))

    assert report.good


def test_a_critical_pod_that_ends_first_before_its_latest_time_is_a_fault() -> None:
    early = good_storm().moved("shop/web-1", WEB, 0.5, took=9.0).moved("kube-system/d", DNS, 0.6)
    late = good_storm().moved("shop/web-1", WEB, 0.5, took=9.0).moved("kube-system/d", DNS, 5.0)

    assert "evicted before the other pods" in read(early).all_faults[0]
    assert read(late).good


def test_what_a_run_must_not_do_is_a_fault_of_its_node_group_or_instance() -> None:
    twice = good_storm().notice(1.5).moved("shop/web-1", WEB, at=0.5)
    twice.add(1.8, "node-cordoned", node=NODE).evicted(1.9, "shop/web-1")
    second = {"instance": "i-3", "state": "pending", "group": GROUP}
    ended = {"instance": OTHER_INSTANCE, "state": "shutting-down", "group": None}
    for entries, *faults in (
        (good_storm(cordoned=None).entries, f"{NODE}: It was not cordoned."),
        (
            without(good_storm(), "instance-state", instance=NEW_INSTANCE),
            f"{NODE}: No replacement was launched.",
        ),
        (
            twice.entries,
            f"{NODE}: It was cordoned 2 times.",
            f"{NODE}: Evicted more than once: shop/web-1.",
        ),
        (
            good_storm().add(9.0, "instance-state", **second).entries,
            "spot-plain launched 2 instances for 1 that it lost.",
        ),
        (
            good_storm().add(1.0, "node-cordoned", node=OTHER_NODE).entries,
            f"{OTHER_NODE} was cordoned without a notice.",
        ),
        (
            good_storm().add(3.0, "instance-state", **ended).entries,
            f"{OTHER_INSTANCE}: It belongs to another cluster, but it was terminated.",
        ),
    ):
        assert report_from_journal(entries, PLAN).all_faults == tuple(faults)


def test_an_unchanged_instance_of_another_cluster_has_no_fault() -> None:
    report = read(good_storm())

    (other,) = report.unmanaged
    assert other.faults == ()
    assert len(other.notices) == 1


def test_the_report_has_the_events_that_leeway_published() -> None:
    detail = {
        "instance": INSTANCE,
        "result": "drained",
        "kind": "spot-interruption",
        "pods": [
            {"method": "evict", "requested_at": "2026-11-20T09:00:01Z", "stage": "gone"},
            {"method": "delete", "requested_at": "2026-11-20T09:00:25Z", "stage": "gone"},
            {"method": None, "requested_at": None, "stage": "left"},
        ],
    }
    journal = good_storm().add(
        30.0, "put-events", source="leeway", detail_type="Leeway Node Retired", detail=detail
    )

    (event,) = only_node(read(journal)).trace.leeway_events
    assert event.text == "drained: 1 evicted, 1 deleted"


def test_an_event_of_leeway_that_contradicts_the_journals_is_a_fault() -> None:
    detail = {"instance": INSTANCE, "result": "drained"}
    journal = good_storm().runs("shop/web-1", WEB)
    journal.ended(40.0, "shop/web-1", WEB, how="died-with-node")
    journal.add(30.0, "put-events", source="leeway", detail_type="…", detail=detail)

    assert only_node(read(journal)).faults == (
        "Leeway reported it as drained, but 1 of its pods died.",
    )


def test_a_notice_that_was_not_delivered_is_a_fault() -> None:
    entries = without(good_storm(), "notice", instance=INSTANCE)

    assert "Its notice was not delivered." in only_node(report_from_journal(entries, PLAN)).faults
