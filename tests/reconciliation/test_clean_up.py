"""Clean-ups after terminated instances; objects that another instance uses are kept."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from leeway.ports.kubernetes_objects import Attachment
from leeway.reconciliation.clean_up import CleanUpResult
from leeway.reconciliation.reconcile import ReconcileRequest

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.reconciliation.account import (
    OURS,
    VOLUME,
    Account,
    facts,
    node,
    observed,
    run,
    terminated,
)
from tests.retirement.retirements import interrupted

SINGLE = ReconcileRequest(OURS.instance, "prod")


def test_volumes_of_a_terminated_instance_are_detached_before_its_node_is_deleted() -> None:
    left = terminated()
    (cleaned,) = run(left).clean_ups
    cluster = left.clusters["prod"]
    assert (cleaned.result, cleaned.detached) == (CleanUpResult.CLEANED, ("shop/data-0",))
    assert cluster.tainted == [OURS.private_dns_name]
    assert cluster.deleted == [(OURS.private_dns_name, 0)]


def test_a_node_without_volumes_gets_no_out_of_service_taint() -> None:
    left = terminated()
    left.clusters["prod"].volumes.clear()
    assert run(left).clean_ups[0].result is CleanUpResult.CLEANED
    assert left.clusters["prod"].tainted == []


def test_an_instance_that_ec2_does_not_know_any_more_is_gone_if_the_index_has_it() -> None:
    forgotten = terminated(instances_=[], fresh={})
    assert run(forgotten).clean_ups[0].result is CleanUpResult.CLEANED
    assert forgotten.index == {}
    stranger = terminated(instances_=[], fresh={}, index={})
    assert run(stranger).clean_ups == []
    assert stranger.clusters["prod"].tainted == []


@pytest.mark.parametrize("state", ["stopped", "running"])
def test_a_node_whose_instance_is_not_terminated_never_gets_the_taint(state: str) -> None:
    stopped = terminated(instances_=[observed(state=state)], fresh={OURS.instance: state})
    assert run(stopped).clean_ups == []
    stopped.reconciliation().run(SINGLE)
    assert stopped.clusters["prod"].tainted == []
    assert stopped.clusters["prod"].deleted == []


def test_the_state_of_a_terminated_instance_is_read_again_before_the_clean_up() -> None:
    back = terminated(fresh={OURS.instance: "running"})
    (cleaned,) = run(back).clean_ups
    assert cleaned.result is CleanUpResult.KEPT
    assert back.clusters["prod"].tainted == []
    unsure = terminated(fails={"states"})
    report = run(unsure)
    assert "RequestLimitExceeded" in report.problems[0].message
    assert unsure.clusters["prod"].deleted == []


def test_the_states_of_all_terminated_instances_are_read_with_one_call() -> None:
    ended = [facts(number) for number in range(1, 31)]
    account = terminated(
        instances_=[observed(one, "terminated") for one in ended],
        clusters={"prod": LeftoversInMemory({one.private_dns_name: node(one) for one in ended})},
    )
    assert [one.result for one in run(account).clean_ups] == [CleanUpResult.CLEANED] * 30
    assert account.state_reads == [sorted(one.instance for one in ended)]
    assert account.clusters["prod"].listed == []


def test_attachments_are_listed_only_for_nodes_with_volumes() -> None:
    ended = [facts(number) for number in range(1, 11)]
    cluster = LeftoversInMemory(
        {one.private_dns_name: node(one) for one in ended},
        {ended[3].private_dns_name: [VOLUME]},
    )
    account = terminated(
        instances_=[observed(one, "terminated") for one in ended],
        fresh={one.instance: "terminated" for one in ended},
        clusters={"prod": cluster},
    )
    assert [one.detached for one in run(account).clean_ups if one.detached] == [("shop/data-0",)]
    assert set(cluster.listed) == {ended[3].private_dns_name}
    assert cluster.by_name == {}


def test_attached_volumes_keep_the_node_and_its_item_in_the_index() -> None:
    stuck = terminated(instances_=[], fresh={})
    stuck.clusters["prod"].stuck = True
    (cleaned,) = run(stuck).clean_ups
    assert cleaned.result is CleanUpResult.VOLUMES_ATTACHED
    assert stuck.clusters["prod"].deleted == []
    assert OURS.instance in stuck.index
    stuck.clusters["prod"].stuck = False
    assert run(stuck).clean_ups[0].result is CleanUpResult.CLEANED
    assert stuck.index == {}


def test_two_nodes_that_name_one_instance_are_deleted_in_two_runs() -> None:
    """A Node of another client with the provider id of an instance does not keep the real one."""
    doubled = terminated(instances_=[], fresh={})
    cluster = doubled.clusters["prod"]
    cluster.volumes.clear()
    cluster.by_name["copy"] = replace(node(OURS), name="copy", uid="copy")
    assert run(doubled).clean_ups[0].result is CleanUpResult.CLEANED
    assert OURS.instance in doubled.index
    assert run(doubled).clean_ups[0].result is CleanUpResult.CLEANED
    assert (cluster.by_name, doubled.index) == ({}, {})


def test_a_node_of_another_instance_is_not_deleted() -> None:
    newer = terminated()
    cluster = newer.clusters["prod"]
    cluster.by_name[OURS.private_dns_name] = node(facts(9), name=OURS.private_dns_name)
    (report,) = newer.reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.NOTHING_TO_DO]
    assert cluster.deleted == []


class ReplacedNode(LeftoversInMemory):
    """A cluster in which another Node gets the name while volumes are listed."""

    def nodes_with_volumes(self) -> frozenset[str]:
        found = super().nodes_with_volumes()
        self._replace_nodes()
        return found

    def attachments_on(self, node: str) -> list[Attachment]:
        found = super().attachments_on(node)
        self._replace_nodes()
        return found

    def _replace_nodes(self) -> None:
        for name, one in self.by_name.items():
            self.by_name[name] = replace(one, uid="another", ready=True)


@pytest.mark.parametrize("volumes", [[VOLUME], []])
@pytest.mark.parametrize("wanted", [ReconcileRequest(), SINGLE])
def test_another_node_that_gets_the_name_meanwhile_is_neither_tainted_nor_deleted(
    volumes: list[Attachment], wanted: ReconcileRequest
) -> None:
    name = OURS.private_dns_name
    cluster = ReplacedNode({name: node(OURS)}, {name: volumes})
    (report,) = terminated(clusters={"prod": cluster}).reconciliation().run(wanted)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.NOTHING_TO_DO]
    assert (cluster.tainted, cluster.deleted) == ([], [])
    assert cluster.by_name[name].uid == "another"


def reused(**changes: Any) -> Account:
    """A newer instance has the name of a node and uses its Node object."""
    name = OURS.private_dns_name
    cluster = LeftoversInMemory({name: node(OURS, ready=True)}, {name: [VOLUME]})
    newer = facts(9).model_copy(update={"private_dns_name": name, **changes})
    account = terminated(clusters={"prod": cluster})
    account.instances_.append(observed(newer))
    return account


def test_a_node_object_that_a_newer_instance_uses_is_kept() -> None:
    account = reused()
    (report,) = account.reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.KEPT]
    assert facts(9).instance in report.clean_ups[0].reason
    assert run(account).clean_ups == []
    cluster = account.clusters["prod"]
    assert (cluster.tainted, cluster.deleted) == ([], [])


@pytest.mark.parametrize("wanted", [ReconcileRequest(), SINGLE])
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_newer_instance_whose_kubelet_does_not_respond_keeps_its_node(
    wanted: ReconcileRequest, state: str
) -> None:
    account = reused()
    cluster = account.clusters["prod"]
    cluster.by_name[OURS.private_dns_name] = node(OURS)
    account.instances_[1] = replace(account.instances_[1], state=state)
    (report,) = account.reconciliation().run(wanted)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.KEPT]
    assert facts(9).instance in report.clean_ups[0].reason
    assert (cluster.tainted, cluster.deleted) == ([], [])
    account.instances_[1] = replace(account.instances_[1], state="terminated")
    account.fresh[facts(9).instance] = "terminated"
    (report,) = account.reconciliation().run(wanted)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.CLEANED]


def test_instances_that_reuse_names_are_listed_with_one_call() -> None:
    ended = [facts(number) for number in range(1, 31)]
    account = terminated(
        instances_=[observed(one, "terminated") for one in ended],
        clusters={"prod": LeftoversInMemory({one.private_dns_name: node(one) for one in ended})},
    )
    run(account)
    assert account.name_reads == [sorted(one.private_dns_name for one in ended)]


class ReusedNode(LeftoversInMemory):
    """A cluster in which another instance uses the Node while volumes are listed: same UID, same
    provider id."""

    reuse: Callable[[], None] = staticmethod(lambda: None)

    def attachments_on(self, node: str) -> list[Attachment]:
        found = super().attachments_on(node)
        if node in self.tainted:
            self.reuse()
        else:
            self.write(node)
        return found


def test_a_node_that_another_instance_has_changed_gets_no_taint() -> None:
    name = OURS.private_dns_name
    cluster = ReusedNode({name: node(OURS)}, {name: [VOLUME]})
    (report,) = terminated(clusters={"prod": cluster}).reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.NOTHING_TO_DO]
    assert report.clean_ups[0].reason.endswith("deleted or changed after Leeway read it.")
    assert (cluster.tainted, cluster.deleted) == ([], [])


def test_an_instance_that_reuses_the_node_during_the_wait_for_volumes_keeps_it() -> None:
    name = OURS.private_dns_name

    class Detaching(ReusedNode):
        def attachments_on(self, node: str) -> list[Attachment]:
            if node not in self.tainted:
                return LeftoversInMemory.attachments_on(self, node)
            return super().attachments_on(node)

    cluster = Detaching({name: node(OURS)}, {name: [VOLUME]})
    account = terminated(clusters={"prod": cluster})

    def launch() -> None:
        if len(account.instances_) == 1:
            newer = facts(9).model_copy(update={"private_dns_name": name})
            account.instances_.append(observed(newer, "pending"))
            cluster.write(name)

    cluster.reuse = launch
    (report,) = account.reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.KEPT]
    assert (cluster.tainted, cluster.deleted) == ([name], [])


def test_an_instance_without_a_state_from_ec2_keeps_its_node() -> None:
    for wanted in (SINGLE, ReconcileRequest()):
        unknown = terminated(instances_=[], fresh={}, without_state={OURS.instance})
        (report,) = unknown.reconciliation().run(wanted)
        assert [one.result for one in report.clean_ups] == [CleanUpResult.KEPT]
        assert "returned no state" in report.clean_ups[0].reason
        assert (unknown.clusters["prod"].tainted, unknown.clusters["prod"].deleted) == ([], [])


def test_an_instance_with_the_same_name_in_the_vpc_of_another_cluster_does_not_count() -> None:
    account = reused(cluster="blue")
    (report,) = account.reconciliation("prod", "blue").run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.CLEANED]


def test_a_clean_up_is_deferred_if_instances_cannot_be_read_by_name() -> None:
    account = reused()
    account.fails = {"named"}
    (report,) = account.reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.DEFERRED]
    assert account.clusters["prod"].deleted == []


@pytest.mark.parametrize("part", ["states", "known", "the cluster"])
def test_a_throttled_clean_up_is_deferred_without_a_problem_and_done_by_the_next_run(
    part: str,
) -> None:
    storm = terminated(fails={part})
    storm.clusters["prod"].down = part == "the cluster"
    (report,) = storm.reconciliation().run(SINGLE)
    assert report.problems == [], "no function error, and no alarm"
    (deferred,) = report.clean_ups
    assert (deferred.result, deferred.instance, deferred.cluster) == (
        CleanUpResult.DEFERRED,
        OURS.instance,
        "prod",
    )
    assert deferred.reason.startswith("The next run")
    assert storm.clusters["prod"].by_name, "nothing is done on a bad read"
    storm.fails.clear()
    storm.clusters["prod"].down = False
    assert [one.result for one in run(storm).clean_ups] == [CleanUpResult.CLEANED]


def test_an_unexpected_error_of_a_single_clean_up_is_raised() -> None:
    broken = terminated(breaks={"states"})
    with pytest.raises(KeyError):
        broken.reconciliation().run(SINGLE)


def test_ec2_is_not_called_about_an_instance_without_a_node() -> None:
    clean = terminated(clusters={"prod": LeftoversInMemory()})
    (report,) = clean.reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.NOTHING_TO_DO]
    assert clean.state_reads == []


def named_after_its_instance() -> Account:
    account = terminated()
    cluster = account.clusters["prod"]
    cluster.by_name = {OURS.instance: node(OURS, name=OURS.instance)}
    cluster.volumes = {OURS.instance: [VOLUME]}
    return account


def of_another_instance() -> Account:
    account = terminated()
    name = OURS.private_dns_name
    account.clusters["prod"].by_name[name] = node(facts(9), name=name)
    return account


def reused_by_a_newer_instance() -> Account:
    account = reused()
    account.clusters["prod"].by_name[OURS.private_dns_name] = node(OURS)
    return account


def without_volumes() -> Account:
    account = terminated()
    account.clusters["prod"].volumes.clear()
    return account


def only_stopped() -> Account:
    return terminated(instances_=[observed(state="stopped")], fresh={OURS.instance: "stopped"})


@pytest.mark.parametrize(
    "left",
    [
        terminated,
        without_volumes,
        lambda: terminated(instances_=[], fresh={}),
        lambda: terminated(fresh={OURS.instance: "running"}),
        only_stopped,
        named_after_its_instance,
        of_another_instance,
        reused_by_a_newer_instance,
        lambda: terminated(clusters={"prod": LeftoversInMemory()}),
    ],
)
def test_a_full_run_has_the_results_of_a_single_clean_up(
    left: Callable[[], Account],
) -> None:
    single, full = left(), left()
    single.reconciliation().run(SINGLE)
    full.reconciliation().run(ReconcileRequest())
    first, second = single.clusters["prod"], full.clusters["prod"]
    assert (first.tainted, first.deleted) == (second.tainted, second.deleted)
    assert first.volumes == second.volumes
    assert first.by_name.keys() == second.by_name.keys()


def test_an_instance_without_an_item_in_the_index_is_cleaned_up_by_both_runs() -> None:
    record = interrupted().model_copy(update={"facts": OURS})
    for wanted in (SINGLE, ReconcileRequest()):
        young = terminated(index={}, records=[record])
        young.records_open = False
        (report,) = young.reconciliation().run(wanted)
        assert [one.result for one in report.clean_ups] == [CleanUpResult.CLEANED]


def test_an_instance_that_ec2_knows_and_does_not_list_keeps_its_node() -> None:
    unlisted = terminated(instances_=[], fresh={OURS.instance: "running"})
    assert [one.result for one in run(unlisted).clean_ups] == [CleanUpResult.KEPT]
    assert unlisted.clusters["prod"].deleted == []
    assert OURS.instance in unlisted.index


def test_a_single_clean_up_needs_a_record_or_an_item_in_the_index() -> None:
    left = terminated()
    (report,) = left.reconciliation().run(SINGLE)
    assert [one.result for one in report.clean_ups] == [CleanUpResult.CLEANED]
    unknown = terminated(index={})
    (report,) = unknown.reconciliation().run(SINGLE)
    assert report.clean_ups == []
