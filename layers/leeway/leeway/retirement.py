"""Use case: one instance's way out: cordon, replace, drain, finish, report."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import Field, TypeAdapter

from leeway.clock import Clock
from leeway.cloud.ports import (
    Announcements,
    CloudRefused,
    CloudUnavailable,
    Groups,
    Instances,
    LifecycleActionOver,
    RecordChanged,
    Records,
)
from leeway.cluster.ports import Cluster, ClusterRefused, ClusterUnavailable, Marks
from leeway.drain.deadline import Terms
from leeway.drain.progress import Drain
from leeway.draining import Draining, pause_before_next
from leeway.outcome import Outcome, result_of
from leeway.records import Phase, ReplacementIntent, Retirement
from leeway.replacement import Decision, Method, decide_replacement

PASS = timedelta(seconds=10)
"""How long one drain step lasts at most; what it achieved is checkpointed at its end."""

PATIENCE = timedelta(seconds=5)
"""How long a step tries again by itself when the API server or AWS does not answer. After that
the next part has its turn: a dead API server must not hold up the replacement."""

RETRY_EVERY = 0.5
"""Seconds between two tries within a step."""

LOCK_TRIES = 6

# What the outside may answer. A refusal counts as trouble too: somebody may be mending the rights
# while the two minutes run, and the other parts of a retirement can do without this one.
_TROUBLE = (ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused)


@dataclass(frozen=True, slots=True)
class Order:
    """What `retire_node` is started with."""

    instance: Annotated[str, Field(pattern=r"^i-[0-9a-f]{8,17}$")]
    cluster: Annotated[str, Field(min_length=1)]
    generation: Annotated[int, Field(ge=1)]


def parse_order(event: Any) -> Order:
    """Read what the function was started with.

    Raises:
        ValueError: it is no order; the message names the field and what was expected.
    """
    return _ORDER.validate_python(event)


_ORDER = TypeAdapter(Order)


@dataclass(frozen=True, slots=True)
class Located:
    """Where a retirement stands with its node.

    `settled` says that the node is cordoned, or known not to exist (`node` empty).
    """

    settled: bool
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: str = ""
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Replaced:
    """Where a retirement stands with its replacement."""

    settled: bool
    method: Method = Method.NOTHING
    reason: str = ""
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Passed:
    """A drain after one more pass, and how many seconds may pass before the next."""

    drain: Drain
    rest: int = 0
    expired: bool = False
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """What was done at the end; `terminated` where the instance was Leeway's to terminate."""

    hooks_completed: tuple[str, ...] = ()
    terminated: bool = False
    at: datetime | None = None
    superseded: bool = False


class Steps(Protocol):
    """The durable engine: what a step returned is not done again when the function is replayed."""

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        """Do `work` once and remember its result, a `kind`; again if the function died first."""
        ...

    def wait(self, name: str, seconds: int) -> None:
        """Let time pass without a running function."""
        ...


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        ...

    def not_noted(self, outcome: Outcome, problem: str) -> None:
        """Log that a cluster did not take the Kubernetes Event."""
        ...


