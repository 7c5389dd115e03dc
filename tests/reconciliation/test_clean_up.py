"""What a terminated instance leaves is cleaned up, and nothing that another one has by now."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from leeway.ports.kubernetes_objects import Attachment
from leeway.reconciliation.clean_up import CleanUpResult
from leeway.reconciliation.reconcile import Round

from tests.reconciliation.reconciling import (
    OURS,
    VOLUME,
    OneCluster,
    World,
    facts,
    gone,
    node,
    run,
    seen,
)
from tests.retirement.retirements import interrupted

AT_ONCE = Round(OURS.instance, "prod")


def test_what_a_terminated_instance_leaves_is_cleaned_up_its_volumes_first() -> None:
    left = gone()
    (cleaned,) = run(left).cleaned
    cluster = left.clusters["prod"]
    assert (cleaned.result, cleaned.freed) == (CleanUpResult.CLEANED, ("shop/data-0",))
    assert cluster.vouched == [OURS.private_dns_name]
    assert cluster.deleted == [(OURS.private_dns_name, 0)]


def test_a_node_without_volumes_is_vouched_for_by_nobody() -> None:
    left = gone()
    left.clusters["prod"].volumes.clear()
    assert run(left).cleaned[0].result is CleanUpResult.CLEANED
    assert left.clusters["prod"].vouched == []


def test_an_instance_that_ec2_has_forgotten_is_gone_if_it_was_once_seen() -> None:
    forgotten = gone(instances_=[], fresh={})
    assert run(forgotten).cleaned[0].result is CleanUpResult.CLEANED
    assert forgotten.index == {}
    stranger = gone(instances_=[], fresh={}, index={})
    assert run(stranger).cleaned == []
    assert stranger.clusters["prod"].vouched == []


@pytest.mark.parametrize("state", ["stopped", "stopping", "running", "pending"])
def test_a_node_whose_instance_is_not_terminated_never_gets_the_taint(state: str) -> None:
    stopped = gone(instances_=[seen(state=state)], fresh={OURS.instance: state})
    assert run(stopped).cleaned == []
    stopped.reconciliation().run(AT_ONCE)
    assert stopped.clusters["prod"].vouched == []
    assert stopped.clusters["prod"].deleted == []


def test_what_the_list_calls_gone_is_asked_again_before_anything_is_done() -> None:
    back = gone(fresh={OURS.instance: "running"})
    (cleaned,) = run(back).cleaned
    assert cleaned.result is CleanUpResult.LEFT
    assert back.clusters["prod"].vouched == []
    unsure = gone(fails={"states"})
    report = run(unsure)
    assert "RequestLimitExceeded" in report.problems[0]
    assert unsure.clusters["prod"].deleted == []


def test_ec2_is_asked_once_about_all_that_a_storm_left() -> None:
    ended = [facts(number) for number in range(1, 31)]
    world = gone(
        instances_=[seen(one, "terminated") for one in ended],
        clusters={"prod": OneCluster({one.private_dns_name: node(one) for one in ended})},
    )
    assert [one.result for one in run(world).cleaned] == [CleanUpResult.CLEANED] * 30
    assert world.asked == [sorted(one.instance for one in ended)]
    assert world.clusters["prod"].looked_at == []


def test_attachments_are_listed_for_the_nodes_that_have_some() -> None:
    ended = [facts(number) for number in range(1, 11)]
    cluster = OneCluster(
        {one.private_dns_name: node(one) for one in ended},
        {ended[3].private_dns_name: [VOLUME]},
    )
    world = gone(
        instances_=[seen(one, "terminated") for one in ended],
        fresh={one.instance: "terminated" for one in ended},
        clusters={"prod": cluster},
    )
    assert [one.freed for one in run(world).cleaned if one.freed] == [("shop/data-0",)]
    assert set(cluster.looked_at) == {ended[3].private_dns_name}
    assert cluster.nodes == {}


def test_volumes_that_stay_attached_keep_the_node_and_its_place_in_the_index() -> None:
    stuck = gone(instances_=[], fresh={})
    stuck.clusters["prod"].stuck = True
    (cleaned,) = run(stuck).cleaned
    assert cleaned.result is CleanUpResult.WAITING
    assert stuck.clusters["prod"].deleted == []
    assert OURS.instance in stuck.index
    stuck.clusters["prod"].stuck = False
    assert run(stuck).cleaned[0].result is CleanUpResult.CLEANED
    assert stuck.index == {}


def test_two_nodes_that_name_one_instance_are_removed_one_after_the_other() -> None:
    """A Node that somebody else made with an instance's provider id does not keep the real one."""
    doubled = gone(instances_=[], fresh={})
    cluster = doubled.clusters["prod"]
    cluster.volumes.clear()
    cluster.nodes["copy"] = replace(node(OURS), name="copy", uid="copy")
    assert run(doubled).cleaned[0].result is CleanUpResult.CLEANED
    assert OURS.instance in doubled.index
    assert run(doubled).cleaned[0].result is CleanUpResult.CLEANED
    assert (cluster.nodes, doubled.index) == ({}, {})


