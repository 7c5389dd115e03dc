"""A retirement whose surroundings refuse: it is paced, it ends, and it says why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from leeway.cloud.ports import CloudRefused, Known, LifecycleActionOver, RecordChanged
from leeway.cluster.ports import Attachment, ClusterRefused, Fleet, Marks, Node, NodeEvent
from leeway.drain.answers import Response
from leeway.drain.pods import Pod
from leeway.hooks import HookResult
from leeway.notices import LifecycleHook, NoticeKind
from leeway.outcome import Outcome, Result
from leeway.records import Retirement
from leeway.replacement import GroupFacts
from leeway.retirement import Order, RetireNode

from tests.layer.test_records import FACTS, HOOK, NOTICED, take

ORDER = Order(FACTS.instance, FACTS.cluster, 1)
GROUP = GroupFacts("ng", "InService", False, False, frozenset(), ())


@dataclass
class World:
    """All that a retirement meets, in one place; time passes only when it sleeps or waits."""

    record: Retirement
    lists: bool = True
    detaches: bool = True
    refusals: int = 0
    answers: int = 0
    timeout: int = 300
    beaten: list[datetime] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    announces: bool = True
    now_: datetime = NOTICED
    operations: int = 0
    asked: int = 0
    told: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    # Clock
    def now(self) -> datetime:
        self.now_ += timedelta(milliseconds=1)
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=max(0.0, seconds))

    # Steps
    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self.operations += 1
        return work()

    def wait(self, name: str, seconds: int) -> None:
        self.operations += 1
        self.sleep(seconds)

    # Records
    def retirement(self, instance: str) -> Retirement:
        return self.record

    def known(self, instance: str) -> Known:
        return Known(self.record)

    def write(self, record: Retirement) -> None:
        if record.version != self.record.version + 1:
            raise RecordChanged(record.instance)
        self.record = record

    # Groups and Instances
    def facts(self, instance: str) -> GroupFacts:
        return GROUP

    def describe(self, instance: str) -> None:
        return None

    def tag_as_detached(self, instance: str, group: str) -> None:
        self.asked += 1

    def detach(self, instance: str, group: str) -> None:
        if not self.detaches:
            raise CloudRefused("AccessDenied: autoscaling:DetachInstances")

    def terminate_in_group(self, instance: str) -> None:
        raise AssertionError("this group has no hook")

    def heartbeat_timeout(self, hook: LifecycleHook) -> int:
        return self.timeout

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        self._look_whether_it_waits(hook)
        self.beaten.append(self.now_)

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        self.answers += 1
        if self.answers <= self.refusals:
            raise CloudRefused("AccessDenied: autoscaling:CompleteLifecycleAction")
        assert result is HookResult.CONTINUE
        self._look_whether_it_waits(hook)
        self.ended.append(hook.name)

    def _look_whether_it_waits(self, hook: LifecycleHook) -> None:
        alive = (self.beaten or [NOTICED])[-1] + timedelta(seconds=self.timeout)
        end = NOTICED + min(timedelta(hours=48), 100 * timedelta(seconds=self.timeout))
        if self.now_ > min(alive, end) or hook.name in self.ended:
            raise LifecycleActionOver("No active Lifecycle Action found")

    def terminate(self, instance: str) -> None:
        self.ended.append("terminated")

    # Announcements and Telemetry
    def announce(self, detail_type: str, detail: str) -> None:
        if not self.announces:
            raise CloudRefused("AccessDenied: events:PutEvents")

    def retired(self, outcome: Outcome) -> None:
        self.told.append(outcome.sentence)

    def not_told(self, outcome: Outcome, problem: str) -> None:
        self.told.append(problem)

    # Cluster
    def node_of(self, instance: str, names: tuple[str, ...]) -> Node:
        return Node("node-1", "uid", f"aws:///z/{instance}", False, True, {})

    def node(self, name: str) -> None:
        return None

    def cordon(self, node: str, marks: Marks | None) -> None:
        """Always possible here."""

    def release(self, node: str, generation: int | None = None) -> bool:
        return False

    def leave_load_balancers(self, node: str) -> bool:
        return True

    def mark_out_of_service(self, node: str, uid: str) -> bool:
        return True

    def delete_node(self, name: str, uid: str) -> bool:
        return True

    def nodes(self) -> list[Node]:
        return []

    def fleet(self) -> Fleet:
        return Fleet(frozenset(), frozenset(), frozenset())

    def attachments_on(self, node: str) -> list[Attachment]:
        return []

    def pods_on(self, node: str) -> list[Pod]:
        if not self.lists:
            raise ClusterRefused(
                '403: pods is forbidden: User "leeway" cannot list resource "pods"'
            )
        return self.pods

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        causes = (("DisruptionBudget", "budget web allows none"),)
        return Response(429, reason="TooManyRequests", causes=causes)

    def delete(self, pod: Pod, grace: int | None) -> Response:
        self.pods = []
        return Response(200)

    def label(self, node: str, labels: Mapping[str, str]) -> None:
        raise AssertionError("a node on its way out is asked to have no labels")

    def note(self, event: NodeEvent) -> None:
        self.told.append(event.reason)


def world(kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, **changes: Any) -> World:
    hook = HOOK if kind is NoticeKind.TERMINATE_HOOK else None
    return World(take(None, kind, "n-1", hook=hook).record, **changes)


def retire(world: World) -> Outcome:
    use_case = RetireNode(world, world, world, world, lambda _: world, world, world)
    outcome = use_case.retire(ORDER, world)
    assert outcome is not None
    return outcome


def test_all_is_well_in_a_world_that_refuses_nothing() -> None:
    calm = world()
    outcome = retire(calm)
    assert (outcome.result, outcome.replacement) == (Result.DRAINED, "detach")
    assert calm.ended == ["terminated"]
    assert not outcome.troubled


def test_a_replacement_that_is_refused_is_tried_at_a_pace_and_then_said() -> None:
    refusing = world(NoticeKind.REBALANCE, detaches=False)
    outcome = retire(refusing)
    assert outcome.replacement == "failed"
    assert "AccessDenied" in outcome.replacement_reason
    assert outcome.troubled
    assert refusing.operations < 500, "a durable execution has room for 3,000"
    assert refusing.asked < 200
    assert refusing.ended == []


@pytest.mark.parametrize("kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.TERMINATE_HOOK])
def test_pods_that_may_not_be_listed_end_the_retirement_at_its_deadline_with_the_reason(
    kind: NoticeKind,
) -> None:
    blind = world(kind, lists=False)
    outcome = retire(blind)
    assert outcome.result is Result.INCOMPLETE
    assert "cannot list resource" in outcome.reason
    assert outcome.deadline is not None
    assert outcome.ended_at is not None
    assert timedelta(0) <= outcome.ended_at - outcome.deadline < timedelta(seconds=15)
    assert blind.operations < 2500
    assert any("cannot list resource" in line for line in blind.told)


def test_a_hook_that_may_not_be_answered_is_said_and_holds_up_nothing_else() -> None:
    refusing = world(NoticeKind.TERMINATE_HOOK, refusals=3)
    outcome = retire(refusing)
    assert outcome.result is Result.DRAINED
    assert any("CompleteLifecycleAction" in said for said in outcome.refused)
    assert outcome.troubled
    assert refusing.told[-1] == "LeewayRetired"
    assert refusing.ended == [HOOK.name], "it is answered when the rights are there"


def test_an_answer_that_stays_refused_is_tried_until_the_hook_has_run_out_by_itself() -> None:
    refusing = world(NoticeKind.TERMINATE_HOOK, refusals=1_000, timeout=7200)
    retire(refusing)
    assert refusing.now_ - NOTICED > timedelta(seconds=7200)
    assert refusing.operations < 300


POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


@pytest.mark.parametrize("timeout", [30, 45, 300, 1728, 3600, 7200])
def test_a_drain_that_a_budget_blocks_for_48_hours_keeps_its_hook_waiting(timeout: int) -> None:
    blocked = world(NoticeKind.TERMINATE_HOOK, timeout=timeout, pods=[POD])
    in_48_hours = NOTICED + timedelta(hours=48)
    blocked.record = blocked.record.model_copy(update={"deadline": in_48_hours})
    outcome = retire(blocked)
    assert outcome.ended_at is not None
    waited = outcome.ended_at - NOTICED
    longest = min(timedelta(hours=48), 100 * timedelta(seconds=timeout))
    assert longest - timedelta(minutes=1) < waited < longest, "and the pod went just in time"
    assert outcome.deleted == 1
    assert outcome.result is Result.DRAINED
    assert blocked.ended == [HOOK.name], "the hook was still there to be answered"
    assert blocked.operations < 2500, "a durable execution has room for 3,000"
    beats = [b - a for a, b in pairwise([NOTICED, *blocked.beaten])]
    assert max(beats) < timedelta(seconds=timeout)
    assert len(beats) < 210, "no more than the hook's own timeout asks for"


def test_an_interruption_that_is_over_in_seconds_sends_no_heartbeat() -> None:
    quick = world(NoticeKind.SPOT_INTERRUPTION)
    retire(quick)
    assert quick.beaten == []


def test_an_event_that_may_not_be_put_takes_neither_log_line_nor_kubernetes_event_with_it() -> None:
    silent = world(announces=False)
    retire(silent)
    assert [line.split(":")[0] for line in silent.told] == [
        "spot-interruption",
        "no Leeway event",
        "LeewayRetired",
    ]
