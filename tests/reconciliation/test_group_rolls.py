"""Nodes follow the launch templates of their groups: a few at a time, or with a reason."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.execution.attempt import Phase
from leeway.headroom.windows import Window, parse_cron
from leeway.instances.facts import GroupRules, InstanceFacts, ObservedInstance, Owner, OwnerKind
from leeway.instances.group_template import GroupMember, GroupNow, Template, drift_of_member
from leeway.notices import NoticeKind
from leeway.policy.rules import ChurnCap, ClusterPolicy, GroupDrift, OnBlocked, Replacement
from leeway.ports.aws import CloudUnavailable, HookResult
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason
from leeway.reconciliation.decide_roll import (
    GROUP_ROLL,
    Asked,
    GroupRoll,
    RollRefused,
    ask_for_roll,
    stop_roll,
)
from leeway.reconciliation.group_rolls import GroupRolls, RollReport
from leeway.retirement.reasons import NODE_KEPT, SUCCESSOR_NOT_READY
from leeway.retirement.record import RETIREMENT, Retirement

from tests.fakes.clock import FakeClock
from tests.fakes.table import TableInMemory
from tests.reconciliation.account import facts, node
from tests.retirement.retirements import NOTICED, take

OF_WEB = Owner(OwnerKind.AUTO_SCALING_GROUP, "web")
OLD, NEW = Template("lt-1", "web", "1", "ami-1"), Template("lt-1", "web", "2", "ami-2")
RULES = GroupRules(
    name="web",
    capacity_rebalance=False,
    refreshing=False,
    suspended=frozenset(),
    terminate_hooks=(),
)
OFTEN = ChurnCap(percent=100)
AUTOMATIC = ClusterPolicy(group_drift=GroupDrift(automatic=True), churn=OFTEN)


def member(number: int, template: Template = OLD, **changes: Any) -> GroupMember:
    """An instance of the group that was launched from a template."""
    usual: dict[str, Any] = {
        "instance": facts(number).instance,
        "instance_type": "m5.large",
        "lifecycle_state": "InService",
        "template": template.id,
        "version": template.version,
    }
    return GroupMember(**usual | changes)


@dataclass
class World:
    """One group of a cluster, and what reconcile knows of it. `down` are instances whose Nodes are
    not Ready."""

    group: GroupNow = field(
        default_factory=lambda: GroupNow(
            "web", 3, 6, tuple(map(member, (1, 2, 3))), NEW, types=frozenset({"m5.large"})
        )
    )
    rules_: GroupRules = RULES
    owner: Owner = OF_WEB
    policy: ClusterPolicy = AUTOMATIC
    down: set[str] = field(default_factory=set)
    unreachable: bool = False
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOTICED + timedelta(hours=2)))
    started: list[str] = field(default_factory=list)
    reads: list[list[str]] = field(default_factory=list)
    node_reads: int = 0

    def __post_init__(self) -> None:
        self.table = TableInMemory(self.clock)

    # GroupTemplates, Groups and RetireNode
    def now(self, groups: Collection[str]) -> Mapping[str, GroupNow]:
        self.reads.append(sorted(groups))
        return {"web": self.group} if "web" in groups else {}

    def rules(self, group: str) -> GroupRules:
        if self.unreachable:
            raise CloudUnavailable("RequestLimitExceeded")
        return self.rules_

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        self.started.append(instance)

    def facts(self, one: GroupMember) -> InstanceFacts:
        number = int(one.instance.removeprefix("i-"), 16)
        image = "ami-2" if one.version == NEW.version else "ami-1"
        found = facts(number, owner=self.owner)
        return found.model_copy(update={"image": image, "instance_type": one.instance_type})

    def nodes(self) -> list[Node]:
        self.node_reads += 1
        known = map(self.facts, self.group.members)
        return [node(one, ready=one.instance not in self.down) for one in known]

    def run(self) -> RollReport:
        """Run once, and let a minute pass."""
        here = {
            one.instance: ObservedInstance(self.facts(one), "running", NOTICED, "web")
            for one in self.group.members
        }
        partly: Any = self
        rolls = GroupRolls(self.table, self, partly, self, self.clock)
        report = rolls.run("prod", self.policy, here, self.nodes)
        self.clock.sleep(60)
        return report

    @property
    def roll(self) -> GroupRoll | None:
        return self.table.get(GROUP_ROLL, cluster="prod", group="web")

    def retirement(self, instance: str) -> Retirement:
        found = self.table.get(RETIREMENT, cluster="prod", instance=instance)
        assert found is not None
        return found

    def keep(self, instance: str, reason: Reason) -> None:
        """End a retirement whose node was kept."""
        record = self.retirement(instance)
        ended: dict[str, Any] = {"phase": Phase.FINISHED, "answer": None, "reason": reason}
        ended |= {"ended_at": self.clock.time, "version": record.version + 1}
        self.table.put(RETIREMENT, record.model_copy(update=ended))

    def replace(self, instance: str, number: int) -> None:
        """Replace an instance by a new one, as its retirement does."""
        record = self.retirement(instance)
        ended: dict[str, Any] = {"phase": Phase.FINISHED, "answer": HookResult.CONTINUE}
        ended |= {"ended_at": self.clock.time, "version": record.version + 1}
        self.table.put(RETIREMENT, record.model_copy(update=ended))
        staying = tuple(one for one in self.group.members if one.instance != instance)
        self.group = replace(self.group, members=(*staying, member(number, NEW)))

    def waits(self) -> str:
        assert self.roll is not None
        assert self.roll.waits is not None
        return self.roll.waits.message


def test_a_group_rolls_one_node_at_a_time_until_none_is_left() -> None:
    world = World()
    for number in (11, 12, 13):
        report = world.run()
        (finding,) = report.begun
        assert finding.reason.code == "GroupNodeDrifted"
        assert "launched from version 1, and its group" in finding.reason.message
        assert "runs ami-1, and its group launches ami-2" in finding.reason.message
        assert world.run().begun == [], "one is unavailable already"
        assert "maxUnavailable allows 1" in world.waits()
        world.replace(finding.instance, number)
    assert len(set(world.started)) == 3
    world.run()
    assert world.roll is not None
    assert (world.roll.replaced, world.roll.left, world.roll.is_over) == (3, 0, True)
    assert world.roll.waits is None
    written, reads = world.table.written.copy(), world.node_reads
    world.run()
    assert (world.table.written, world.node_reads) == (written, reads), "a settled group is quiet"


def test_its_retirement_has_the_terms_of_the_manifest() -> None:
    world = World()
    world.run()
    record = world.retirement(world.started[0])
    assert (record.kind, record.replacement) == (NoticeKind.CAPACITY_RETURN, Replacement.BEFORE)
    assert record.deadline == record.noticed_at + timedelta(minutes=15)
    assert record.on_blocked is OnBlocked.WAIT
    assert record.returns is not None
    assert (record.returns.cause, record.returns.optional, record.returns.forced) == (
        "Drifted",
        True,
        False,
    )
    assert record.follows_template
    forced = GroupDrift(automatic=True, force=True, node_timeout=timedelta(minutes=40))
    world = World(policy=ClusterPolicy(group_drift=forced, churn=OFTEN))
    world.run()
    record = world.retirement(world.started[0])
    assert record.returns is not None
    assert (record.on_blocked, record.returns.forced) == (OnBlocked.DELETE, True)
    assert record.deadline == record.noticed_at + timedelta(minutes=40)


def test_without_the_opt_in_nothing_is_read_of_the_groups() -> None:
    world = World(policy=ClusterPolicy())
    assert world.run() == RollReport()
    assert (world.reads, world.roll) == ([], None)


def test_a_managed_node_group_is_left_to_eks() -> None:
    world = World(owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "web"))
    takes = replace(AUTOMATIC, retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
    world.policy = takes
    assert world.run() == RollReport()
    assert world.reads == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": replace(AUTOMATIC, paused=True)}, "is paused"),
        ({"policy": replace(AUTOMATIC, dry_run=True)}, "dry-run mode"),
        ({"policy": replace(AUTOMATIC, churn=ChurnCap(0, 0))}, "disruption budget of the cluster"),
        ({"rules_": replace(RULES, refreshing=True)}, "An instance refresh of group web"),
        ({"rules_": replace(RULES, suspended=frozenset({"Launch"}))}, "Launch process is"),
        ({"rules_": replace(RULES, launch_unsupported="has a warm pool")}, "has a warm pool"),
        ({"down": {facts(2).instance}}, "maxUnavailable allows 1 of its nodes, and i-"),
    ],
)
def test_what_holds_a_group_is_said_and_nothing_begins(changes: dict[str, Any], why: str) -> None:
    world = World(**changes)
    assert world.run().begun == []
    assert why in world.waits()
    assert world.started == []
    assert world.roll is not None
    assert world.roll.waits is not None
    assert world.roll.waits.code == "GroupRollWaits"


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({"maximum": 3}, "would exceed the maximum of group web, which is 3"),
        ({"members": (member(1, lifecycle_state="Standby"),)}, "lifecycle state Standby"),
        ({"members": (member(1, protected=True),)}, "protected from scale-in"),
    ],
)
def test_what_holds_its_instances_is_said(group: dict[str, Any], why: str) -> None:
    world = World()
    world.group = replace(world.group, **group)
    assert world.run().begun == []
    assert why in world.waits()
    assert world.started == []


def test_a_launch_template_that_is_gone_is_a_problem_and_replaces_nothing() -> None:
    world = World()
    world.group = replace(world.group, unread="launch template web cannot be read: NotFound")
    (problem,) = world.run().problems
    assert "read what group web launches: launch template web cannot" in problem.message
    assert world.started == []


def test_force_replaces_instances_that_are_protected_from_scale_in() -> None:
    forced = GroupDrift(automatic=True, force=True)
    world = World(policy=ClusterPolicy(group_drift=forced, churn=OFTEN))
    world.group = replace(world.group, members=(member(1, protected=True),))
    assert len(world.run().begun) == 1


def nightly() -> Window:
    return Window(ZoneInfo("UTC"), parse_cron("0 2 * * *"), parse_cron("0 4 * * *"), 1)


def test_a_maintenance_window_holds_what_nobody_asked_for() -> None:
    drift = GroupDrift(automatic=True, windows=(nightly(),))
    world = World(policy=ClusterPolicy(group_drift=drift, churn=OFTEN))
    world.run()
    assert "The next one opens at" in world.waits()
    assert " 02:00 UTC" in world.waits()
    now = world.clock.time
    world.clock.time = datetime(now.year, now.month, now.day, 3, tzinfo=now.tzinfo)
    world.clock.time += timedelta(days=1)
    assert len(world.run().begun) == 1
    asked = World(policy=replace(world.policy))
    roll = GroupRoll(
        cluster="prod", group="web", version=1, begun_at=asked.clock.time, asked_at=NOTICED
    )
    asked.table.put(GROUP_ROLL, roll)
    assert len(asked.run().begun) == 1


def test_a_person_asks_for_it_once_without_the_opt_in() -> None:
    world = World(policy=ClusterPolicy(churn=OFTEN))
    asked: dict[str, Any] = {"asked_at": NOTICED, "max_unavailable": "2", "force": True}
    roll = GroupRoll(cluster="prod", group="web", version=1, begun_at=NOTICED, **asked)
    world.table.put(GROUP_ROLL, roll)
    assert len(world.run().begun) == 2
    assert world.retirement(world.started[0]).on_blocked is OnBlocked.DELETE
    for number, instance in enumerate([*world.started], 21):
        world.replace(instance, number)
    world.run()
    world.replace(world.started[-1], 23)
    world.run()
    assert world.roll is not None
    assert (world.roll.is_over, world.roll.replaced) == (True, 3)
    world.group = replace(world.group, template=Template("lt-1", "web", "3", "ami-3"))
    reads = len(world.reads)
    world.run()
    assert len(world.reads) == reads, "it was asked for once"


def test_a_roll_that_a_person_stopped_begins_with_no_other_node() -> None:
    world = World()
    world.run()
    assert world.roll is not None
    world.table.put(GROUP_ROLL, world.roll.changed(stopped_at=world.clock.time))
    world.replace(world.started[0], 31)
    world.run()
    world.run()
    assert len(world.started) == 1
    assert world.roll is not None
    assert (world.roll.replaced, world.roll.left) == (1, 2)
    world.table.put(GROUP_ROLL, world.roll.changed(stopped_at=None))
    assert len(world.run().begun) == 1, "it goes on where it was"


def ask(world: World, **asked: Any) -> None:
    """Ask for the roll as `leeway roll` does."""
    wanted = ask_for_roll(world.roll, "prod", "web", Asked(**asked), world.clock.time)
    world.table.put(GROUP_ROLL, wanted)


def test_of_two_people_who_ask_one_is_refused_with_the_name_of_the_other() -> None:
    world = World(policy=ClusterPolicy(churn=OFTEN))
    ask(world, by="alice", max_unavailable="2")
    with pytest.raises(RollRefused, match="is under way: alice asked for it at"):
        ask(world, by="eve", force=True)
    world.run()
    with pytest.raises(RollRefused, match="alice"):
        ask(world, by="eve", force=True)
    assert world.retirement(world.started[0]).on_blocked is OnBlocked.WAIT


def test_a_stopped_roll_is_taken_up_again_with_its_options() -> None:
    world = World(policy=ClusterPolicy(churn=OFTEN))
    ask(world, by="alice", max_unavailable="2", node_timeout=timedelta(minutes=40), force=True)
    world.run()
    first = set(world.started)
    assert len(first) == 2
    assert world.roll is not None
    world.table.put(GROUP_ROLL, stop_roll(world.roll, "web", world.clock.time))
    for number, instance in enumerate(sorted(first), 41):
        world.replace(instance, number)
    for _ in range(3):
        assert world.run().begun == []
    assert world.roll.stopped_at is not None
    stopped = world.roll
    assert stop_roll(stopped, "web", world.clock.time) is stopped, "it is stopped already"
    ask(world, by="bob", node_timeout=timedelta(minutes=5))
    (finding,) = world.run().begun
    assert finding.instance not in first, "each node once"
    record = world.retirement(finding.instance)
    assert record.deadline == record.noticed_at + timedelta(minutes=5)
    assert (world.roll.asked_by, world.roll.force, world.roll.max_unavailable) == ("bob", True, "2")
    world.replace(finding.instance, 43)
    world.run()
    assert (world.roll.is_over, world.roll.replaced) == (True, 3)
    with pytest.raises(RollRefused, match="No roll of group web is under way"):
        stop_roll(world.roll, "web", world.clock.time)


def test_without_force_a_roll_does_not_force_what_the_manifest_forces() -> None:
    forced = GroupDrift(force=True)
    for force, blocked in ((None, OnBlocked.DELETE), (False, OnBlocked.WAIT)):
        world = World(policy=ClusterPolicy(group_drift=forced, churn=OFTEN))
        ask(world, force=force)
        world.run()
        assert world.retirement(world.started[0]).on_blocked is blocked


def test_a_halted_roll_goes_on_when_a_person_asks_again() -> None:
    world = World(policy=ClusterPolicy(churn=OFTEN))
    ask(world, max_unavailable="2")
    world.run()
    first, second = world.started
    world.keep(first, SUCCESSOR_NOT_READY(why="Successor i-9 had no node after 5 minutes."))
    world.run()
    assert world.roll is not None
    assert world.roll.halted is not None
    ask(world, by="bob")
    world.keep(second, SUCCESSOR_NOT_READY(why="Successor i-8 had no node after 5 minutes."))
    world.run()
    assert world.roll.halted is None, "it was begun before the request"
    assert len(world.started) > 2


def test_a_roll_that_a_person_stopped_is_not_halted() -> None:
    """A halted roll goes on with another template, and one that a person stopped does not."""
    world = World(policy=ClusterPolicy(churn=OFTEN))
    ask(world, max_unavailable="2")
    world.run()
    first, second = world.started
    world.keep(first, SUCCESSOR_NOT_READY(why="Successor i-9 had no node after 5 minutes."))
    assert [one.code for one in world.run().problems] == ["GroupRollHalted"]
    world.table.put(GROUP_ROLL, stop_roll(world.roll, "web", world.clock.time))
    world.keep(second, SUCCESSOR_NOT_READY(why="Successor i-8 had no node after 5 minutes."))
    report = world.run()
    assert world.roll is not None
    assert (report.problems, report.halted, world.roll.halted) == ([], [], None)
    assert set(world.roll.kept) == {first, second}
    world.group = replace(world.group, template=Template("lt-1", "web", "3", "ami-3"))
    assert world.run().begun == []


def test_a_halted_roll_without_drifted_nodes_ends() -> None:
    world = World()
    world.run()
    (first,) = world.started
    world.keep(first, SUCCESSOR_NOT_READY(why="Successor i-9 had no node after 5 minutes."))
    world.run()
    newer = tuple(member(number, NEW) for number in (61, 62, 63))
    world.group = replace(world.group, members=newer)
    world.run()
    assert world.roll is not None
    assert (world.roll.is_over, world.roll.halted) == (True, None)


def test_a_template_that_changes_during_a_roll_is_followed_to_the_last_version() -> None:
    world = World(policy=ClusterPolicy(churn=OFTEN))
    ask(world)
    world.run()
    world.replace(world.started[0], 51)
    world.group = replace(world.group, template=Template("lt-1", "web", "3", "ami-1"))
    number = 52
    while world.roll is not None and not world.roll.is_over:
        for finding in world.run().begun:
            members = tuple(one for one in world.group.members if one.instance != finding.instance)
            world.replace(finding.instance, number)
            newest = member(number, replace(NEW, version="3"))
            world.group = replace(world.group, members=(*members, newest))
            number += 1
        assert number < 60
    assert world.roll is not None
    assert {one.version for one in world.group.members} == {"3"}
    assert world.roll.replaced == 4, "the node of version 2 was replaced again"


def test_the_roll_of_a_group_without_nodes_ends() -> None:
    world = World(policy=ClusterPolicy(churn=OFTEN))
    ask(world)
    gone = ask_for_roll(None, "prod", "gone", Asked(by="alice"), world.clock.time)
    world.table.put(GROUP_ROLL, gone)
    world.run()
    ended = world.table.get(GROUP_ROLL, cluster="prod", group="gone")
    assert ended is not None
    assert (ended.is_over, ended.asked_at) == (True, None)
    assert world.roll is not None
    assert not world.roll.is_over


def test_a_template_whose_nodes_never_join_is_tried_on_one_node_only() -> None:
    world = World()
    world.run()
    (first,) = world.started
    world.keep(first, SUCCESSOR_NOT_READY(why="Successor i-9 had no node after 5 minutes."))
    report = world.run()
    (problem,) = report.problems
    assert problem.code == "GroupRollHalted"
    assert "version 2 of launch template web (ami-2), m5.large" in problem.message
    for _ in range(30):
        report = world.run()
        assert (report.begun, report.problems) == ([], [])
        assert [one.code for one in report.halted] == ["GroupRollHalted"]
    assert world.started == [first]
    mended = Template("lt-1", "web", "3", "ami-3")
    world.group = replace(world.group, template=mended)
    assert len(world.run().begun) == 1, "another template ends the halt"


def test_a_node_that_was_kept_lets_the_others_go_first() -> None:
    world = World()
    world.run()
    (first,) = world.started
    world.keep(first, NODE_KEPT("The API server refuses to evict pod shop/db-0."))
    (finding,) = world.run().begun
    assert finding.instance != first
    assert world.roll is not None
    assert "shop/db-0" in world.roll.kept[first].reason.message
    world.replace(finding.instance, 41)
    world.replace(world.run().begun[0].instance, 42)
    world.run()
    assert "was kept, and is tried again later" in world.waits()
    world.clock.sleep(600)
    assert [one.instance for one in world.run().begun] == [first]


def test_a_retirement_of_another_kind_counts_as_unavailable() -> None:
    world = World()
    interrupted = world.facts(world.group.members[1])
    record = take(None, NoticeKind.REBALANCE, "n-1").record.model_copy(
        update={"facts": interrupted}
    )
    world.table.put(RETIREMENT, record)
    assert world.run().begun == []
    assert "maxUnavailable" in world.waits()


def test_two_runs_at_once_begin_with_one_node() -> None:
    world = World()
    get = world.table.list

    def late(*args: Any, **kwargs: Any) -> Any:
        found: Any = get(*args, **kwargs)
        world.table.list = get  # type: ignore[method-assign]
        world.run()
        return found

    world.table.list = late  # type: ignore[method-assign]
    assert world.run().begun == []
    assert len(world.started) == 1


def test_a_run_that_ends_before_the_retirement_is_written_is_repaired() -> None:
    world = World()
    world.table.fail(CloudUnavailable("ThrottlingException"), "put", key="RETIREMENT#")
    report = world.run()
    assert [one.code for one in report.problems] == ["ReconcileIncomplete"]
    world.table.before = lambda _operation, _key: None
    for _ in range(6):
        world.run()
    assert world.started, "another node, or the same one later"
    assert world.roll is not None
    assert len(world.roll.moving) == 1


def test_a_group_that_cannot_be_read_is_a_problem_of_this_group() -> None:
    world = World(unreachable=True)
    (problem,) = world.run().problems
    assert "replace drifted nodes of group web" in problem.message


@pytest.mark.parametrize(
    ("one", "image", "group", "why"),
    [
        ({}, "ami-2", {}, "launched from version 1, and its group launches from version 2"),
        ({"version": "2"}, "ami-1", {}, "It runs ami-1, and its group launches ami-2 now."),
        ({"template": "lt-0"}, "ami-2", {}, "version 1 of launch template lt-0"),
        ({"version": "2", "instance_type": "m4.large"}, "ami-2", {}, "its group launches only"),
        (
            {"template": "", "version": "", "configuration": "lc-1"},
            "",
            {},
            "launch configuration lc-1, and its group launches from version 2",
        ),
        (
            {"template": "", "version": "", "configuration": "lc-1"},
            "ami-1",
            {"template": None, "configuration": "lc-2"},
            "launch configuration lc-1",
        ),
        ({"version": "2"}, "ami-2", {}, None),
        ({"version": "$Latest"}, "ami-2", {}, None),
        ({"template": "", "version": ""}, "ami-2", {}, None),
        ({"version": "2"}, "", {}, None),
        ({"version": "7"}, "ami-7", {"own": {"m5.large": Template("lt-1", "", "7")}}, None),
        ({"version": "2", "instance_type": "x1.large"}, "ami-2", {"types": frozenset()}, None),
    ],
)
def test_a_node_drifts_by_what_aws_says_and_by_nothing_else(
    one: dict[str, Any], image: str, group: dict[str, Any], why: str | None
) -> None:
    usual = GroupNow("web", 1, 2, (), NEW, types=frozenset({"m5.large"}))
    found = drift_of_member(replace(member(1), **one), image, replace(usual, **group))
    assert (why is None and not found) or (why is not None and why in " ".join(found))


@given(
    versions=st.lists(st.sampled_from([OLD, NEW]), min_size=1, max_size=8),
    down=st.sets(st.integers(1, 8)),
    limit=st.sampled_from(["1", "2", "5", "34%", "100%"]),
    room=st.integers(0, 4),
    churn=st.integers(0, 4),
)
@settings(max_examples=60, deadline=None)
def test_no_more_nodes_are_unavailable_than_allowed(
    versions: list[Template], down: set[int], limit: str, room: int, churn: int
) -> None:
    drift = GroupDrift(automatic=True, max_unavailable=limit)
    world = World(policy=ClusterPolicy(group_drift=drift, churn=ChurnCap(0, churn)))
    members = tuple(member(number, one) for number, one in enumerate(versions, 1))
    world.group = replace(
        world.group, members=members, desired=len(members), maximum=len(members) + room
    )
    world.down = {facts(number).instance for number in down}
    begun = {one.instance for one in world.run().begun}
    outdated = {one.instance for one in members if one.version == OLD.version}
    unready = world.down & {one.instance for one in members}
    assert begun <= outdated - unready
    assert len(begun) + len(unready) <= max(drift.limit(len(members)), len(unready))
    assert len(begun) <= min(room, churn)
    if outdated and not begun:
        assert world.waits()