def test_a_node_that_another_instance_has_by_now_is_not_removed() -> None:
    newer = gone()
    cluster = newer.clusters["prod"]
    cluster.nodes[OURS.private_dns_name] = node(facts(9), name=OURS.private_dns_name)
    (report,) = newer.reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.NOTHING]
    assert cluster.deleted == []


class Reborn(OneCluster):
    """A cluster in which another node gets the name while its volumes are looked at."""

    def nodes_with_volumes(self) -> frozenset[str]:
        found = super().nodes_with_volumes()
        self._bear_again()
        return found

    def attachments_on(self, node: str) -> list[Attachment]:
        found = super().attachments_on(node)
        self._bear_again()
        return found

    def _bear_again(self) -> None:
        for name, one in self.nodes.items():
            self.nodes[name] = replace(one, uid="another", ready=True)


@pytest.mark.parametrize("volumes", [[VOLUME], []])
@pytest.mark.parametrize("wanted", [Round(), AT_ONCE])
def test_a_node_that_came_back_under_the_same_name_meanwhile_is_neither_vouched_for_nor_removed(
    volumes: list[Attachment], wanted: Round
) -> None:
    name = OURS.private_dns_name
    cluster = Reborn({name: node(OURS)}, {name: volumes})
    (report,) = gone(clusters={"prod": cluster}).reconciliation().run(wanted)
    assert [one.result for one in report.cleaned] == [CleanUpResult.NOTHING]
    assert (cluster.vouched, cluster.deleted) == ([], [])
    assert cluster.nodes[name].uid == "another"


def inherited(**changes: Any) -> World:
    """A newer instance has the name, and goes on with the Node object that it found."""
    name = OURS.private_dns_name
    cluster = OneCluster({name: node(OURS, ready=True)}, {name: [VOLUME]})
    newer = facts(9).model_copy(update={"private_dns_name": name, **changes})
    world = gone(clusters={"prod": cluster})
    world.instances_.append(seen(newer))
    return world


def test_a_node_object_that_a_newer_instance_goes_on_with_is_left_to_it() -> None:
    world = inherited()
    (report,) = world.reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.LEFT]
    assert facts(9).instance in report.cleaned[0].reason
    assert run(world).cleaned == []
    cluster = world.clusters["prod"]
    assert (cluster.vouched, cluster.deleted) == ([], [])


@pytest.mark.parametrize("wanted", [Round(), AT_ONCE])
@pytest.mark.parametrize("state", ["pending", "running", "stopping", "stopped"])
def test_an_heir_whose_kubelet_is_silent_keeps_its_node(wanted: Round, state: str) -> None:
    world = inherited()
    cluster = world.clusters["prod"]
    cluster.nodes[OURS.private_dns_name] = node(OURS)
    world.instances_[1] = replace(world.instances_[1], state=state)
    (report,) = world.reconciliation().run(wanted)
    assert [one.result for one in report.cleaned] == [CleanUpResult.LEFT]
    assert facts(9).instance in report.cleaned[0].reason
    assert (cluster.vouched, cluster.deleted) == ([], [])
    world.instances_[1] = replace(world.instances_[1], state="terminated")
    world.fresh[facts(9).instance] = "terminated"
    (report,) = world.reconciliation().run(wanted)
    assert [one.result for one in report.cleaned] == [CleanUpResult.CLEANED]