class RetireNode:
    """Retires instances. `cluster_named` opens a cluster's API."""

    def __init__(
        self,
        records: Records,
        groups: Groups,
        instances: Instances,
        announcements: Announcements,
        cluster_named: Callable[[str], Cluster],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._records = records
        self._groups = groups
        self._instances = instances
        self._announcements = announcements
        self._cluster_named = cluster_named
        self._telemetry = telemetry
        self._clock = clock

    def retire(self, order: Order, steps: Steps) -> Outcome | None:
        """Run one generation of a retirement; None where a newer one has taken over.

        Every step may run again from its start: each first looks at what is, and does what is
        missing. Between steps nothing reads a clock or the world.
        """
        located = steps.run("cordon", Located, partial(self._cordon, order))
        replaced = Replaced(settled=False, superseded=located.superseded)
        if not located.superseded:
            replaced = steps.run("replace", Replaced, partial(self._replace, order))
        drain = Drain()
        passed = Passed(drain)
        turn = 0
        while not (located.superseded or replaced.superseded or passed.superseded):
            drained = located.settled and (not located.node or drain.over)
            if passed.expired or (drained and replaced.settled):
                break
            turn += 1
            if not located.settled:
                located = steps.run(f"cordon-{turn}", Located, partial(self._cordon, order))
            if not replaced.settled:
                replaced = steps.run(f"replace-{turn}", Replaced, partial(self._replace, order))
            work = partial(self._drain, order, located, drain)
            passed = steps.run(f"drain-{turn}", Passed, work)
            drain = passed.drain
            if passed.rest:
                steps.wait(f"rest-{turn}", passed.rest)
        else:
            return None
        finished = steps.run("finish", Finished, partial(self._finish, order, located, drain))
        if finished.superseded:
            return None
        describe = partial(self._outcome, order, located, replaced, drain, finished)
        outcome = steps.run("outcome", Outcome, describe)
        steps.run("announce", str, partial(self._announce, outcome))
        if located.node:
            steps.run("note", str, partial(self._note, outcome, located.node_uid))
        return outcome

    def _current(self, order: Order) -> Retirement | None:
        """Read the record; None where a newer generation has taken over."""
        record = self._records.retirement(order.instance)
        if record is None or record.generation != order.generation:
            return None
        return record

    def _patiently[T](self, work: Callable[[], T]) -> T:
        """Do something again while the other side does not answer, for as long as PATIENCE."""
        until = self._clock.now() + PATIENCE
        while True:
            try:
                return work()
            except (ClusterUnavailable, CloudUnavailable):
                if self._clock.now() >= until:
                    raise
                self._clock.sleep(RETRY_EVERY)

    def _update(self, record: Retirement, **changes: object) -> Retirement | None:
        """Write changes to the record; None where a newer generation has taken over."""
        for _ in range(LOCK_TRIES):
            changed = record.model_copy(update={**changes, "version": record.version + 1})
            try:
                self._records.write(changed)
            except RecordChanged:
                fresh = self._records.retirement(record.instance)
                if fresh is None or fresh.generation != record.generation:
                    return None
                record = fresh
            else:
                return changed
        raise CloudUnavailable(f"{record.instance}: its record changed {LOCK_TRIES} times in a row")

    def _cordon(self, order: Order) -> Located:
        record = self._patiently(partial(self._current, order))
        if record is None:
            return Located(settled=False, superseded=True)
        try:
            located = self._patiently(partial(self._find_and_cordon, record))
        except _TROUBLE as error:
            return Located(settled=False, problem=f"{type(error).__name__}: {error}")
        if record.phase is Phase.NOTICED:
            self._update(record, phase=Phase.RUNNING)
        return located

    def _find_and_cordon(self, record: Retirement) -> Located:
        cluster = self._cluster_named(record.facts.cluster)
        names = tuple(n for n in (record.facts.private_dns_name, record.instance) if n)
        node = cluster.node_of(record.instance, names)
        if node is None:
            return Located(settled=True, problem="the instance has no node in the cluster")
        deadline = record.deadline.isoformat() if record.deadline else None
        cluster.cordon(node.name, Marks(record.kind, record.generation, deadline))
        return Located(True, node.name, node.uid, self._clock.now())

    def _replace(self, order: Order) -> Replaced:
        try:
            return self._patiently(partial(self._ask_for_replacement, order))
        except (CloudUnavailable, CloudRefused) as error:
            return Replaced(settled=False, reason=str(error))

    def _ask_for_replacement(self, order: Order) -> Replaced:
        record = self._current(order)
        if record is None:
            return Replaced(settled=False, superseded=True)
        group = self._groups.facts(order.instance)
        before = record.replaced
        decision = decide_replacement(
            record.kind, record.replacement, record.facts.owner, group, before is not None
        )
        if group is None or decision.method in {Method.NOTHING, Method.LEFT_TO_OWNER}:
            if before is not None:
                return Replaced(True, Method(before.method), before.reason)
            return Replaced(True, decision.method, decision.reason)
        intent = ReplacementIntent(
            method=decision.method, reason=decision.reason, asked_at=self._clock.now()
        )
        if self._update(record, replaced=intent) is None:
            return Replaced(settled=False, superseded=True)
        self._carry_out(decision, order.instance, group.name)
        return Replaced(True, decision.method, decision.reason)

    def _carry_out(self, decision: Decision, instance: str, group: str) -> None:
        if decision.method is Method.TERMINATE_IN_GROUP:
            self._groups.terminate_in_group(instance)
        elif decision.method is Method.DETACH:
            self._instances.tag_as_detached(instance, group)
            self._groups.detach(instance, group)

    def _drain(self, order: Order, located: Located, drain: Drain) -> Passed:
        record = self._patiently(partial(self._current, order))
        if record is None:
            return Passed(drain, superseded=True)
        if located.settled and located.node:
            cluster = self._cluster_named(record.facts.cluster)
            terms = Terms(record.deadline, record.on_blocked)
            until = self._clock.now() + PASS
            drain = Draining(cluster, self._clock).work(located.node, drain, terms, until)
        elif not located.settled:
            self._clock.sleep(RETRY_EVERY)
        now = self._clock.now()
        expired = record.deadline is not None and now >= record.deadline
        rest = timedelta(0)
        if not drain.over:
            rest = pause_before_next(record.noticed_at, now, record.deadline)
        return Passed(drain, int(rest.total_seconds()), expired)

    def _finish(self, order: Order, located: Located, drain: Drain) -> Finished:
        """Answer every hook that told of this instance, terminate what is Leeway's to terminate,
        and close the record; a hook that is announced meanwhile is answered too."""
        completed: list[str] = []
        while True:
            record = self._current(order)
            if record is None:
                return Finished(tuple(completed), superseded=True)
            for hook in record.hooks:
                if hook.name in completed:
                    continue
                # Over: answered by an earlier attempt of this step, or its time ran out.
                with suppress(LifecycleActionOver):
                    self._groups.complete(order.instance, hook)
                completed.append(hook.name)
            drained = located.settled and (not located.node or drain.drained)
            ours = record.replaced is not None and record.replaced.method == Method.DETACH
            if ours and drained:
                self._instances.terminate(order.instance)
            closed = record.model_copy(
                update={"phase": Phase.FINISHED, "version": record.version + 1}
            )
            try:
                self._records.write(closed)
            except RecordChanged:
                continue
            return Finished(tuple(completed), ours and drained, self._clock.now())

    def _outcome(
        self,
        order: Order,
        located: Located,
        replaced: Replaced,
        drain: Drain,
        finished: Finished,
    ) -> Outcome:
        record = self._records.retirement(order.instance)
        if record is None:
            raise CloudUnavailable(f"{order.instance}: its record is gone")
        return Outcome(
            result=result_of(located.settled, located.node, drain),
            instance=order.instance,
            cluster=order.cluster,
            node=located.node,
            kind=record.kind,
            generation=order.generation,
            reason=located.problem or record.reason,
            noticed_at=record.noticed_at,
            cordoned_at=located.cordoned_at,
            ended_at=finished.at,
            deadline=record.deadline,
            replacement=replaced.method,
            replacement_reason=replaced.reason,
            hooks=finished.hooks_completed,
            terminated=finished.terminated,
            pods=tuple(drain.pods.values()),
        )

    def _announce(self, outcome: Outcome) -> str:
        """Log, measure and put the Leeway event. A repeated one has the same instance and
        generation, by which its readers can tell."""
        self._announcements.announce(outcome.title, outcome.to_json())
        self._telemetry.retired(outcome)
        return outcome.title

    def _note(self, outcome: Outcome, node_uid: str) -> str:
        """Write the Kubernetes Event; a cluster that does not take it holds up nothing."""
        event = outcome.as_node_event(node_uid)
        try:
            self._patiently(lambda: self._cluster_named(outcome.cluster).note(event))
        except _TROUBLE as error:
            self._telemetry.not_noted(outcome, str(error))
            return f"not written: {error}"
        return event.name
