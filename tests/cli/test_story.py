"""What the report makes of a journal: each verdict, from what an observer would have seen."""

from cli.report.figures import figures, missing_for, to_cordon, to_ready
from cli.report.reading import read_story
from cli.report.story import NodeStory, Outcome, PodStory, Story
from tests.cli.journals import (
    AGENT,
    BY_HAND,
    DNS,
    INSTANCE,
    LATE,
    NEW_INSTANCE,
    NODE,
    OTHER_NODE,
    PLAN,
    SLOW,
    STRANGER,
    WEB,
    ZERO,
    Journal,
    good_storm,
    without,
)


def read(journal: Journal) -> Story:
    return read_story(journal.entries, PLAN)


def only_node(story: Story) -> NodeStory:
    (node,) = story.nodes
    return node


def pod(story: Story, name: str) -> PodStory:
    (found,) = [pod for pod in only_node(story).pods if pod.trace.pod == name]
    return found


def test_a_pod_that_ends_and_runs_elsewhere_moved_in_time() -> None:
    story = read(good_storm().moved("shop/web-1", WEB, at=0.5, took=2.0))

    moved = pod(story, "shop/web-1")
    assert moved.verdict.outcome is Outcome.MOVED
    assert moved.trace.successor is not None
    assert moved.trace.successor.node == OTHER_NODE
    assert missing_for(moved.trace) == 0.0
    assert story.good


def test_a_node_tells_when_it_was_cordoned_drained_replaced_and_taken() -> None:
    story = read(good_storm(cordoned=0.3).moved("shop/web-1", WEB, at=0.5, took=2.0))

    node = only_node(story)
    assert round(to_cordon(node) or 0, 3) == 0.3
    assert round((node.drained_at or 0) - ZERO, 3) == 2.5
    assert round(to_ready(node) or 0, 3) == 6.0
    assert node.trace.replacement is not None
    assert node.trace.replacement.instance == NEW_INSTANCE
    assert node.trace.taken_by_ec2
    assert node.trace.takes_at == ZERO - LATE + 120


def test_an_instance_that_was_given_back_early_is_not_counted_as_taken_by_ec2() -> None:
    journal = good_storm().moved("shop/web-1", WEB, at=0.5)
    journal.add(10.0, "instance-state", instance=INSTANCE, state="shutting-down", group="spot")
    entries = without(journal, "reclaimed", instance=INSTANCE)

    node = only_node(read_story(entries, PLAN))
    assert not node.trace.taken_by_ec2
    assert node.trace.dead_at == ZERO + 10.0


def test_a_pod_that_nobody_asked_dies_with_its_node() -> None:
    journal = good_storm().runs("shop/web-1", WEB)
    story = read(journal.ended(40.1, "shop/web-1", WEB, how="died-with-node"))

    died = pod(story, "shop/web-1")
    assert died.verdict.outcome is Outcome.DIED
    assert died.verdict.reason == "nobody asked it to end before its instance went"
    assert story.all_faults == (f"shop/web-1: {died.verdict.reason}",)
    assert (figures(story).drained, figures(story).to_spare) == (0, None)


def test_a_pod_that_was_asked_too_late_dies_and_the_reason_says_how_late() -> None:
    journal = good_storm().runs("shop/web-1", WEB).asked(38.0, "shop/web-1", grace=10)
    story = read(journal.ended(40.0, "shop/web-1", WEB, how="died-with-node"))

    reason = pod(story, "shop/web-1").verdict.reason
    assert reason == (
        "was asked to end only 2.0 s before its instance went, 38.0 s after the notice"
    )


def test_a_pod_that_is_left_when_the_story_ends_is_a_fault() -> None:
    story = read(good_storm().runs("shop/web-1", WEB))

    assert pod(story, "shop/web-1").verdict.fault


def test_a_pod_killed_by_a_grace_that_was_cut_to_what_was_left_is_nobodys_fault() -> None:
    journal = good_storm().runs("media/slow", SLOW).evicted(0.5, "media/slow")
    journal.asked(0.5, "media/slow", grace=34).runs("media/slow-2", SLOW, 0.5, OTHER_NODE)
    story = read(journal.ended(34.5, "media/slow", SLOW, how="grace-period-expired"))

    verdict = pod(story, "media/slow").verdict
    assert verdict.outcome is Outcome.CUT
    assert "cut to the 34 s that were left" in verdict.reason
    assert story.good