def test_heirs_of_all_that_a_storm_left_are_looked_for_by_one_call() -> None:
    ended = [facts(number) for number in range(1, 31)]
    world = gone(
        instances_=[seen(one, "terminated") for one in ended],
        clusters={"prod": OneCluster({one.private_dns_name: node(one) for one in ended})},
    )
    run(world)
    assert world.named_ == [sorted(one.private_dns_name for one in ended)]


class Inherited(OneCluster):
    """A cluster in which an heir goes on with the Node while its volumes are looked at: same UID,
    same provider id."""

    heir: Callable[[], None] = staticmethod(lambda: None)

    def attachments_on(self, node: str) -> list[Attachment]:
        found = super().attachments_on(node)
        if node in self.vouched:
            self.heir()
        else:
            self.write(node)
        return found


def test_a_node_that_an_heir_has_written_is_not_vouched_for() -> None:
    name = OURS.private_dns_name
    cluster = Inherited({name: node(OURS)}, {name: [VOLUME]})
    (report,) = gone(clusters={"prod": cluster}).reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.NOTHING]
    assert "was changed since it was read" in report.cleaned[0].reason
    assert (cluster.vouched, cluster.deleted) == ([], [])


def test_an_heir_that_comes_while_volumes_are_waited_for_keeps_its_node() -> None:
    name = OURS.private_dns_name

    class Freed(Inherited):
        def attachments_on(self, node: str) -> list[Attachment]:
            if node not in self.vouched:
                return OneCluster.attachments_on(self, node)
            return super().attachments_on(node)

    cluster = Freed({name: node(OURS)}, {name: [VOLUME]})
    world = gone(clusters={"prod": cluster})

    def come() -> None:
        if len(world.instances_) == 1:
            newer = facts(9).model_copy(update={"private_dns_name": name})
            world.instances_.append(seen(newer, "pending"))
            cluster.write(name)

    cluster.heir = come
    (report,) = world.reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.LEFT]
    assert (cluster.vouched, cluster.deleted) == ([name], [])


def test_an_instance_of_which_ec2_says_nothing_keeps_its_node() -> None:
    for wanted in (AT_ONCE, Round()):
        unsaid = gone(instances_=[], fresh={}, unsaid={OURS.instance})
        (report,) = unsaid.reconciliation().run(wanted)
        assert [one.result for one in report.cleaned] == [CleanUpResult.LEFT]
        assert report.cleaned[0].reason == "EC2 says nothing of the instance"
        assert (unsaid.clusters["prod"].vouched, unsaid.clusters["prod"].deleted) == ([], [])


def test_a_namesake_in_another_clusters_vpc_is_no_heir() -> None:
    world = inherited(cluster="blue")
    (report,) = world.reconciliation("prod", "blue").run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.CLEANED]


def test_whether_there_is_an_heir_must_be_known() -> None:
    world = inherited()
    world.fails = {"named"}
    (report,) = world.reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.LATER]
    assert world.clusters["prod"].deleted == []


@pytest.mark.parametrize("part", ["states", "known", "the cluster"])
def test_what_is_throttled_at_once_is_said_in_one_line_and_done_by_the_next_minute(
    part: str,
) -> None:
    storm = gone(fails={part})
    storm.clusters["prod"].down = part == "the cluster"
    (report,) = storm.reconciliation().run(AT_ONCE)
    assert report.problems == [], "no function error, and no alarm"
    (later,) = report.cleaned
    assert (later.result, later.instance, later.cluster) == (
        CleanUpResult.LATER,
        OURS.instance,
        "prod",
    )
    assert later.reason.startswith("the next minute's run cleans up: C")
    assert storm.clusters["prod"].nodes, "nothing is done on a bad read"
    storm.fails.clear()
    storm.clusters["prod"].down = False
    assert [one.result for one in run(storm).cleaned] == [CleanUpResult.CLEANED]


