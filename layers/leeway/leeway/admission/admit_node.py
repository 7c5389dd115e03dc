"""Use case: admit a new node: wait until it joins, is Ready and offers its devices, then answer its
launch hook. An instance that Leeway launched and that never joins is terminated.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from leeway.admission.outcome import AdmissionOutcome, AdmissionReports, AdmissionTelemetry
from leeway.admission.readiness import (
    NODE_ADMITTED,
    ExpectedNode,
    ObservedNode,
    Readiness,
    decide_admission,
    decide_unjoined,
    joined_elsewhere,
    not_ready,
    poll_interval,
    unmet_conditions,
)
from leeway.admission.record import ADMISSION, Admission, AdmissionResult, Launch
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId, Phase, Steps
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.instances.facts import ObservedInstance
from leeway.pool_pauses import (
    JOIN_TIME,
    POOL,
    FailedInstance,
    JoinTime,
    PoolRecord,
    after_admission,
    after_failure,
    after_join,
    after_not_ready,
)
from leeway.ports.aws import CloudRefused, Groups, HookResult, InstanceTypes, LeewayEvents
from leeway.ports.kubernetes import Cluster, ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.reasons import Reason, ReasonCode, clause
from leeway.retirement.hooks import (
    HeldHook,
    HookAnswers,
    LifecycleActions,
    all_over,
    next_heartbeat,
    with_new_hooks,
)
from leeway.selection.labels import JOINED, LAUNCHED, REGISTERED, UNREGISTERED
from leeway.table import Table

INSTANCE_NOT_TERMINATED = ReasonCode(
    "UnjoinedInstanceNotTerminated",
    "EC2 refused to terminate the instance: {error}. Terminate it by hand.",
    "nodes-are-not-ready",
)
NODE_LABELS_REFUSED = ReasonCode(
    "NodeLabelsRefused",
    "Leeway could not add the labels, annotations and taints of the node: {error}.",
    "nodes-are-not-ready",
)


LIST_NODES_AFTER = timedelta(minutes=2)
LIST_NODES_EVERY = timedelta(minutes=1)
"""A node whose name is not its instance's DNS name or id is found only in the list of all nodes.
Most nodes join within two minutes, so the list is not read before."""

ANSWERS = {
    AdmissionResult.ADMITTED: HookResult.CONTINUE,
    AdmissionResult.POOLED: HookResult.CONTINUE,
    AdmissionResult.NOT_READY: HookResult.ABANDON,
    AdmissionResult.OTHER_CLUSTER: HookResult.CONTINUE,
}
"""How the launch hooks are answered; those of a terminated instance are not."""


class LaunchedInstances(Protocol):
    """The instances of EC2, as an admission reads them, and ends one that Leeway launched."""

    def observe(self, instance: str) -> ObservedInstance | None:
        """Read an instance. None if EC2 has no such instance, or if its tags do not name exactly
        one cluster."""
        ...

    def terminate(self, instance: str) -> None:
        """Terminate an instance. An instance that does not exist any more is not an error.

        Raises:
            CloudRefused: also if the instance is protected from termination.
        """
        ...


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Result of the step `check-N`: the state of the admission after one read of the node.

    - `record`: None if a newer attempt has superseded this one.
    - `verdict`: how the admission ends, None if it continues.
    - `unmet`: the conditions that the node did not meet at the last read that succeeded.
    - `problem`: why the last read failed, empty if it succeeded.
    - `listed_at`: when the list of all nodes was last read.
    - `manufacturers`: those of the instance type's accelerators, None until EC2 has returned them.
    - `held`: the lifecycle hooks that wait for the admission.
    - `join_counted`: the record of the pool says that an instance of this launch has joined.
    - `wait_seconds`: the time until the next check.
    """

    record: Admission | None
    verdict: Readiness | None = None
    unmet: tuple[Reason, ...] = ()
    problem: str = ""
    node: str = ""
    node_uid: str = ""
    joined_at: datetime | None = None
    listed_at: datetime | None = None
    manufacturers: tuple[str, ...] | None = None
    held: tuple[HeldHook, ...] = ()
    join_counted: bool = False
    wait_seconds: int = 0


