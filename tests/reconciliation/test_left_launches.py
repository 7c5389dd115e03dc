"""Launches that were left undone: reconcile continues them, and removes unused templates."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.admission.record import (
    ADMISSION,
    Admission,
    AdmissionRequest,
    AdmissionResult,
    Launch,
    apply_request,
)
from leeway.execution.attempt import Phase
from leeway.instances.facts import InstanceFacts, ObservedInstance, Owner, OwnerKind
from leeway.launch.fleets import FleetInstance, FleetRequest
from leeway.launch.intent import INTENT, INTENT_BY_HAND, LaunchIntent
from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import LaunchTemplate, OwnedTemplate
from leeway.notices import NoticeKind
from leeway.pool_pauses import NODES_NEVER_JOINED, PoolRecord
from leeway.pool_pauses import POOL as POOL_RECORD
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.reasons import Reason
from leeway.reconciliation.left_launches import (
    MOST_DELETED,
    LeftLaunches,
    may_be_left,
    unused_templates,
)
from leeway.retirement.record import RETIREMENT, Retirement, ReturnTerms
from leeway.selection.labels import INITIALIZED, LAUNCHED, REGISTERED
from leeway.table import Item, Key

from tests.fakes.clock import StillClock
from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.fakes.functions import Starts
from tests.fakes.launch_templates import LaunchTemplatesInMemory
from tests.fakes.table import Stored, TableInMemory
from tests.launch.launching import NOW

MINUTE = timedelta(minutes=1)
NAME = "i-0123456789abcdef0"
POOL = Taint("team", "a", "NoSchedule")
NOTES = {"karpenter.sh/do-not-disrupt": "true"}
FACTS = InstanceFacts(
    instance=NAME,
    cluster="prod",
    private_dns_name="ip-10-0-0-1.ec2.internal",
    zone="us-east-1a",
    instance_type="m5.large",
    capacity_type="spot",
    owner=Owner(OwnerKind.LEEWAY, "web"),
)
RUNS = ObservedInstance(FACTS, "running", NOW, "", "intent-1")
JOINED = replace(RUNS, facts=FACTS.model_copy(update={"joined": True, "from_fleet": True}))
WRITTEN = LaunchIntent(
    id="intent-1",
    cluster="prod",
    pool="web",
    labels_for_admission={"team": "a"},
    annotations=NOTES,
    taints_for_admission=(POOL,),
    startup_taints=("agent",),
    promised=("smarter-devices/fuse",),
    templates=("lt-1",),
    token="t",
    created_at=NOW,
    request=None,
    instances=(FleetInstance(NAME, "m5.large", "us-east-1a", "spot"),),
)


class World(StillClock):
    """The dependencies in memory, at a time after the launch."""

    def __init__(self, after: timedelta, *intents: LaunchIntent) -> None:
        super().__init__(NOW + after)
        self.table = TableInMemory(self)
        self.table.change(INTENT, put=intents)
        self.starts, self.ends = Starts(), Starts()
        self.nodes = LeftoversInMemory()
        self.templates = LaunchTemplatesInMemory()
        self.broken: set[str] = set()
        self.table.before = self._check_broken
        self.left = LeftLaunches(self.table, self.starts, self.ends, self.templates, self)

    def _check_broken(self, operation: str, key: Key) -> None:
        if any(instance in key[0] for instance in self.broken):
            raise CloudUnavailable("throttled")

    @property
    def admissions(self) -> Stored[Admission]:
        return self.table.records(ADMISSION)

    @property
    def retirements(self) -> Stored[Retirement]:
        return self.table.records(RETIREMENT)

    def check(self, *instances: ObservedInstance) -> tuple[list[str], list[str]]:
        """The codes of findings and of problems."""
        found = self.left.check_instances("prod", instances or (RUNS,))
        return [one.reason.code for one in found.findings], [one.code for one in found.problems]

    def check_nodes(self, *instances: ObservedInstance) -> tuple[list[str], list[str]]:
        """The codes of findings and of problems about instances without a Node."""
        found = self.left.check_nodes("prod", instances or (JOINED,), self.nodes)
        return [one.reason.code for one in found.findings], [one.code for one in found.problems]

    def check_late(self, *instances: ObservedInstance) -> tuple[list[str], list[str]]:
        """The codes of findings and of problems about nodes that are not initialized."""
        found = self.left.check_late_nodes("prod", instances or (JOINED,), self.nodes)
        return [one.reason.code for one in found.findings], [one.code for one in found.problems]

    def admission(self, **fields: Any) -> None:
        """Store an admission of the launch."""
        wanted = AdmissionRequest(
            "launch-intent-1",
            NOW,
            NOW + 15 * MINUTE,
            Reason("NodeLaunched", "Launched."),
            launch=Launch(intent="intent-1", pool="web", at=NOW),
            labels={"team": "a", "size": "large"},
            annotations=NOTES,
            taints=(POOL,),
            startup_taints=("agent",),
            promised=("smarter-devices/fuse",),
        )
        record = apply_request(None, wanted, FACTS).record.model_copy(update=fields)
        self.admissions[NAME] = record


def stored(world: World) -> Admission:
    return world.admissions[NAME]


def test_an_instance_whose_admission_was_never_started_is_admitted() -> None:
    world = World(6 * MINUTE, WRITTEN)
    assert world.check() == (["LaunchNotAdmitted"], [])
    assert world.starts.started == [(NAME, "prod", 1)]
    record = stored(world)
    assert record.launch == Launch(intent="intent-1", pool="web", at=NOW)
    assert record.deadline == NOW + 15 * MINUTE
    assert record.labels == {
        "team": "a",
        "karpenter.sh/nodepool": "web",
        "karpenter.sh/capacity-type": "spot",
    }
    assert (record.taints, record.startup_taints) == ((POOL,), ("agent",))
    assert record.annotations == NOTES
    assert record.promised == ("smarter-devices/fuse",)
    assert world.check() == ([], []), "the admission runs"


def test_an_instance_of_an_intent_without_an_answer_is_admitted() -> None:
    lost = WRITTEN.model_copy(update={"instances": (), "request": FleetRequest("spot", 1, (), {})})
    world = World(6 * MINUTE, lost)
    assert world.check() == (["LaunchNotAdmitted"], [])


def test_nothing_is_done_while_the_launch_itself_may_start_the_admission() -> None:
    world = World(4 * MINUTE, WRITTEN)
    assert world.check() == ([], [])
    assert world.starts.started == []


def test_an_admission_that_died_is_continued_with_what_it_knew() -> None:
    world = World(26 * MINUTE, WRITTEN)
    world.admission()
    assert world.check() == (["LaunchNotAdmitted"], [])
    record = stored(world)
    assert (record.attempt, record.phase) == (2, Phase.NOTICED)
    assert record.labels == {"team": "a", "size": "large"}
    assert (record.taints, record.startup_taints) == ((POOL,), ("agent",))
    assert record.annotations == NOTES
    assert record.promised == ("smarter-devices/fuse",)
    assert record.launch == Launch(intent="intent-1", pool="web", at=NOW)
    assert record.deadline == world.time, "the rule applies at once"
    assert world.check() == ([], []), "not every minute"
    world.time += 11 * MINUTE
    assert world.check() == (["LaunchNotAdmitted"], [])
    assert stored(world).attempt == 3


def test_an_admission_that_can_still_end_is_not_started_again() -> None:
    world = World(24 * MINUTE, WRITTEN)
    world.admission()
    assert world.check() == ([], [])


@pytest.mark.parametrize("result", [AdmissionResult.NOT_READY, AdmissionResult.TERMINATED])
def test_an_admission_that_ended_without_a_node_is_repeated_after_an_hour(
    result: AdmissionResult,
) -> None:
    world = World(60 * MINUTE, WRITTEN)
    ended = {"phase": Phase.FINISHED, "ended_at": NOW + 15 * MINUTE, "result": result}
    world.admission(**ended)
    assert world.check() == ([], [])
    world.time = NOW + 75 * MINUTE
    assert world.check() == (["LaunchNotAdmitted"], [])
    assert stored(world).attempt == 2


def test_an_admitted_instance_is_left_alone() -> None:
    world = World(timedelta(days=2), WRITTEN)
    ended = {"phase": Phase.FINISHED, "ended_at": NOW, "result": AdmissionResult.ADMITTED}
    world.admission(**ended)
    assert world.check() == ([], [])


ANOTHER = WRITTEN.model_copy(
    update={"instances": (FleetInstance("i-0fffffffffffffff0", "m5.large", "z", "spot"),)}
)


@pytest.mark.parametrize(
    ("observed", "intents"),
    [
        (replace(RUNS, intent=""), (WRITTEN,)),
        (replace(RUNS, intent="made-up"), (WRITTEN,)),
        (RUNS, ()),
        (RUNS, (ANOTHER,)),
        (RUNS, (WRITTEN.model_copy(update={"pool": "api"}),)),
        (replace(RUNS, launched_at=NOW - 6 * MINUTE), (WRITTEN,)),
    ],
    ids=["no tag", "unknown intent", "no intent", "not in it", "another pool", "older"],
)
def test_an_instance_that_no_launch_names_is_reported_and_not_admitted(
    observed: ObservedInstance, intents: tuple[LaunchIntent, ...]
) -> None:
    world = World(16 * MINUTE, *intents)
    assert world.check(observed) == ([], ["LaunchUnknown"])
    assert (world.starts.started, dict(world.admissions)) == ([], {})


@pytest.mark.parametrize("observed", [RUNS, JOINED], ids=["starts", "has joined"])
def test_an_instance_that_a_person_launched_is_admitted_within_a_minute(
    observed: ObservedInstance,
) -> None:
    world = World(MINUTE)
    world.table.put(INTENT_BY_HAND, WRITTEN)
    assert world.check(observed) == (["LaunchNotAdmitted"], [])
    assert world.starts.started == [(NAME, "prod", 1)]
    assert stored(world).launch == Launch(intent="intent-1", pool="web", at=NOW)
    assert world.check(observed) == ([], [])


def test_a_person_can_have_no_instance_of_another_cluster_admitted() -> None:
    world = World(MINUTE)
    posing = {"cluster": "staging", "labels_for_admission": {"team": "evil"}}
    world.table.put(INTENT_BY_HAND, WRITTEN.model_copy(update=posing))
    for cluster in ("prod", "staging"):
        found = world.left.check_instances(cluster, (RUNS,))
        assert (found.findings, found.problems) == ((), ())
    assert (world.starts.started, dict(world.admissions)) == ([], {})


def test_an_instance_that_no_launch_names_is_not_reported_while_it_may_be_new() -> None:
    assert World(14 * MINUTE).check() == ([], [])


@pytest.mark.parametrize(
    "observed",
    [
        replace(RUNS, state="terminated"),
        replace(RUNS, group="ng"),
        replace(RUNS, facts=FACTS.model_copy(update={"joined": True})),
        replace(RUNS, facts=FACTS.model_copy(update={"owner": Owner(OwnerKind.KARPENTER, "x")})),
        replace(RUNS, launched_at=NOW - timedelta(days=30)),
    ],
)
def test_instances_that_are_not_left_are_not_read(observed: ObservedInstance) -> None:
    assert not may_be_left(observed, NOW + 30 * MINUTE)
    world = World(30 * MINUTE)
    world.broken.add(NAME)
    assert world.check(observed) == ([], [])


def test_an_error_about_one_instance_hides_no_other() -> None:
    other = "i-0000000000000000a"
    world = World(6 * MINUTE, WRITTEN)
    world.broken.add(other)
    unread = replace(RUNS, facts=FACTS.model_copy(update={"instance": other}))
    assert world.check(unread, RUNS) == (["LaunchNotAdmitted"], ["LaunchedNodeNotAdmitted"])


def unreadable_retirement(world: World, instance: str) -> None:
    key = RETIREMENT.key({"cluster": "prod", "instance": instance})
    world.table.items[key] = Item(key, "{}", version=1)


def test_a_retirement_that_cannot_be_read_hides_no_other_instance() -> None:
    other = joined(1)
    world = World(6 * MINUTE, WRITTEN)
    unreadable_retirement(world, other.facts.instance)
    unread = replace(RUNS, facts=other.facts.model_copy(update={"joined": False}))
    assert world.check(unread, RUNS) == (["LaunchNotAdmitted"], ["LaunchedNodeNotAdmitted"])


def test_a_start_that_fails_is_a_problem_and_is_repeated() -> None:
    world = World(6 * MINUTE, WRITTEN)
    world.starts.failures = 1
    assert world.check() == ([], ["LaunchedNodeNotAdmitted"])
    # The record is written: reconcile repeats starts that were lost.
    assert stored(world).phase is Phase.NOTICED


def owned(number: int, age: timedelta, name: str = "") -> OwnedTemplate:
    return OwnedTemplate(f"lt-{number}", name or named(number), NOW - age)


HOUR = timedelta(hours=1)


def named(number: int) -> str:
    return f"leeway-prod-{number:012x}-0a1b2c"


def test_templates_that_no_intent_of_the_last_hour_names_are_unused() -> None:
    used, old, older = owned(1, 9 * HOUR), owned(2, HOUR), owned(3, 2 * HOUR)
    templates = [used, old, older, owned(4, 59 * MINUTE)]
    assert unused_templates("prod", templates, [WRITTEN], NOW) == (older, old)


@pytest.mark.parametrize(
    "name",
    ["web", "leeway-prod", "leeway-prod-x", f"leeway-prod-2-{1:012x}-0a1b2c", named(1) + "0"],
)
def test_a_template_with_another_form_of_name_is_kept(name: str) -> None:
    assert unused_templates("prod", [owned(2, 9 * HOUR, name)], [], NOW) == ()


def test_one_run_deletes_a_limited_number_of_templates() -> None:
    templates = [owned(n, timedelta(hours=2, minutes=n)) for n in range(MOST_DELETED + 9)]
    found = unused_templates("prod", templates, [], NOW)
    assert len(found) == MOST_DELETED
    assert found[0] == templates[-1]


def test_unused_templates_are_deleted_once_an_hour() -> None:
    world = World(timedelta(0), WRITTEN)
    for number in (1, 2):
        made = LaunchTemplate(named(number), "{}", cluster_tags("prod"))
        world.templates.existing[f"lt-{number}"] = made
        world.templates.created[f"lt-{number}"] = NOW - 2 * HOUR
    assert world.left.delete_unused_templates("prod") == [named(2)]
    assert world.templates.existing.keys() == {"lt-1"}
    world.table.delete(INTENT, cluster="prod", created_at=NOW, id=WRITTEN.id)
    world.time += 30 * MINUTE
    assert world.left.delete_unused_templates("prod") == ()
    world.time += 31 * MINUTE
    assert world.left.delete_unused_templates("prod") == [named(1)]


def test_the_reasons_of_paused_pools_are_read() -> None:
    world = World(timedelta(0))
    reason = NODES_NEVER_JOINED(cluster="prod", pool="web", count=3, instances="i-1")
    world.table.put(POOL_RECORD, PoolRecord(cluster="prod", pool="web", paused=reason))
    world.table.put(POOL_RECORD, PoolRecord(cluster="prod", pool="api"))
    assert world.left.paused_pools("prod") == [reason]


def joined(number: int) -> ObservedInstance:
    """Another instance of the launch that has joined."""
    names = {"instance": f"i-{number:017x}", "private_dns_name": f"ip-10-0-1-{number}"}
    return replace(JOINED, facts=JOINED.facts.model_copy(update=names))


def node_of(one: ObservedInstance, name: str = "") -> Node:
    facts = one.facts
    name = name or facts.private_dns_name
    return Node(name, f"uid-{name}", f"aws:///a/{facts.instance}", False, True, {})


def admitted(world: World, *others: ObservedInstance, **fields: Any) -> None:
    """Store the ended admission of the instance, and of others."""
    ended = {"phase": Phase.FINISHED, "result": AdmissionResult.ADMITTED, "ended_at": NOW}
    world.admission(**{**ended, "facts": JOINED.facts, **fields})
    for one in others:
        copy = stored(world).model_copy(update={"facts": one.facts})
        world.admissions[one.facts.instance] = copy


def test_an_instance_whose_node_was_deleted_is_returned_once() -> None:
    world = World(timedelta(days=3))
    admitted(world)
    assert world.check_nodes() == (["NodeDeleted"], [])
    record = world.retirements[NAME]
    assert record.terms == ReturnTerms(cause="NodeDeleted")
    assert (record.kind, record.noticed_at) == (NoticeKind.CAPACITY_RETURN, world.time)
    assert world.ends.started == [(NAME, "prod", 1)]
    world.time += MINUTE
    assert world.check_nodes() == ([], []), "its retirement runs"


def test_a_retirement_that_cannot_be_read_hides_no_other_deleted_node() -> None:
    world, (unread, *others) = World(timedelta(days=3)), [joined(n) for n in range(4)]
    admitted(world, unread, *others)
    unreadable_retirement(world, unread.facts.instance)
    world.nodes.by_name = {node_of(one).name: node_of(one) for one in others[1:]}
    assert world.check_nodes(unread, *others) == (["NodeDeleted"], ["ReconcileIncomplete"])


def test_a_return_that_ended_is_repeated_after_ten_minutes() -> None:
    world = World(timedelta(days=3))
    admitted(world)
    world.check_nodes()
    ended = {"phase": Phase.FINISHED, "ended_at": world.time}
    record = world.retirements[NAME].model_copy(update=ended)
    world.retirements[NAME] = record
    assert world.check_nodes() == ([], [])
    world.time += 10 * MINUTE
    assert world.check_nodes() == (["NodeDeleted"], [])
    assert world.ends.started[-1] == (NAME, "prod", 2)


@pytest.mark.parametrize("name", ["", FACTS.instance, "chosen-by-a-user"])
def test_an_instance_with_a_node_of_any_name_stays(name: str) -> None:
    world = World(timedelta(days=3))
    admitted(world)
    node = node_of(JOINED, name)
    world.nodes.by_name[node.name] = node
    assert world.check_nodes() == ([], [])


@pytest.mark.parametrize(
    "observed",
    [
        replace(JOINED, state="shutting-down"),
        replace(JOINED, state="stopped"),
        replace(JOINED, group="a-group"),
        replace(JOINED, facts=FACTS.model_copy(update={"from_fleet": True})),
        replace(JOINED, facts=FACTS.model_copy(update={"joined": True})),
        replace(JOINED, facts=JOINED.facts.model_copy(update={"owner": Owner(OwnerKind.NONE, "")})),
    ],
)
def test_only_a_running_instance_of_leeway_that_joined_is_returned(
    observed: ObservedInstance,
) -> None:
    world = World(timedelta(days=3))
    admitted(world)
    world.nodes.down = True  # so the Nodes are not even read
    assert world.check_nodes(observed) == ([], [])


@pytest.mark.parametrize(
    "fields",
    [
        {"launch": None},
        {"launch": Launch(intent="another", pool="web", at=NOW)},
        {"launch": Launch(intent="intent-1", pool="another", at=NOW)},
        {"facts": JOINED.facts.model_copy(update={"cluster": "another"})},
    ],
)
def test_tags_alone_return_no_instance(fields: dict[str, Any]) -> None:
    world = World(timedelta(days=3))
    assert world.check_nodes() == ([], ["LaunchUnknown"])
    admitted(world, **fields)
    assert world.check_nodes() == ([], ["LaunchUnknown"])
    assert not world.ends.started


def test_an_instance_that_is_being_admitted_is_not_returned() -> None:
    world = World(3 * MINUTE)
    world.admission(facts=JOINED.facts)
    assert world.check_nodes() == ([], [])


def test_nothing_is_returned_if_the_nodes_cannot_be_read() -> None:
    world = World(timedelta(days=3))
    admitted(world)
    world.nodes.down = True
    with pytest.raises(ClusterUnavailable):
        world.check_nodes()
    assert not world.retirements


@pytest.mark.parametrize(("without", "of", "returned"), [(1, 1, 1), (1, 2, 1), (2, 4, 2)])
def test_some_instances_without_a_node_are_returned(without: int, of: int, returned: int) -> None:
    world, all_of_them = World(timedelta(days=3)), [joined(n) for n in range(of)]
    admitted(world, *all_of_them)
    world.nodes.by_name = {node_of(one).name: node_of(one) for one in all_of_them[without:]}
    assert world.check_nodes(*all_of_them) == (["NodeDeleted"] * returned, [])


@pytest.mark.parametrize(("without", "of"), [(2, 3), (21, 40)])
def test_an_api_server_that_lost_most_nodes_ends_no_instance(without: int, of: int) -> None:
    world, all_of_them = World(timedelta(days=3)), [joined(n) for n in range(of)]
    admitted(world, *all_of_them)
    world.nodes.by_name = {node_of(one).name: node_of(one) for one in all_of_them[without:]}
    assert world.check_nodes(*all_of_them) == ([], ["NodesVanished"])
    assert not world.retirements


# Nodes that are not initialized.

FUSE = {"smarter-devices/fuse": 1}


def not_admitted(world: World, **fields: Any) -> None:
    """Store an admission that ended because the node was not ready for pods in time."""
    ended = {"result": AdmissionResult.NOT_READY, "ended_at": NOW + 15 * MINUTE}
    admitted(world, **{**ended, **fields})


def late_node(world: World, **fields: Any) -> None:
    """Put the node of the instance into the cluster: by default, it is ready for pods."""
    labels = {LAUNCHED: "true", REGISTERED: "true", **fields.pop("labels", {})}
    node = replace(node_of(JOINED), labels=labels, devices=FUSE)
    world.nodes.by_name[node.name] = replace(node, **fields)


def test_a_node_that_is_ready_after_its_admission_ended_is_admitted_once() -> None:
    world = World(20 * MINUTE)
    not_admitted(world)
    late_node(world)
    assert world.check_late() == (["LaunchNotAdmitted"], [])
    assert world.starts.started == [(NAME, "prod", 2)]
    record = stored(world)
    assert (record.phase, record.deadline) == (Phase.NOTICED, world.time)
    assert record.launch == Launch(intent="intent-1", pool="web", at=NOW)
    world.time += MINUTE
    assert world.check_late() == ([], []), "its admission runs"


@pytest.mark.parametrize(
    "fields",
    [
        {"ready": False},
        {"devices": {}},
        {"taints": (Taint("agent", "", "NoSchedule"),)},
        {"labels": {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}},
        {"labels": {INITIALIZED: "true"}},
        {"labels": {LAUNCHED: ""}},
    ],
    ids=["not Ready", "no device", "startup taint", "no GPU", "initialized", "of others"],
)
def test_no_admission_is_started_for_a_node_that_could_not_be_admitted(
    fields: dict[str, Any],
) -> None:
    world = World(timedelta(days=3))
    not_admitted(world)
    late_node(world, **fields)
    assert world.check_late() == ([], [])
    assert not world.starts.started


def test_an_admission_that_ends_without_success_again_is_repeated_each_hour() -> None:
    world = World(timedelta(hours=2))
    not_admitted(world, attempt=2, ended_at=NOW + timedelta(hours=1, minutes=1))
    late_node(world)
    assert world.check_late() == ([], [])
    world.time += MINUTE
    assert world.check_late() == (["LaunchNotAdmitted"], [])
    assert stored(world).attempt == 3


def test_an_admission_that_died_after_the_node_had_joined_is_continued() -> None:
    world = World(25 * MINUTE)
    world.admission(facts=JOINED.facts)
    late_node(world, ready=False)
    assert world.check_late() == ([], [])
    world.time += MINUTE
    assert world.check_late() == (["LaunchNotAdmitted"], [])


def test_a_node_that_retires_is_not_admitted() -> None:
    world = World(timedelta(days=3))
    admitted(world)
    world.check_nodes()
    not_admitted(world)
    late_node(world)
    assert world.check_late() == ([], [])


@pytest.mark.parametrize(
    "observed",
    [
        replace(JOINED, state="stopped"),
        replace(JOINED, facts=JOINED.facts.model_copy(update={"from_fleet": False})),
        replace(JOINED, launched_at=NOW + 6 * MINUTE),
    ],
    ids=["does not run", "not launched", "may still join"],
)
def test_the_nodes_of_other_instances_are_not_read(observed: ObservedInstance) -> None:
    world = World(20 * MINUTE)
    world.nodes.down = True
    assert world.check_late(observed) == ([], [])