def test_a_pod_killed_by_a_grace_that_was_cut_further_than_needed_is_a_fault() -> None:
    journal = good_storm().runs("media/slow", SLOW).evicted(0.5, "media/slow")
    journal.asked(0.5, "media/slow", grace=5)
    story = read(journal.ended(5.5, "media/slow", SLOW, how="grace-period-expired"))

    verdict = pod(story, "media/slow").verdict
    assert verdict.fault
    assert verdict.reason == "its grace was cut to 5 s, though 34 s were left"


def test_a_pod_that_overruns_its_own_grace_is_nobodys_fault() -> None:
    journal = good_storm().runs("shop/web-1", WEB).evicted(0.5, "shop/web-1")
    journal.asked(0.5, "shop/web-1", grace=10)
    story = read(journal.ended(10.5, "shop/web-1", WEB, how="grace-period-expired"))

    assert pod(story, "shop/web-1").verdict.outcome is Outcome.CUT
    assert story.good


def test_a_pod_killed_outright_is_a_fault() -> None:
    journal = good_storm().runs("shop/web-1", WEB).asked(0.5, "shop/web-1", 0, via="delete")
    story = read(journal.ended(0.5, "shop/web-1", WEB, how="forced"))

    assert pod(story, "shop/web-1").verdict.outcome is Outcome.DIED


def test_a_pod_that_waited_for_its_budget_says_how_long() -> None:
    journal = good_storm()
    for second in (0.5, 1.5, 3.0):
        journal.evicted(second, "shop/web-1", status=429)
    story = read(journal.moved("shop/web-1", WEB, at=4.5))

    assert pod(story, "shop/web-1").verdict.reason == (
        "ended in time, its budget made it wait 4.0 s (3 refusals)"
    )
    assert figures(story).refusals == 3


def test_a_pod_whose_budget_never_gives_way_may_be_deleted_at_its_latest_moment() -> None:
    journal = good_storm().runs("shop/web-1", WEB).evicted(0.5, "shop/web-1", status=429)
    journal.asked(25.0, "shop/web-1", grace=10, via="delete")
    journal.runs("shop/web-2", WEB, 25.0, OTHER_NODE).ended(26.0, "shop/web-1", WEB)
    story = read(journal)

    assert pod(story, "shop/web-1").verdict.outcome is Outcome.MOVED
    assert "deleted at the last" in pod(story, "shop/web-1").verdict.reason
    assert story.good


def test_a_pod_deleted_past_its_budget_before_its_latest_moment_is_a_fault() -> None:
    journal = good_storm().runs("shop/web-1", WEB).evicted(0.5, "shop/web-1", status=429)
    journal.asked(5.0, "shop/web-1", grace=10, via="delete")
    journal.runs("shop/web-2", WEB, 5.0, OTHER_NODE).ended(6.0, "shop/web-1", WEB)

    verdict = pod(read(journal), "shop/web-1").verdict
    assert verdict.reason == "was deleted past its budget 20 s before its latest moment"


def test_a_bare_pod_ends_in_time_and_is_not_expected_back() -> None:
    journal = good_storm().runs("staging/by-hand", BY_HAND).evicted(0.5, "staging/by-hand")
    journal.asked(0.5, "staging/by-hand", 20).ended(3.0, "staging/by-hand", BY_HAND)
    story = read(journal)

    assert pod(story, "staging/by-hand").verdict.outcome is Outcome.ENDED
    assert story.good


def test_a_pod_whose_successor_never_runs_has_no_place() -> None:
    journal = good_storm().runs("shop/web-1", WEB).asked(0.5, "shop/web-1", 10)
    journal.add(0.5, "pod-created", pod="shop/web-2", uid="uid-shop/web-2", owner=WEB.owner)
    story = read(journal.ended(1.0, "shop/web-1", WEB))

    assert pod(story, "shop/web-1").verdict.outcome is Outcome.UNPLACED
    assert not story.good


def test_a_successor_that_had_to_leave_before_it_ran_hands_over_to_the_next() -> None:
    journal = good_storm().runs("shop/web-1", WEB).asked(0.5, "shop/web-1", 10)
    journal.add(0.5, "pod-created", pod="shop/web-2", uid="uid-shop/web-2", owner=WEB.owner)
    journal.asked(0.8, "shop/web-2", 10).ended(0.9, "shop/web-2", WEB)
    journal.runs("shop/web-3", WEB, 0.9, OTHER_NODE).ended(1.0, "shop/web-1", WEB)

    trace = pod(read(journal), "shop/web-1").trace
    assert trace.successor is not None
    assert trace.successor.pod == "shop/web-3"


def test_two_pods_of_one_owner_have_two_successors() -> None:
    journal = good_storm().moved("shop/web-1", WEB, 0.5).moved("shop/web-2", WEB, 0.6)
    node = only_node(read(journal))

    successors = {pod.trace.successor.uid for pod in node.pods if pod.trace.successor}
    assert len(successors) == 2