@dataclass(frozen=True, slots=True)
class UnjoinedResult:
    """Result of the step `end-N`, about a launched instance whose node has not joined in time.

    - `verdict`: how the admission ends; None if the node has joined after all.
    - `check_again`: the last read of the node failed.
    - `paused`: the record of its pool, if the failure of this instance has paused the pool.
    """

    verdict: Readiness | None = None
    check_again: bool = False
    paused: PoolRecord | None = None


@dataclass(frozen=True, slots=True)
class FinishResult:
    """Result of the step `finish-N`. `outcome` is None if a newer attempt has superseded this one,
    or if the node must be checked again (`check_again`): the last read before ABANDON failed.
    `paused` is the record of the pool, if this node has paused it."""

    outcome: AdmissionOutcome | None
    check_again: bool = False
    node_uid: str = ""
    paused: PoolRecord | None = None
    answers: HookAnswers = field(default_factory=HookAnswers)


STEP_RESULTS = (
    Admission,
    AttemptId,
    NodeCheck,
    UnjoinedResult,
    FinishResult,
    AdmissionOutcome,
    HookAnswers,
    PoolRecord,
)
"""The types that the durable engine stores between steps."""


class AdmitNode:
    """Admits instances. `open_cluster` returns a client for the API server of a cluster."""

    def __init__(
        self,
        table: Table,
        groups: Groups,
        types: InstanceTypes,
        instances: LaunchedInstances,
        leeway_events: LeewayEvents,
        open_cluster: Callable[[str], Cluster],
        telemetry: AdmissionTelemetry,
        clock: Clock,
    ) -> None:
        self._table = table
        self._types = types
        self._instances = instances
        self._open_cluster = open_cluster
        self._clock = clock
        self._pools = PoolResults(table, clock)
        self._actions = LifecycleActions(groups, clock)
        self._reports = AdmissionReports(leeway_events, open_cluster, telemetry)

    def admit(self, attempt: AttemptId, steps: Steps) -> AdmissionOutcome | None:
        """Run one attempt of an admission; None if a newer attempt has superseded it.

        The engine may run every step again from its start: a step reads the current state and
        does only the work that is still to do.
        """
        check, finished, number = NodeCheck(None), FinishResult(None, check_again=True), 0
        while finished.check_again:
            if number:
                steps.wait(f"wait-{number}", check.wait_seconds)
            work = partial(self._check, attempt, check)
            check = steps.run(f"check-{number}", NodeCheck, work)
            if check.record is None:
                return None
            if check.verdict is not None:
                unjoined = self._unjoined(attempt, check, steps, number)
                if not unjoined.check_again:
                    finish = partial(self._finish, attempt, check, unjoined.verdict)
                    finished = steps.run(f"finish-{number}", FinishResult, finish)
            number += 1
        self._reports.report_pause(finished.paused, steps)
        if (outcome := finished.outcome) is not None:
            self._reports.report(outcome, finished.node_uid, steps)
            if answer := ANSWERS.get(outcome.result):
                self._actions.retry_refused(outcome.instance, finished.answers, answer, steps)
        return outcome

    def _unjoined(
        self, attempt: AttemptId, check: NodeCheck, steps: Steps, number: int
    ) -> UnjoinedResult:
        """End a launched instance whose node has not joined in time, and report the pause that this
        leads to."""
        record, verdict = check.record, check.verdict
        late = verdict is not None and verdict.result is AdmissionResult.NOT_READY
        if not late or record is None or record.launch is None or check.joined_at is not None:
            return UnjoinedResult()
        end = partial(self._end_unjoined, attempt, check)
        result = steps.run(f"end-{number}", UnjoinedResult, end)
        self._reports.report_pause(result.paused, steps)
        return result

    def _check(self, attempt: AttemptId, before: NodeCheck) -> NodeCheck:
        """Read the record and the node, and decide whether the admission ends."""
        record = self._current(attempt)
        if record is None:
            return NodeCheck(None)
        now = self._clock.now()
        held = with_new_hooks(before.held, record.hooks, record.noticed_at, now)
        check = replace(
            before, record=record, held=self._actions.send_heartbeats(attempt.instance, held)
        )
        check, unmet = self._observe(check, record)
        now = self._clock.now()
        verdict = decide_admission(
            unmet,
            record.deadline,
            now,
            has_hooks=bool(record.hooks),
            launched=record.launch is not None,
            hooks_ended=all_over(check.held, now),
            into_pool=record.into_pool,
        )
        heartbeat = next_heartbeat(check.held)
        interval = poll_interval(record.noticed_at, now, record.deadline, heartbeat)
        return replace(check, verdict=verdict, wait_seconds=int(interval.total_seconds()))

    def _current(self, attempt: AttemptId) -> Admission | None:
        """Read the record; None if a newer attempt has superseded this one."""
        record = self._table.get(ADMISSION, cluster=attempt.cluster, instance=attempt.instance)
        if record is None or record.attempt != attempt.attempt:
            return None
        return record

    def _observe(
        self, check: NodeCheck, record: Admission
    ) -> tuple[NodeCheck, tuple[Reason, ...] | None]:
        """Read the node and add what its pool has. Returns the conditions that the node does
        not meet, None if it could not be read."""
        try:
            check = self._with_manufacturers(check, record)
            cluster = self._open_cluster(record.facts.cluster)
            check, node = self._find(check, record, cluster)
        except API_ERRORS as error:
            return replace(check, problem=f"{type(error).__name__}: {error}"), None
        manufacturers = check.manufacturers or ()
        expected = ExpectedNode(manufacturers, record.startup_taints, record.promised)
        registers = node is not None and REGISTERED not in node.labels
        added = record.taints if registers else ()
        observed = None if node is None else ObservedNode.of(node, added)
        unmet = unmet_conditions(observed, expected)
        if node is not None and record.launch is not None:
            if not check.join_counted:
                check = replace(check, join_counted=self._pools.count_join(record, record.launch))
            notes = record.annotations if registers else {}
            unmet += self._set_up(node, record, added, notes, is_ready=not unmet)
        return replace(check, unmet=unmet, problem=""), unmet

    def _with_manufacturers(self, check: NodeCheck, record: Admission) -> NodeCheck:
        if check.manufacturers is not None:
            return check
        try:
            manufacturers = self._types.accelerators(record.facts.instance_type)
        except CloudRefused:
            manufacturers = ()  # EC2 does not describe the type: only the node's labels are used
        return replace(check, manufacturers=manufacturers)

    def _find(
        self, check: NodeCheck, record: Admission, cluster: Cluster
    ) -> tuple[NodeCheck, Node | None]:
        """Find the node by its expected names, and at intervals in the list of all nodes."""
        names = [check.node] if check.node else []
        names += [name for name in (record.facts.private_dns_name, record.instance) if name]
        named = (cluster.node(name) for name in names)
        node = next((n for n in named if n is not None and n.runs_on(record.instance)), None)
        now = self._clock.now()
        if node is None and _may_list_nodes(check, record, now):
            check = replace(check, listed_at=now)
            node = cluster.node_of(record.instance, ())
        if node is None:
            return check, None
        joined_at = check.joined_at or now
        return replace(check, node=node.name, node_uid=node.uid, joined_at=joined_at), node

    def _set_up(
        self,
        node: Node,
        record: Admission,
        taints: Sequence[Taint],
        annotations: Mapping[str, str],
        *,
        is_ready: bool,
    ) -> tuple[Reason, ...]:
        """Put the labels, annotations and taints of a pool on a launched node; returns why that
        failed.

        Annotations and taints are added once, with the label REGISTERED: whoever removes a startup
        taint, or the annotation that protects a node, does not find it again. The label INITIALIZED
        says that the node is ready for pods.
        """
        states = JOINED if is_ready else {REGISTERED: JOINED[REGISTERED]}
        labels = {**record.labels, **states, LAUNCHED: "true"}
        gated = any(one.key == UNREGISTERED for one in node.taints)
        if not (taints or annotations or gated) and all(
            node.labels.get(k) == v for k, v in labels.items()
        ):
            return ()
        cluster = self._open_cluster(record.facts.cluster)
        try:
            done = cluster.set_up(node, labels, taints, (UNREGISTERED,), annotations)
        except (ClusterUnavailable, ClusterRefused) as error:
            return (NODE_LABELS_REFUSED(error=clause(error)),)
        gone = "the Node was deleted or created again meanwhile"
        return () if done else (NODE_LABELS_REFUSED(error=gone),)

    def _end_unjoined(self, attempt: AttemptId, before: NodeCheck) -> UnjoinedResult:
        """Read the node once more, then terminate its instance if there is still none.

        The failure is counted before the instance is terminated, and both before the record is
        closed: an execution that dies in between leaves an open record, which reconcile continues.
        """
        record = self._current(attempt)
        if record is None or record.launch is None:
            return UnjoinedResult(before.verdict)
        check, unmet = self._observe(before, record)
        if unmet is None:
            return UnjoinedResult(check_again=True)
        if check.joined_at is not None:
            return UnjoinedResult()
        try:
            observed = self._instances.observe(record.instance)
            named = self._nodes_of_its_names(record, observed)
        except CloudRefused as error:
            reason = INSTANCE_NOT_TERMINATED(error=clause(error))
            return UnjoinedResult(Readiness(AdmissionResult.NOT_READY, reason))
        except API_ERRORS:
            return UnjoinedResult(check_again=True)
        if any(one.runs_on(record.instance) for one in named):
            return UnjoinedResult(check_again=True)
        taken = next((one.name for one in named), "")
        verdict = decide_unjoined(record, record.launch, observed, taken)
        if verdict.result is not AdmissionResult.TERMINATED:
            return UnjoinedResult(verdict)
        paused = self._pools.count_never_joined(record, record.launch)
        try:
            self._instances.terminate(record.instance)
        except CloudRefused as error:
            reason = INSTANCE_NOT_TERMINATED(error=clause(error))
            verdict = Readiness(AdmissionResult.NOT_READY, reason)
        return UnjoinedResult(verdict, paused=paused)

    def _nodes_of_its_names(
        self, record: Admission, observed: ObservedInstance | None
    ) -> list[Node]:
        """Read the nodes that have a name of the instance; they may be of other instances."""
        names = {record.facts.private_dns_name, record.instance}
        if observed is not None:
            names.add(observed.facts.private_dns_name)
        cluster = self._open_cluster(record.facts.cluster)
        return [one for name in sorted(names - {""}) if (one := cluster.node(name))]

    def _finish(
        self, attempt: AttemptId, check: NodeCheck, unjoined: Readiness | None
    ) -> FinishResult:
        """Close the record and answer the hooks. `unjoined` is how the admission of an instance
        ends that has not joined, None for any other.

        The node is read once more before ABANDON: the engine may pause for hours between steps. So
        is the instance of no node: the tags of a group may name another cluster than it has joined.
        """
        verdict = unjoined or check.verdict
        if verdict is None:
            return FinishResult(None, check_again=True)
        late = verdict.result is AdmissionResult.NOT_READY and unjoined is None
        record = check.record
        if late and record is not None:
            check, unmet = self._observe(check, record)
            if unmet is None:
                return FinishResult(None, check_again=True)
            admitted = Readiness(AdmissionResult.ADMITTED, NODE_ADMITTED())
            verdict = not_ready(unmet) if unmet else admitted
            if check.joined_at is None:
                try:
                    observed = self._instances.observe(attempt.instance)
                    verdict = joined_elsewhere(record, observed) or verdict
                except API_ERRORS:
                    if record.hooks:
                        return FinishResult(None, check_again=True)
        # Before the record is closed, as in _end_unjoined.
        paused = None
        if record is not None and record.launch is not None and check.joined_at is not None:
            paused = self._pools.count_readiness(record, record.launch, verdict)
        answer = ANSWERS.get(verdict.result)
        closed = self._close(attempt, verdict.result, answer)
        if closed is None:
            return FinishResult(None)
        answers = HookAnswers()
        if answer is not None:
            answers = self._actions.answer(attempt.instance, closed.hooks, answer)
        if verdict.result is AdmissionResult.ADMITTED and closed.launch is not None:
            self._pools.measure_join(closed, closed.launch)
        outcome = AdmissionOutcome(
            result=verdict.result,
            instance=attempt.instance,
            cluster=attempt.cluster,
            node=check.node,
            attempt=attempt.attempt,
            reason=verdict.reason,
            noticed_at=closed.noticed_at,
            joined_at=check.joined_at,
            ended_at=self._clock.now(),
            deadline=closed.deadline,
            hooks=tuple(hook.name for hook in closed.hooks),
            refused=tuple(refusal.reason for refusal in answers.refused),
        )
        return FinishResult(outcome, False, check.node_uid, paused, answers)

    def _close(
        self, attempt: AttemptId, result: AdmissionResult, answer: HookResult | None
    ) -> Admission | None:
        conflicts = Conflicts(f"the admission record of {attempt.instance}")
        while True:
            with conflicts:
                record = self._current(attempt)
                if record is None:
                    return None
                closed = record.model_copy(
                    update={
                        "phase": Phase.FINISHED,
                        "answer": answer,
                        "result": result,
                        "ended_at": self._clock.now(),
                        "version": record.version + 1,
                    }
                )
                self._table.put(ADMISSION, closed)
                return closed