def test_what_nobody_foresaw_is_an_error_at_once_too() -> None:
    broken = gone(breaks={"states"})
    with pytest.raises(KeyError):
        broken.reconciliation().run(AT_ONCE)


def test_about_an_instance_whose_node_is_gone_ec2_is_not_asked() -> None:
    clean = gone(clusters={"prod": OneCluster()})
    (report,) = clean.reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.NOTHING]
    assert clean.asked == []


def named_after_its_instance() -> World:
    world = gone()
    cluster = world.clusters["prod"]
    cluster.nodes = {OURS.instance: node(OURS, name=OURS.instance)}
    cluster.volumes = {OURS.instance: [VOLUME]}
    return world


def of_another_by_now() -> World:
    world = gone()
    name = OURS.private_dns_name
    world.clusters["prod"].nodes[name] = node(facts(9), name=name)
    return world


def begun_with_by_a_newer_one() -> World:
    world = inherited()
    world.clusters["prod"].nodes[OURS.private_dns_name] = node(OURS)
    return world


def without_volumes() -> World:
    world = gone()
    world.clusters["prod"].volumes.clear()
    return world


def only_stopped() -> World:
    return gone(instances_=[seen(state="stopped")], fresh={OURS.instance: "stopped"})


@pytest.mark.parametrize(
    "left",
    [
        gone,
        without_volumes,
        lambda: gone(instances_=[], fresh={}),
        lambda: gone(fresh={OURS.instance: "running"}),
        only_stopped,
        named_after_its_instance,
        of_another_by_now,
        begun_with_by_a_newer_one,
        lambda: gone(clusters={"prod": OneCluster()}),
    ],
)
def test_a_minutes_run_does_all_that_cleaning_up_at_once_does(left: Callable[[], World]) -> None:
    at_once, by_the_minute = left(), left()
    at_once.reconciliation().run(AT_ONCE)
    by_the_minute.reconciliation().run(Round())
    did, does = at_once.clusters["prod"], by_the_minute.clusters["prod"]
    assert (does.vouched, does.deleted, does.volumes) == (did.vouched, did.deleted, did.volumes)
    assert does.nodes.keys() == did.nodes.keys()


def test_an_instance_that_was_never_indexed_is_cleaned_up_after_by_the_minute_as_at_once() -> None:
    record = interrupted().model_copy(update={"facts": OURS})
    for wanted in (AT_ONCE, Round()):
        young = gone(index={}, records=[record])
        young.under_way = False
        (report,) = young.reconciliation().run(wanted)
        assert [one.result for one in report.cleaned] == [CleanUpResult.CLEANED]


def test_an_instance_that_ec2_has_forgotten_is_cleaned_up_after_when_a_late_notice_comes() -> None:
    forgotten = gone(instances_=[], fresh={})
    (report,) = forgotten.reconciliation().run(AT_ONCE)
    assert [(one.result, one.freed) for one in report.cleaned] == [
        (CleanUpResult.CLEANED, ("shop/data-0",))
    ]
    assert forgotten.clusters["prod"].deleted == [(OURS.private_dns_name, 0)]


def test_an_instance_that_ec2_does_not_list_but_still_knows_keeps_its_node() -> None:
    unlisted = gone(instances_=[], fresh={OURS.instance: "running"})
    assert [one.result for one in run(unlisted).cleaned] == [CleanUpResult.LEFT]
    assert unlisted.clusters["prod"].deleted == []
    assert OURS.instance in unlisted.index


def test_a_terminated_instance_is_cleaned_up_after_at_once_when_its_notice_comes() -> None:
    left = gone()
    (report,) = left.reconciliation().run(AT_ONCE)
    assert [one.result for one in report.cleaned] == [CleanUpResult.CLEANED]
    unknown = gone(index={})
    (report,) = unknown.reconciliation().run(AT_ONCE)
    assert report.cleaned == []