def test_daemon_pods_stay_and_do_not_count_as_lost() -> None:
    journal = good_storm().runs("kube-system/agent-1", AGENT)
    story = read(journal.ended(40.0, "kube-system/agent-1", AGENT, how="died-with-node"))

    assert pod(story, "kube-system/agent-1").verdict.outcome is Outcome.STAYED
    assert figures(story).pods == 0
    assert story.good


def test_an_evicted_daemon_pod_is_a_fault() -> None:
    journal = good_storm().runs("kube-system/agent-1", AGENT).evicted(0.5, "kube-system/agent-1")
    journal.asked(0.5, "kube-system/agent-1", 30).ended(1.0, "kube-system/agent-1", AGENT)

    assert pod(read(journal), "kube-system/agent-1").verdict.fault


def test_a_duplicate_notice_is_counted_and_drained_once() -> None:
    story = read(good_storm().notice(1.5).moved("shop/web-1", WEB, at=0.5))

    assert figures(story).duplicates == 1
    assert story.good


def test_a_node_that_is_cordoned_and_drained_twice_is_a_fault() -> None:
    journal = good_storm().notice(1.5).moved("shop/web-1", WEB, at=0.5)
    story = read(journal.add(1.8, "node-cordoned", node=NODE).evicted(1.9, "shop/web-1"))

    assert only_node(story).faults == (
        "it was cordoned 2 times",
        "evicted more than once: shop/web-1",
    )


def test_a_critical_pod_that_outlives_the_ordinary_ones_is_right() -> None:
    journal = good_storm().moved("shop/web-1", WEB, at=0.5, took=1.0)
    story = read(journal.moved("kube-system/dns-1", DNS, at=2.0))

    assert story.good


def test_a_critical_pod_that_goes_first_is_a_fault_unless_its_latest_moment_has_come() -> None:
    early = good_storm().moved("shop/web-1", WEB, 0.5, took=9.0).moved("kube-system/d", DNS, 0.6)
    late = good_storm().moved("shop/web-1", WEB, 0.5, took=9.0).moved("kube-system/d", DNS, 5.0)

    assert "evicted before the ordinary pods" in read(early).all_faults[0]
    assert read(late).good


def test_a_node_that_was_never_cordoned_is_a_fault() -> None:
    story = read(good_storm(cordoned=None))

    assert only_node(story).faults == ("it was never cordoned",)


def test_a_node_that_was_not_replaced_is_a_fault() -> None:
    entries = without(good_storm(), "instance-state", instance=NEW_INSTANCE)

    assert only_node(read_story(entries, PLAN)).faults == ("nothing was launched in its place",)


def test_a_second_replacement_is_a_fault() -> None:
    journal = good_storm()
    journal.add(9.0, "instance-state", instance="i-3", state="pending", group="spot-plain")

    assert read(journal).faults == ("spot-plain launched 2 instances for 1 lost",)


def test_a_cordon_without_a_notice_is_a_fault() -> None:
    journal = good_storm().add(1.0, "node-cordoned", node=OTHER_NODE)

    assert read(journal).faults == (f"{OTHER_NODE} was cordoned without a notice",)


def test_a_stranger_is_left_alone() -> None:
    story = read(good_storm())

    (stranger,) = story.strangers
    assert stranger.faults == ()
    assert len(stranger.notices) == 1


def test_a_stranger_that_is_terminated_before_ec2_takes_it_is_a_fault() -> None:
    journal = good_storm()
    journal.add(3.0, "instance-state", instance=STRANGER, state="shutting-down", group=None)

    assert read(journal).all_faults == (
        f"{STRANGER}: belongs to another cluster, yet it was terminated",
    )


def test_what_leeway_says_is_told_beside_what_was_seen() -> None:
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

    (claim,) = only_node(read(journal)).trace.claims
    assert claim.words == "drained: 1 evicted, 1 deleted"


def test_a_claim_that_contradicts_what_was_seen_is_a_fault() -> None:
    detail = {"instance": INSTANCE, "result": "drained"}
    journal = good_storm().runs("shop/web-1", WEB)
    journal.ended(40.0, "shop/web-1", WEB, how="died-with-node")
    journal.add(30.0, "put-events", source="leeway", detail_type="…", detail=detail)

    assert only_node(read(journal)).faults == (
        "Leeway says it was drained, yet 1 of its pods died",
    )


def test_a_notice_that_never_came_is_a_fault() -> None:
    entries = without(good_storm(), "notice", instance=INSTANCE)

    assert "its notice was never delivered" in only_node(read_story(entries, PLAN)).faults