def _may_list_nodes(check: NodeCheck, record: Admission, now: datetime) -> bool:
    """Whether the list of all nodes may be read now: at intervals, and before the admission ends
    without a node."""
    if now >= record.deadline:
        return True
    if now < record.noticed_at + LIST_NODES_AFTER:
        return False
    return check.listed_at is None or now >= check.listed_at + LIST_NODES_EVERY


class PoolResults:
    """Writes what became of the instances of a launch to the record of their pool."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def count_join(self, record: Admission, launch: Launch) -> bool:
        """Write that an instance of this launch has joined; False if the table does not take it."""

        def join(stored: PoolRecord | None) -> PoolRecord | None:
            return after_join(stored, record.facts.cluster, launch.pool, launch.at)

        try:
            self._write(record, launch, join)
        except API_ERRORS:
            return False
        return True

    def count_never_joined(self, record: Admission, launch: Launch) -> PoolRecord | None:
        """Count the failure; returns the record of the pool if this instance paused the pool."""

        def fail(stored: PoolRecord | None) -> PoolRecord | None:
            failure, now = _failure(record, launch), self._clock.now()
            return after_failure(stored, record.facts.cluster, launch.pool, failure, now)

        return self._write(record, launch, fail)

    def count_readiness(
        self, record: Admission, launch: Launch, verdict: Readiness
    ) -> PoolRecord | None:
        """Count whether a launched node that has joined is ready for pods; returns the record of
        the pool if this failure paused it. A table that does not take that a node is ready delays
        nothing: the pool is paused earlier at most."""
        cluster, pool = record.facts.cluster, launch.pool

        def admit(stored: PoolRecord | None) -> PoolRecord | None:
            return after_admission(stored, cluster, pool, launch.at)

        def fail(stored: PoolRecord | None) -> PoolRecord | None:
            failure, now = _failure(record, launch), self._clock.now()
            return after_not_ready(stored, cluster, pool, failure, verdict.reason, now)

        if verdict.result is AdmissionResult.ADMITTED:
            with suppress(*API_ERRORS):
                self._write(record, launch, admit)
        if verdict.result is AdmissionResult.NOT_READY:
            return self._write(record, launch, fail)
        return None

    def measure_join(self, record: Admission, launch: Launch) -> None:
        """Write how long the node took to be ready for pods. The time of an admission that began
        again, after its execution had died, is not that of the node. Without the table, launches
        ahead of cron windows use older times."""
        if record.attempt > 1:
            return
        took = (self._clock.now() - launch.at).total_seconds()
        with suppress(*API_ERRORS):
            self._table.put(
                JOIN_TIME,
                JoinTime(
                    cluster=record.facts.cluster,
                    pool=launch.pool,
                    instance=record.instance,
                    seconds=max(0.0, took),
                ),
            )

    def _write(
        self,
        record: Admission,
        launch: Launch,
        decide: Callable[[PoolRecord | None], PoolRecord | None],
    ) -> PoolRecord | None:
        """Write the record of the pool if `decide` changes it; return it if this instance has
        paused the pool."""
        conflicts = Conflicts(f"the record of pool {launch.pool}")
        while True:
            with conflicts:
                stored = self._table.get(POOL, cluster=record.cluster, pool=launch.pool)
                changed = decide(stored)
                if changed is not None:
                    self._table.put(POOL, changed)
                found = changed or stored
                by_this_one = found is not None and found.paused_by == record.instance
                return found if by_this_one else None


def _failure(record: Admission, launch: Launch) -> FailedInstance:
    return FailedInstance(instance=record.instance, launched_at=launch.at)
