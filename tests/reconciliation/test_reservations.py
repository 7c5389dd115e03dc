"""The end of reserved capacity: nodes of a Capacity Block retire in time, others get new labels."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.reconciliation.lost_events import check_block_end
from leeway.selection.labels import (
    CAPACITY_TYPE,
    RESERVATION_ID,
    RESERVATION_INTERRUPTIBLE,
    RESERVATION_TYPE,
)
from leeway.selection.offers.reservations import ReservedCapacity

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.reconciliation.account import OURS, Account, node, observed, run
from tests.reconciliation.lost_notices import context, notice_of
from tests.retirement.retirements import NOTICED, take

BLOCK = ReservedCapacity("cr-1", block=True)
PLAIN = ReservedCapacity("cr-1")
LEEWAY = Owner(OwnerKind.LEEWAY, "web")


def ours(**changes: Any) -> Any:
    return OURS.model_copy(update={"owner": LEEWAY, **changes})


def check(minutes: float, record: Any = None, dry_run: bool = False) -> Any:
    """The check so many minutes before EC2 ends the instances."""
    ends_at = NOTICED + timedelta(hours=2)
    now = ends_at - timedelta(minutes=minutes)
    return check_block_end(
        observed(ours(reservation=BLOCK)), ends_at, record, context(now, dry_run)
    )


def test_the_end_of_a_block_is_found_ten_minutes_before_ec2_ends_its_instances() -> None:
    assert check(11) is None
    assert check(10) is None, "the warning may still arrive"
    notice = notice_of(check(9.5))
    assert notice.kind is NoticeKind.CAPACITY_RESERVATION
    assert notice.instances == (OURS.instance,)
    assert notice.effective_at == NOTICED + timedelta(hours=2)


def test_a_block_whose_instance_retires_for_it_is_not_found_again() -> None:
    begun = take(None, NoticeKind.CAPACITY_RESERVATION, "n-1").record
    assert check(9, begun) is None
    ended = begun.model_copy(update={"phase": Phase.UNDONE, "ended_at": NOTICED})
    assert notice_of(check(9, ended)), "a retirement that was undone serves nothing"


def test_reconcile_reads_the_end_of_blocks_only_if_there_are_some() -> None:
    without = Account([observed(ours(reservation=PLAIN))])
    run(without)
    assert without.block_reads == []
    ends_at = NOTICED + timedelta(minutes=5)
    one = ours(reservation=BLOCK)
    account = Account([observed(one)], blocks={"cr-1": ends_at}, index={one.instance: one})
    run(account)
    assert account.block_reads == [["cr-1"]]
    (notice,) = account.received
    assert (notice.kind, notice.effective_at) == (NoticeKind.CAPACITY_RESERVATION, ends_at)


def test_a_failed_read_of_blocks_is_a_problem_and_the_rest_goes_on() -> None:
    account = Account([observed(ours(reservation=BLOCK))], fails={"block_ends"})
    report = run(account)
    assert ["Capacity Blocks" in problem.message for problem in report.problems] == [True]
    assert report.index_written == 1


def labelled(**more: Any) -> LeftoversInMemory:
    """A cluster with the Node of an instance in a reservation."""
    labels = {
        CAPACITY_TYPE: "reserved",
        RESERVATION_ID: "cr-1",
        RESERVATION_TYPE: "default",
        RESERVATION_INTERRUPTIBLE: "false",
        "team": "a",
    }
    known = node(ours(), labels=labels, ready=True)
    return LeftoversInMemory({known.name: known}, **more)


def ended(cluster: LeftoversInMemory, **more: Any) -> Account:
    """An instance that EC2 showed in a reservation, and shows on-demand now."""
    before = ours(capacity_type="reserved", reservation=PLAIN)
    given = {"index": {OURS.instance: before}, "clusters": {"prod": cluster}, **more}
    return Account([observed(ours(capacity_type="on-demand"))], **given)


def test_the_node_of_an_ended_reservation_is_labelled_as_on_demand() -> None:
    cluster = labelled()
    account = ended(cluster)
    assert run(account).problems == []
    (one,) = cluster.by_name.values()
    assert one.labels == {CAPACITY_TYPE: "on-demand", "team": "a"}
    assert account.index[OURS.instance].reservation is None
    assert run(account).index_written == 0


@pytest.mark.parametrize("why", ["down", "dry run"])
def test_a_node_that_was_not_labelled_is_labelled_by_the_next_run(why: str) -> None:
    cluster = labelled()
    account = ended(cluster)
    cluster.down = why == "down"
    account.policy = ClusterPolicy(dry_run=why == "dry run")
    run(account)
    assert account.index[OURS.instance].reservation == PLAIN
    cluster.down, account.policy = False, ClusterPolicy()
    run(account)
    (one,) = cluster.by_name.values()
    assert one.labels[CAPACITY_TYPE] == "on-demand"
    assert account.index[OURS.instance].reservation is None


def test_an_instance_without_a_node_and_one_of_a_group_are_not_labelled() -> None:
    account = ended(LeftoversInMemory())
    assert run(account).problems == []
    assert account.index[OURS.instance].reservation is None
    cluster = labelled()
    other = Account(
        [observed(OURS)],
        index={OURS.instance: OURS.model_copy(update={"reservation": PLAIN})},
        clusters={"prod": cluster},
    )
    run(other)
    (one,) = cluster.by_name.values()
    assert one.labels[CAPACITY_TYPE] == "reserved"
