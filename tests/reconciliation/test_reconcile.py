"""A run of reconcile: the index is updated, and an error in one part stops no other."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from leeway.costs import Recorded
from leeway.instances.facts import (
    ObservedHook,
    ObservedInterruption,
    Owner,
    OwnerKind,
)
from leeway.notices import InterruptionAction, NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason
from leeway.reconciliation.clean_up import CleanUpResult
from leeway.reconciliation.find_lost_events import INSTANCE_CONCURRENCY, MOST_NAMED
from leeway.reconciliation.reconcile import ReconcileRequest, parse_request
from leeway.reconciliation.report import HandledFinding, LaunchCheck
from leeway.table import OPEN, Item

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.reconciliation.account import (
    OURS,
    Account,
    facts,
    node,
    observed,
    run,
    terminated,
)
from tests.retirement.retirements import HOOK, NOTICED, take


def test_a_run_without_changes_finds_nothing_and_writes_nothing() -> None:
    quiet = Account([observed()], index={OURS.instance: OURS})
    report = run(quiet)
    assert (report.findings, report.clean_ups, report.problems) == ([], [], [])
    assert (quiet.written, quiet.removed, quiet.received) == ([], [], [])


def test_the_index_gets_facts_that_differ_and_loses_instances_that_are_gone() -> None:
    other, gone = facts(2), facts(3)
    detached = OURS.model_copy(update={"owner": Owner(OwnerKind.NONE)})
    changed = Account(
        [observed(), observed(other)], index={one.instance: one for one in (detached, gone)}
    )
    report = run(changed)
    assert changed.index == {OURS.instance: OURS, other.instance: other}
    assert (report.index_written, report.index_removed) == (2, 1)


def test_a_terminated_instance_keeps_its_names_in_the_index() -> None:
    nameless = OURS.model_copy(update={"private_dns_name": ""})
    ended = Account([observed(nameless, "terminated")], index={OURS.instance: OURS})
    assert run(ended).index_written == 0
    assert ended.index == {OURS.instance: OURS}
    young = Account([observed(nameless, "terminated")])
    assert run(young).index_written == 1


def test_instances_whose_owners_retire_them_are_ignored() -> None:
    managed = facts(1, owner=Owner(OwnerKind.KARPENTER, "default"))
    mark = ObservedInterruption(managed.instance, InterruptionAction.TERMINATE, NOTICED)
    theirs = Account([observed(managed)], interruptions_=[mark])
    run(theirs)
    assert theirs.received == []
    theirs.policy = ClusterPolicy(retires_for=frozenset({OwnerKind.KARPENTER}))
    run(theirs)
    assert len(theirs.received) == 1


def test_a_cluster_that_is_down_stops_neither_other_clusters_nor_its_own_notices() -> None:
    here, there = facts(1, "blue"), facts(2, "green")
    clusters = {"blue": LeftoversInMemory(down=True), "green": LeftoversInMemory()}
    clusters["green"].by_name[there.private_dns_name] = node(there)
    both = Account(
        [observed(here), observed(there, "terminated")],
        interruptions_=[ObservedInterruption(here.instance, InterruptionAction.TERMINATE, NOTICED)],
        fresh={there.instance: "terminated"},
        index={there.instance: there, "i-0dead": facts(7, "blue")},
        clusters=clusters,
    )
    blue, green = both.reconciliation().run(ReconcileRequest())
    assert [found.instance for found in blue.findings] == [here.instance]
    assert "read the nodes of the cluster" in blue.problems[0].message
    assert "connection refused" in blue.problems[0].message
    assert green.problems == []
    assert [one.result for one in green.clean_ups] == [CleanUpResult.CLEANED]
    assert "i-0dead" in both.index, "its Node may still exist"
    assert both.index[here.instance] == here


def fleet(down: int, answering: int) -> Account:
    """Clusters; the first do not answer until all others are done."""
    over = threading.Event()

    def wait() -> None:
        assert over.wait(60), "a cluster that does not answer delays the others"

    class Fleet(Account):
        def record_costs(self, *arguments: Any) -> Recorded:
            recorded = super().record_costs(*arguments)
            done = [instances for instances, *_ in self.costs if instances]
            if len(done) == answering:
                over.set()
            return recorded

    account = Fleet(
        clusters={f"a{n:02}": LeftoversInMemory(before_failure=wait) for n in range(down)}
    )
    for number in range(answering):
        left = facts(number, f"b{number:02}")
        account.clusters[left.cluster] = LeftoversInMemory({left.private_dns_name: node(left)})
        account.instances_.append(observed(left, "terminated"))
        account.fresh[left.instance] = "terminated"
    return account


@pytest.mark.parametrize(("down", "answering"), [(5, 15), (19, 1)])
def test_clusters_that_do_not_answer_delay_no_other(down: int, answering: int) -> None:
    # One clock serves all clusters: a silent one that is read again advances it for the others.
    reports = fleet(down, answering).reconciliation().run(ReconcileRequest())
    silent, others = reports[:down], reports[down:]
    assert (len(silent), len(others)) == (down, answering)
    assert all("read timed out" in report.problems[0].message for report in silent)
    assert all(one.clean_ups[0].result is CleanUpResult.CLEANED for one in others)
    assert [one.problems for one in others] == [[]] * answering


def test_a_run_starts_no_clean_up_after_forty_seconds() -> None:
    slow = Account()

    class Slow(LeftoversInMemory):
        def delete_node(self, node: Node) -> bool:
            slow.sleep(10)
            return super().delete_node(node)

    cluster = slow.clusters["prod"] = Slow()
    for number in range(6 * INSTANCE_CONCURRENCY):
        left = facts(number)
        slow.instances_.append(observed(left, "terminated"))
        slow.index[left.instance] = left
        cluster.by_name[left.private_dns_name] = node(left)
    cleaned = len(run(slow).clean_ups)
    assert 4 <= cleaned <= 4 + INSTANCE_CONCURRENCY
    assert len(cluster.by_name) == 6 * INSTANCE_CONCURRENCY - cleaned
    slow.instances_.clear()
    cleaned += len(run(slow).clean_ups)
    assert len(slow.index) == 6 * INSTANCE_CONCURRENCY - cleaned, (
        "instances that were not cleaned up stay in the index"
    )
    while slow.index:
        assert run(slow).clean_ups
    assert cluster.by_name == {}


def test_leeway_does_not_clean_up_after_instances_whose_owners_retire_them() -> None:
    theirs = OURS.model_copy(update={"owner": Owner(OwnerKind.KARPENTER, "default")})
    account = terminated(instances_=[observed(theirs, "terminated")], index={OURS.instance: theirs})
    assert run(account).clean_ups == []
    assert account.clusters["prod"].tainted == []
    account.policy = ClusterPolicy(retires_for=frozenset({OwnerKind.KARPENTER}))
    assert [one.result for one in run(account).clean_ups] == [CleanUpResult.CLEANED]


def test_an_unexpected_error_in_a_cluster_stops_no_other_and_is_reported_with_its_line() -> None:
    here, there = facts(1, "blue"), facts(2, "green")
    both = Account(
        [observed(here), observed(there, "terminated")],
        fresh={there.instance: "terminated"},
        clusters={name: LeftoversInMemory() for name in ("blue", "green")},
        breaks={"policy of blue"},
    )
    both.clusters["green"].by_name[there.private_dns_name] = node(there)
    blue, green = both.reconciliation().run(ReconcileRequest())
    assert "start on the cluster" in blue.problems[0].message
    assert "KeyError: 'policy of blue' (account.py:" in blue.problems[0].message
    assert (green.problems, green.clean_ups[0].result) == ([], CleanUpResult.CLEANED)


def test_a_cluster_that_does_not_exist_is_a_problem() -> None:
    report = run(Account(clusters={}), "missing")
    assert "No cluster found" in report.problems[0].message


@pytest.mark.parametrize(
    "part", ["interruptions", "changes", "hooks", "records", "index", "update", "known"]
)
@pytest.mark.parametrize("how", ["fails", "breaks"])
def test_a_failed_read_is_a_problem_and_the_other_parts_go_on(part: str, how: str) -> None:
    waiting = facts(2)
    left = terminated(**{how: {part}})
    left.instances_.append(observed(waiting))
    left.hooks.append(ObservedHook(waiting.instance, HOOK, launching=False))
    report = run(left)
    assert len(report.problems) == 1
    assert {"fails": "RequestLimitExceeded", "breaks": "KeyError"}[how] in report.problems[
        0
    ].message
    if part != "index":
        assert [one.result for one in report.clean_ups] == [CleanUpResult.CLEANED]


@pytest.mark.parametrize("broken", ["", "index"])
def test_manifests_are_copied_after_all_else_even_if_it_fails(broken: str) -> None:
    invalid, held = Reason("ManifestInvalid", "Invalid."), Reason("ManifestsHeld", "Held.")
    account = Account([observed()], fails={broken}, copied=((invalid,), held))
    report = run(account)
    assert report.invalid_manifests == [invalid]
    assert report.problems[-1] == held
    assert account.copies == [[] if broken else [OURS.instance]]


def test_left_launches_are_continued_and_paused_pools_are_reported() -> None:
    lost, problem = Reason("Lost", "Lost."), Reason("Unknown", "Unknown.")
    account = Account(
        instances_=[observed()],
        launch_check=LaunchCheck((HandledFinding(OURS.instance, lost, "Done."),), (problem,)),
        unused_templates=["leeway-prod-1"],
        paused=[Reason("NodesNeverJoined", "Paused.")],
    )
    report = run(account)
    assert account.checked == [[OURS.instance]]
    assert [one.reason for one in report.findings] == [lost]
    assert report.problems == [problem]
    assert report.deleted_templates == ["leeway-prod-1"]
    assert [one.code for one in report.paused_pools] == ["NodesNeverJoined"]


@pytest.mark.parametrize(
    ("part", "failed"),
    [
        ("launches", "check launched instances"),
        ("late nodes", "read the nodes that are not initialized"),
        ("templates", "delete launch templates"),
        ("pools", "read the paused pools"),
    ],
)
def test_launches_that_cannot_be_checked_are_a_problem_and_the_rest_goes_on(
    part: str, failed: str
) -> None:
    account = Account(
        instances_=[observed()],
        fails={part},
        unused_templates=["leeway-prod-1"],
        paused=[Reason("NodesNeverJoined", "Paused.")],
    )
    report = run(account)
    assert ["could not " + failed in one.message for one in report.problems] == [True]
    assert account.written == [OURS.instance]
    assert bool(report.deleted_templates) == (part != "templates")
    assert bool(report.paused_pools) == (part != "pools")


def test_late_nodes_are_not_read_if_the_names_of_the_nodes_cannot_be_read() -> None:
    report = run(Account(instances_=[observed()], fails={"nodes", "late nodes"}))
    (problem,) = report.problems
    assert "could not read the names of the nodes" in problem.message


def test_a_dry_run_continues_no_launch() -> None:
    account = Account(
        instances_=[observed()],
        policy=ClusterPolicy(dry_run=True),
        unused_templates=["leeway-prod-1"],
        paused=[Reason("NodesNeverJoined", "Paused.")],
    )
    report = run(account)
    assert account.checked == []
    assert report.deleted_templates == []
    assert len(report.paused_pools) == 1


def test_an_invalid_record_is_a_problem_and_the_others_are_checked() -> None:
    record = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record
    lost = Account([observed()], records=[record.model_copy(update={"facts": OURS})])
    shards = OPEN.keys("prod")
    lost.forged = [
        Item((f"MANIFESTS#{number}", "RETIREMENT"), "{}", indexed={"open": shards[number % 8]})
        for number in range(200)
    ]
    report = run(lost)
    assert len(report.problems) == MOST_NAMED + 1, "whoever writes many such items fills no log"
    assert report.problems[0].message.startswith("Reconcile could not read a record: MANIFESTS#")
    assert "read 190 more records" in report.problems[-1].message
    assert lost.started == [(OURS.instance, "prod", 1)], "for the same attempt"
    assert lost.received == []


def test_a_run_ends_without_changes_if_instances_cannot_be_listed() -> None:
    blind = terminated(fails={"instances"})
    with pytest.raises(CloudUnavailable):
        blind.reconciliation().run(ReconcileRequest())
    assert blind.index == {OURS.instance: OURS}
    assert blind.clusters["prod"].deleted == []


def test_a_dry_run_answers_no_hook_and_cleans_up_nothing() -> None:
    dry_run = terminated(policy=ClusterPolicy(dry_run=True))
    report = run(dry_run)
    assert report.clean_ups == []
    assert dry_run.clusters["prod"].tainted == []


def test_the_input_of_the_function_is_empty_or_names_an_instance() -> None:
    assert parse_request({}) == ReconcileRequest()
    assert parse_request({"instance": OURS.instance, "cluster": "prod"}).instance == OURS.instance
    with pytest.raises(ValueError, match="instance"):
        parse_request({"instance": "; rm -rf /"})


def test_only_a_single_clean_up_waits_for_volumes() -> None:
    stuck = terminated()
    stuck.clusters["prod"].stuck = True
    before = stuck.now_
    run(stuck)
    assert stuck.now_ == before
    stuck.reconciliation().run(ReconcileRequest(OURS.instance, "prod"))
    assert timedelta(seconds=20) < stuck.now_ - before < timedelta(seconds=30)


def test_costs_are_recorded_of_the_instances_of_the_cluster_by_the_labels_of_its_policy() -> None:
    other = facts(2, "other")
    mark = ObservedInterruption(other.instance, InterruptionAction.TERMINATE, NOTICED)
    account = Account(
        [observed(), observed(other)],
        policy=ClusterPolicy(cost_labels=("team",)),
        costs_error=ClusterUnavailable("no answer"),
        interruptions_=[mark],
    )
    report = run(account)
    assert account.costs == [([OURS.instance], ("team",), [mark])]
    (problem,) = report.problems
    assert "read the pods by which costs are split" in problem.message
    assert "no answer" in problem.message


def test_the_manifests_are_copied_before_the_pods_are_read() -> None:
    account = Account([observed()])
    copies: list[int] = []

    def dies(*_: object) -> Recorded:
        copies.append(len(account.copies))
        raise MemoryError

    account.record_costs = dies  # type: ignore[method-assign, assignment]
    run(account)
    assert copies == [1]


def test_costs_that_are_not_recorded_stop_nothing_else() -> None:
    account = Account([observed()], breaks={"costs"})
    report = run(account)
    assert account.copies
    assert ["record the costs" in one.message for one in report.problems] == [True]
