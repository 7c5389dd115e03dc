"""An admission among surroundings that come late, fail or refuse: it ends right, and says why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.admission.admit_node import AdmitNode
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.readiness import AdmissionResult
from leeway.admission.record import Admission
from leeway.execution.attempt import AttemptId, Phase
from leeway.notices import LifecycleHook
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    HookResult,
    HookSettings,
    LifecycleActionOver,
)
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable, NodeEvent
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.ports.table import RecordChanged

from tests.admission.admissions import ask
from tests.retirement.retirements import FACTS, NOTICED

ORDER = AttemptId(FACTS.instance, FACTS.cluster, 1)
NODE = Node(FACTS.private_dns_name, "uid", f"aws:///us-east-1a/{FACTS.instance}", False, True, {})
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass
class World:
    """All that an admission meets; what is to happen at a time stands in `news`."""

    record: Admission
    nodes: dict[str, Node] = field(default_factory=dict)
    news: dict[datetime, Callable[["World"], None]] = field(default_factory=dict)
    makers: tuple[str, ...] = ()
    types_fail: list[Exception] = field(default_factory=list)
    down: bool = False
    labelling: bool = True
    timeout: int = 300
    has_target: bool = False
    refusals: int = 0
    announces: bool = True
    now_: datetime = NOTICED
    operations: int = 0
    searches: int = 0
    beaten: list[datetime] = field(default_factory=list)
    answers: list[HookResult] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    # Clock
    def now(self) -> datetime:
        self.now_ += timedelta(milliseconds=1)
        for at in [at for at in self.news if at <= self.now_]:
            self.news.pop(at)(self)
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=max(0.0, seconds))

    # Steps: as the durable engine does, a step that fails is tried again.
    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self.operations += 1
        for _ in range(100):
            try:
                return work()
            except (ClusterUnavailable, CloudUnavailable):
                self.sleep(30)
        raise AssertionError(f"{name} failed a hundred times")

    def wait(self, name: str, seconds: int) -> None:
        self.operations += 1
        self.sleep(seconds)

    # Arrivals
    def arrival(self, instance: str) -> Admission:
        return self.record

    def write(self, record: Admission) -> None:
        if record.version != self.record.version + 1:
            raise RecordChanged(record.instance)
        self.record = record

    # InstanceTypes and Groups
    def accelerators(self, instance_type: str) -> tuple[str, ...]:
        if self.types_fail:
            raise self.types_fail.pop()
        return self.makers

    def hook_settings(self, hook: LifecycleHook) -> HookSettings:
        return HookSettings(self.timeout, self.has_target)

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        self._look_whether_it_waits()
        self.beaten.append(self.now_)

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        if self.refusals:
            self.refusals -= 1
            raise CloudRefused("AccessDenied: autoscaling:CompleteLifecycleAction")
        self._look_whether_it_waits()
        self.answers.append(result)

    def _look_whether_it_waits(self) -> None:
        alive = (self.beaten or [NOTICED])[-1] + self.timeout * SECOND
        if self.now_ > alive or self.answers:
            raise LifecycleActionOver("No active Lifecycle Action found")

    # Cluster
    def node(self, name: str) -> Node | None:
        self._look_whether_it_is_up()
        return self.nodes.get(name)

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        self._look_whether_it_is_up()
        self.searches += 1
        return next((n for n in self.nodes.values() if n.runs_on(instance)), None)

    def label(self, node: str, labels: Mapping[str, str]) -> None:
        if not self.labelling:
            raise ClusterRefused('403: cannot patch resource "nodes"')
        self.nodes[node] = replace(self.nodes[node], labels={**labels})

    def write_event(self, event: NodeEvent) -> None:
        self._look_whether_it_is_up()
        self.events.append((event.reason, event.message))

    def _look_whether_it_is_up(self) -> None:
        if self.down:
            raise ClusterUnavailable("connection refused")

    # Announcements and Telemetry
    def publish(self, detail_type: str, detail: str) -> None:
        if not self.announces:
            raise CloudRefused("AccessDenied: events:PutEvents")
        self.told.append(detail_type)

    def admitted(self, outcome: AdmissionOutcome) -> None:
        self.told.append(outcome.sentence)

    def admission_not_reported(self, outcome: AdmissionOutcome, problem: str) -> None:
        self.told.append(problem)


def world(**changes: Any) -> World:
    return World(ask(None, "n-1").record, **changes)


def joins(node: Node = NODE) -> Callable[[World], None]:
    def join(world: World) -> None:
        world.nodes[node.name] = node

    return join


def admit(world: World) -> AdmissionOutcome:
    seen: Any = world
    use_case = AdmitNode(world, seen, world, world, lambda _: seen, world, world)
    outcome = use_case.admit(ORDER, world)
    assert outcome is not None
    return outcome


def test_a_node_that_joins_and_becomes_ready_is_admitted_at_once() -> None:
    calm = world(
        news={
            NOTICED + 40 * SECOND: joins(replace(NODE, ready=False)),
            NOTICED + 55 * SECOND: joins(),
        }
    )
    outcome = admit(calm)
    assert outcome.result is AdmissionResult.ADMITTED
    assert calm.answers == [HookResult.CONTINUE]
    assert NOTICED + 55 * SECOND <= outcome.ended_at < NOTICED + 62 * SECOND
    assert calm.told == [outcome.sentence, "Leeway Node Admitted"]
    assert calm.events[0][0] == "LeewayAdmitted"
    assert not outcome.troubled
    assert calm.record.phase is Phase.FINISHED
    assert calm.searches == 0, "all nodes are not listed for one that has its instance's name"


def test_an_instance_that_never_joins_is_abandoned_when_its_wait_runs_out_and_not_before() -> None:
    lost = world(timeout=60)
    outcome = admit(lost)
    assert outcome.result is AdmissionResult.NOT_READY
    assert "no node has joined" in outcome.reason
    assert lost.answers == [HookResult.ABANDON]
    assert timedelta(0) <= outcome.ended_at - (NOTICED + 15 * MINUTE) < 5 * SECOND
    assert "Leeway Node Not Admitted" in lost.told
    assert outcome.troubled
    assert max(b - a for a, b in zip(lost.beaten, lost.beaten[1:], strict=False)) < MINUTE
    assert lost.operations < 300


def test_a_gpu_node_without_its_device_plugin_is_abandoned_with_the_likely_cause() -> None:
    bare = world(makers=("NVIDIA",), nodes={NODE.name: NODE})
    outcome = admit(bare)
    assert outcome.result is AdmissionResult.NOT_READY
    assert "nvidia.com/gpu is not allocatable: the NVIDIA device plugin" in outcome.reason
    assert bare.events == [("LeewayNotAdmitted", outcome.sentence)]
    assert bare.answers == [HookResult.ABANDON]


def test_a_gpu_node_is_admitted_when_its_device_comes() -> None:
    with_gpu = replace(NODE, devices={"nvidia.com/gpu": 4})
    slow = world(makers=("NVIDIA",), nodes={NODE.name: NODE})
    slow.news[NOTICED + 4 * MINUTE] = joins(with_gpu)
    outcome = admit(slow)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at >= NOTICED + 4 * MINUTE


def test_a_cluster_that_cannot_be_read_never_has_a_node_abandoned() -> None:
    def heal(world: World) -> None:
        world.down = False

    dark = world(down=True, nodes={NODE.name: NODE}, news={NOTICED + 3 * 60 * MINUTE: heal})
    outcome = admit(dark)
    assert outcome.result is AdmissionResult.ADMITTED
    assert dark.answers == [HookResult.CONTINUE]
    assert outcome.ended_at > NOTICED + 3 * 60 * MINUTE


def test_a_cluster_that_stays_dark_is_waited_for_as_long_as_the_hook_and_nothing_is_answered() -> (
    None
):
    dark = world(down=True, timeout=3600)
    outcome = admit(dark)
    assert outcome.result is AdmissionResult.NOT_WAITED_FOR
    assert dark.answers == []
    assert timedelta(hours=47) < outcome.ended_at - NOTICED <= timedelta(hours=48, minutes=6)
    assert dark.operations < 2500, "a durable execution has room for 3,000"


def test_what_looked_missing_is_looked_at_again_before_it_is_abandoned() -> None:
    late = world()
    # It joins just after the last look, while the function is away for an hour.
    deadline = NOTICED + 15 * MINUTE

    class Away(World):
        def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
            if name.startswith("finish"):
                self.timeout = 7200
                self.nodes[NODE.name] = NODE
            return super().run(name, kind, work)

    late = Away(ask(None, "n-1").record)
    outcome = admit(late)
    assert outcome.ended_at >= deadline
    assert outcome.result is AdmissionResult.ADMITTED
    assert late.answers == [HookResult.CONTINUE]


def test_a_cluster_that_goes_dark_just_before_an_answer_has_the_node_looked_at_again() -> None:
    class Darkening(World):
        def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
            if name.startswith("finish") and not self.nodes:
                self.down = True
                self.nodes[NODE.name] = NODE
                self.news[self.now_ + 60 * MINUTE] = lambda world: setattr(world, "down", False)
            return super().run(name, kind, work)

    dark = Darkening(ask(None, "n-1").record)
    outcome = admit(dark)
    assert outcome.result is AdmissionResult.ADMITTED
    assert dark.answers == [HookResult.CONTINUE], "the hook was kept waiting meanwhile"
    assert outcome.ended_at > NOTICED + 75 * MINUTE


def test_a_node_of_another_name_is_found_among_all_nodes() -> None:
    named = replace(NODE, name="custom-hostname")
    odd = world(nodes={named.name: named})
    outcome = admit(odd)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.node == "custom-hostname"
    assert odd.searches == 1


def test_a_node_of_the_name_on_another_instance_is_not_the_one() -> None:
    other = replace(NODE, provider_id="aws:///us-east-1a/i-0ffffffffffffffff")
    assert admit(world(nodes={NODE.name: other})).result is AdmissionResult.NOT_READY


def test_labels_are_put_on_and_startup_taints_waited_for() -> None:
    agent = Taint("example.com/agent", "", "NoSchedule")
    asked = ask(None, "n-1", labels={"pool": "blue"}, startup_taints=("example.com/agent",))
    tainted = World(asked.record, {NODE.name: replace(NODE, taints=(agent,))})
    tainted.news[NOTICED + MINUTE] = lambda world: world.nodes.update(
        {NODE.name: replace(world.nodes[NODE.name], taints=())}
    )
    outcome = admit(tainted)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at >= NOTICED + MINUTE
    assert tainted.nodes[NODE.name].labels == {"pool": "blue"}


def test_labels_that_are_refused_are_the_reason() -> None:
    asked = ask(None, "n-1", labels={"pool": "blue"}).record
    outcome = admit(World(asked, {NODE.name: NODE}, labelling=False))
    assert outcome.result is AdmissionResult.NOT_READY
    assert "cannot patch" in outcome.reason


def test_a_hook_that_others_answered_ends_the_admission() -> None:
    answered = world(
        news={NOTICED + MINUTE: lambda world: world.answers.append(HookResult.ABANDON)}
    )
    outcome = admit(answered)
    assert outcome.result is AdmissionResult.NOT_WAITED_FOR
    assert len(answered.answers) == 1
    assert outcome.ended_at < NOTICED + 4 * MINUTE


def test_an_answer_that_is_refused_is_said_and_tried_until_it_is_taken() -> None:
    refusing = world(nodes={NODE.name: NODE}, refusals=3)
    outcome = admit(refusing)
    assert any("CompleteLifecycleAction" in said for said in outcome.refused)
    assert outcome.troubled
    assert refusing.answers == [HookResult.CONTINUE]


def test_a_hook_that_notifies_a_target_of_its_own_is_left_to_that() -> None:
    ready = world(nodes={NODE.name: NODE}, has_target=True)
    assert admit(ready).result is AdmissionResult.ADMITTED
    late = world(has_target=True)
    assert admit(late).result is AdmissionResult.NOT_WAITED_FOR
    for theirs in (ready, late):
        assert (theirs.answers, theirs.beaten) == ([], [])


def test_an_admission_notes_when_it_ended() -> None:
    ready = world(nodes={NODE.name: NODE})
    outcome = admit(ready)
    assert ready.record.ended_at is not None
    assert NOTICED < ready.record.ended_at <= outcome.ended_at


def test_a_newer_attempt_takes_over_and_nothing_is_answered() -> None:
    newer = world(nodes={NODE.name: NODE})
    newer.record = newer.record.model_copy(update={"attempt": 2})
    seen: Any = newer
    use_case = AdmitNode(newer, seen, newer, newer, lambda _: seen, newer, newer)
    assert use_case.admit(ORDER, newer) is None
    assert newer.answers == []


def test_an_instance_without_a_hook_that_could_not_be_seen_is_said_to_be_unseen() -> None:
    asked = ask(None, "n-1", hook=None).record
    outcome = admit(World(asked, down=True))
    assert outcome.result is AdmissionResult.UNSEEN
    assert outcome.troubled


@pytest.mark.parametrize(
    "failures",
    [[CloudUnavailable("Throttling")] * 3, [CloudRefused("InvalidInstanceType")]],
)
def test_a_type_that_ec2_does_not_tell_about_at_once_holds_nothing_up_for_long(
    failures: list[Exception],
) -> None:
    outcome = admit(world(nodes={NODE.name: NODE}, types_fail=failures))
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at < NOTICED + MINUTE


def test_an_event_that_may_not_be_put_takes_neither_log_line_nor_kubernetes_event_with_it() -> None:
    silent = world(nodes={NODE.name: NODE}, announces=False)
    admit(silent)
    assert [line.split(":")[0].split()[-1] for line in silent.told] == ["admitted", "event"]
    assert [reason for reason, _ in silent.events] == ["LeewayAdmitted"]


def test_an_instance_that_never_joins_goes_into_its_warm_pool_and_is_not_abandoned() -> None:
    bound = World(ask(None, "n-1", into_pool=True).record)
    outcome = admit(bound)
    assert outcome.result is AdmissionResult.POOLED
    assert bound.answers == [HookResult.CONTINUE]
    assert outcome.ended_at >= NOTICED + 15 * MINUTE, "it may still be starting up"
    assert "Leeway Node Pooled" in bound.told
    assert not outcome.troubled


def test_a_cluster_that_is_dark_keeps_no_instance_out_of_its_warm_pool() -> None:
    dark = World(ask(None, "n-1", into_pool=True).record, down=True)
    assert admit(dark).result is AdmissionResult.POOLED
    assert dark.answers == [HookResult.CONTINUE]


def test_a_node_that_joins_on_its_way_into_the_warm_pool_need_not_wait() -> None:
    early = World(ask(None, "n-1", into_pool=True).record, nodes={NODE.name: NODE})
    assert admit(early).result is AdmissionResult.ADMITTED
    assert early.now_ < NOTICED + MINUTE
