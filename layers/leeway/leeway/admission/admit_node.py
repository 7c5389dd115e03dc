"""Use case: one new node's way in: joined, Ready, its devices there, its launch hook answered."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.ports import Admissions
from leeway.admission.readiness import (
    AdmissionResult,
    Expected,
    ObservedNode,
    Readiness,
    decide,
    missing,
    pause,
)
from leeway.admission.record import Admission
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId, Phase
from leeway.execution.steps import Steps
from leeway.lifecycle_hooks.actions import HookAnswers, LifecycleActions
from leeway.lifecycle_hooks.held_hooks import HeldHook, joined, next_heartbeat, none_waits
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    Groups,
    HookResult,
    InstanceTypes,
    LeewayEvents,
)
from leeway.ports.kubernetes import Cluster, ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Node
from leeway.ports.table import RecordChanged

LOCK_TRIES = 6

SEARCH_AFTER = timedelta(minutes=2)
SEARCH_EVERY = timedelta(minutes=1)
"""A node that does not have its instance's name is found only by listing all nodes: not before most
have joined, and not at every look."""

_ANSWERS = {
    AdmissionResult.ADMITTED: HookResult.CONTINUE,
    AdmissionResult.POOLED: HookResult.CONTINUE,
    AdmissionResult.NOT_READY: HookResult.ABANDON,
}
_TROUBLE = (ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused)


@dataclass(frozen=True, slots=True)
class NodeLookup:
    """Where an admission stands after one more look.

    There is no record where a newer attempt has taken over. `verdict` ends it; `lacks` is what
    the last successful look found missing, and `problem` why the last look failed. `makers` are of
    the instance type's accelerators, None until EC2 was asked. `rest` is in seconds.
    """

    record: Admission | None
    verdict: Readiness | None = None
    lacks: tuple[str, ...] = ()
    problem: str = ""
    node: str = ""
    node_uid: str = ""
    joined_at: datetime | None = None
    searched_at: datetime | None = None
    makers: tuple[str, ...] | None = None
    held: tuple[HeldHook, ...] = ()
    rest: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionEnd:
    """How it ended; no outcome where a newer attempt has taken over, or where it has not ended
    (`again`): what was to be abandoned could not be looked at once more."""

    outcome: AdmissionOutcome | None
    again: bool = False
    node_uid: str = ""
    answered: HookAnswers = field(default_factory=HookAnswers)


STEP_RESULTS = (AttemptId, NodeLookup, AdmissionEnd, AdmissionOutcome, HookAnswers)
"""What is written down between the steps."""


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def admitted(self, outcome: AdmissionOutcome) -> None:
        """Log and measure an admission that has ended."""
        ...

    def admission_not_reported(self, outcome: AdmissionOutcome, problem: str) -> None:
        """Log that somebody did not take the news of an admission."""
        ...


class AdmitNode:
    """Admits instances. `open_cluster` opens a cluster's API."""

    def __init__(
        self,
        arrivals: Admissions,
        groups: Groups,
        types: InstanceTypes,
        announcements: LeewayEvents,
        open_cluster: Callable[[str], Cluster],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._arrivals = arrivals
        self._types = types
        self._announcements = announcements
        self._open_cluster = open_cluster
        self._telemetry = telemetry
        self._clock = clock
        self._actions = LifecycleActions(groups, clock)

    def admit(self, order: AttemptId, steps: Steps) -> AdmissionOutcome | None:
        """Run one attempt of an admission; None where a newer one has taken over.

        Every step may run again from its start: it looks at what is, and does what is missing.
        """
        looked, ended, turn = NodeLookup(None), AdmissionEnd(None, again=True), 0
        while ended.again:
            if turn:
                steps.wait(f"rest-{turn}", looked.rest)
            looked = steps.run(f"look-{turn}", NodeLookup, partial(self._look, order, looked))
            if looked.record is None:
                return None
            if looked.verdict is not None:
                finish = partial(self._finish, order, looked, looked.verdict)
                ended = steps.run(f"finish-{turn}", AdmissionEnd, finish)
            turn += 1
        outcome = ended.outcome
        if outcome is not None:
            steps.run("log", str, partial(self._log, outcome))
            steps.run("announce", str, partial(self._announce, outcome))
            if outcome.node:
                steps.run("note", str, partial(self._note, outcome, ended.node_uid))
            if answer := _ANSWERS.get(outcome.result):
                self._actions.retry_refused(order.instance, ended.answered, answer, steps)
        return outcome

    def _current(self, order: AttemptId) -> Admission | None:
        """Read the record; None where a newer attempt has taken over."""
        record = self._arrivals.arrival(order.instance)
        if record is None or record.attempt != order.attempt:
            return None
        return record

    def _look(self, order: AttemptId, before: NodeLookup) -> NodeLookup:
        record = self._current(order)
        if record is None:
            return NodeLookup(None)
        now = self._clock.now()
        held = joined(before.held, record.hooks, record.noticed_at, now)
        looked = replace(
            before, record=record, held=self._actions.send_heartbeats(order.instance, held)
        )
        looked, lacks = self._see(looked, record)
        now = self._clock.now()
        verdict = decide(
            lacks,
            record.deadline,
            now,
            hooks_wait=bool(record.hooks),
            hooks_over=none_waits(looked.held, now),
            into_pool=record.into_pool,
        )
        rest = pause(record.noticed_at, now, record.deadline, next_heartbeat(looked.held))
        return replace(looked, verdict=verdict, rest=int(rest.total_seconds()))

    def _see(
        self, looked: NodeLookup, record: Admission
    ) -> tuple[NodeLookup, tuple[str, ...] | None]:
        """Look at the node, and put on it what it is to have; what it lacks, None where it could
        not be looked at."""
        try:
            looked = self._knowing_its_type(looked, record)
            looked, node = self._find(looked, record)
        except _TROUBLE as error:
            return replace(looked, problem=f"{type(error).__name__}: {error}"), None
        expected = Expected(looked.makers or (), record.startup_taints)
        lacks = missing(_seen(node), expected)
        if node is not None:
            lacks += self._label(node, record)
        return replace(looked, lacks=lacks, problem=""), lacks

    def _knowing_its_type(self, looked: NodeLookup, record: Admission) -> NodeLookup:
        if looked.makers is not None:
            return looked
        try:
            makers = self._types.accelerators(record.facts.instance_type)
        except CloudRefused:
            makers = ()  # a type that EC2 does not tell about: the node's labels have to
        return replace(looked, makers=makers)

    def _find(self, looked: NodeLookup, record: Admission) -> tuple[NodeLookup, Node | None]:
        """Find the node by name, and now and then, or before giving up, among all nodes."""
        cluster = self._open_cluster(record.facts.cluster)
        names = [looked.node] if looked.node else []
        names += [name for name in (record.facts.private_dns_name, record.instance) if name]
        named = (cluster.node(name) for name in names)
        node = next((n for n in named if n is not None and n.runs_on(record.instance)), None)
        now = self._clock.now()
        if node is None and _may_search(looked, record, now):
            looked = replace(looked, searched_at=now)
            node = cluster.node_of(record.instance, ())
        if node is None:
            return looked, None
        joined_at = looked.joined_at or now
        return replace(looked, node=node.name, node_uid=node.uid, joined_at=joined_at), node

    def _label(self, node: Node, record: Admission) -> tuple[str, ...]:
        """Put on the labels that were asked for; what is in the way, in words."""
        if all(node.labels.get(key) == value for key, value in record.labels.items()):
            return ()
        try:
            self._open_cluster(record.facts.cluster).label(node.name, record.labels)
        except (ClusterUnavailable, ClusterRefused) as error:
            return (f"its labels could not be put on: {error}",)
        return ()

    def _finish(self, order: AttemptId, looked: NodeLookup, verdict: Readiness) -> AdmissionEnd:
        """Close the record and answer the hooks.

        What is to be abandoned is looked at once more: hours may lie between two steps.
        """
        if verdict.result is AdmissionResult.NOT_READY and looked.record is not None:
            looked, lacks = self._see(looked, looked.record)
            if lacks is None:
                return AdmissionEnd(None, again=True)
            verdict = Readiness(AdmissionResult.NOT_READY, "; ".join(lacks)) if lacks else _READY
        answer = _ANSWERS.get(verdict.result)
        closed = self._close(order, answer)
        if closed is None:
            return AdmissionEnd(None)
        answered = HookAnswers()
        if answer is not None:
            answered = self._actions.answer(order.instance, closed.hooks, answer)
        outcome = AdmissionOutcome(
            result=verdict.result,
            instance=order.instance,
            cluster=order.cluster,
            node=looked.node,
            attempt=order.attempt,
            reason=verdict.reason,
            asked_at=closed.noticed_at,
            joined_at=looked.joined_at,
            ended_at=self._clock.now(),
            deadline=closed.deadline,
            hooks=tuple(hook.name for hook in closed.hooks),
            refused=tuple(refusal.said for refusal in answered.refused),
        )
        return AdmissionEnd(outcome, False, looked.node_uid, answered)

    def _close(self, order: AttemptId, answer: HookResult | None) -> Admission | None:
        for _ in range(LOCK_TRIES):
            record = self._current(order)
            if record is None:
                return None
            closed = record.model_copy(
                update={
                    "phase": Phase.FINISHED,
                    "answer": answer,
                    "ended_at": self._clock.now(),
                    "version": record.version + 1,
                }
            )
            try:
                self._arrivals.write(closed)
            except RecordChanged:
                continue
            return closed
        raise CloudUnavailable(f"{order.instance}: its record changed {LOCK_TRIES} times in a row")

    def _log(self, outcome: AdmissionOutcome) -> str:
        self._telemetry.admitted(outcome)
        return outcome.sentence

    def _announce(self, outcome: AdmissionOutcome) -> str:
        """Put the Leeway event; one that is refused holds up nothing."""
        try:
            self._announcements.publish(outcome.title, outcome.to_json())
        except CloudRefused as error:
            self._telemetry.admission_not_reported(outcome, f"no Leeway event: {error}")
            return f"not put: {error}"
        return outcome.title

    def _note(self, outcome: AdmissionOutcome, node_uid: str) -> str:
        """Write the Kubernetes Event; a cluster that does not take it holds up nothing."""
        event = outcome.as_node_event(node_uid)
        try:
            self._open_cluster(outcome.cluster).write_event(event)
        except _TROUBLE as error:
            self._telemetry.admission_not_reported(outcome, f"no Kubernetes Event: {error}")
            return f"not written: {error}"
        return event.name


_READY = Readiness(AdmissionResult.ADMITTED, "the node is ready for pods, though late")


def _seen(node: Node | None) -> ObservedNode | None:
    if node is None:
        return None
    return ObservedNode(node.ready, node.labels, node.devices, {taint.key for taint in node.taints})


def _may_search(looked: NodeLookup, record: Admission, now: datetime) -> bool:
    """Whether all nodes may be listed now: it is time for it again, or the last word is near."""
    if now >= record.deadline:
        return True
    if now < record.noticed_at + SEARCH_AFTER:
        return False
    return looked.searched_at is None or now >= looked.searched_at + SEARCH_EVERY
