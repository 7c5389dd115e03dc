"""Use case: one instance's way out: cordon, replace, drain, finish, report."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import Field

from leeway.clock import Clock
from leeway.cloud.ports import (
    Announcements,
    CloudRefused,
    CloudUnavailable,
    Groups,
    Instances,
    RecordChanged,
    Records,
)
from leeway.cluster.ports import Cluster, ClusterRefused, ClusterUnavailable, Marks
from leeway.drain.deadline import Terms
from leeway.drain.progress import Drain, is_expired
from leeway.draining import Draining, pause_before_next
from leeway.holding import Answered, Holding
from leeway.hooks import HeldHook, HookResult, held_for, next_heartbeat, with_hooks
from leeway.outcome import FAILED, Outcome, result_of
from leeway.records import Phase, ReplacementIntent, Retirement
from leeway.replacement import Decision, GroupFacts, Method, decide_replacement
from leeway.steps import Steps
from leeway.typed_json import adapter_of

PASS = timedelta(seconds=10)
"""How long one drain step lasts at most; what it achieved is checkpointed at its end."""

PATIENCE = timedelta(seconds=5)
"""How long a step tries again by itself when the API server or AWS does not answer. After that
the next part has its turn: a dead API server must not hold up the replacement."""

RETRY_EVERY = 0.5
LONGEST_RETRY = 5.0
"""Seconds between two tries, the first and the longest."""

LOCK_TRIES = 6

_ACTING = frozenset({Method.TERMINATE_IN_GROUP, Method.DETACH})

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
    return adapter_of(Order).validate_python(event)


@dataclass(frozen=True, slots=True)
class Located:
    """Where a retirement stands with its node.

    `settled` says that the node is cordoned, or known not to exist (`node` empty). There is no
    record where a newer generation has taken over; so with the results below.
    """

    settled: bool
    record: Retirement | None = None
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Where a retirement stands with its replacement."""

    settled: bool
    record: Retirement | None
    method: Method = Method.NOTHING
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Passed:
    """A drain after one more pass, how many seconds may pass before the next, and the lifecycle
    hooks that are kept waiting for it."""

    drain: Drain
    record: Retirement | None
    rest: int = 0
    expired: bool = False
    held: tuple[HeldHook, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """How it ended; no outcome where a newer generation has taken over."""

    outcome: Outcome | None
    answered: Answered = field(default_factory=Answered)


STEP_RESULTS = (Order, Located, Replaced, Passed, Finished, Outcome, Answered)
"""What is written down between the steps."""


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        ...

    def not_told(self, outcome: Outcome, problem: str) -> None:
        """Log that somebody did not take the news of a retirement."""
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
        self._holding = Holding(groups, clock)

    def retire(self, order: Order, steps: Steps) -> Outcome | None:
        """Run one generation of a retirement; None where a newer one has taken over.

        Every step may run again from its start: each first looks at what is, and does what is
        missing. Between steps nothing reads a clock or the world.
        """
        located = steps.run("cordon", Located, partial(self._cordon, order))
        if located.record is None:
            return None
        ask = partial(self._replace, order, located.record)
        replaced = steps.run("replace", Replaced, ask)
        passed = Passed(Drain(), replaced.record)
        turn = 0
        while passed.record is not None and not _is_over(located, replaced, passed):
            turn += 1
            if not located.settled:
                located = steps.run(f"cordon-{turn}", Located, partial(self._cordon, order))
            if not replaced.settled:
                ask = partial(self._replace, order, passed.record)
                replaced = steps.run(f"replace-{turn}", Replaced, ask)
            unsettled = not (located.settled and replaced.settled)
            work = partial(self._drain, order, located, passed, turn if unsettled else 0)
            passed = steps.run(f"drain-{turn}", Passed, work)
            if passed.rest:
                steps.wait(f"rest-{turn}", passed.rest)
        if passed.record is None:
            return None
        finish = partial(self._finish, order, passed.record, located, replaced, passed.drain)
        finished = steps.run("finish", Finished, finish)
        outcome = finished.outcome
        if outcome is not None:
            steps.run("log", str, partial(self._log, outcome))
            steps.run("announce", str, partial(self._announce, outcome))
            if located.node:
                steps.run("note", str, partial(self._note, outcome, located.node_uid))
            self._holding.insist(order.instance, finished.answered, HookResult.CONTINUE, steps)
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

    def _cordon(self, order: Order) -> Located:
        record = self._patiently(partial(self._current, order))
        if record is None:
            return Located(settled=False)
        try:
            return self._patiently(partial(self._find_and_cordon, record))
        except _TROUBLE as error:
            return Located(settled=False, record=record, problem=f"{type(error).__name__}: {error}")

    def _find_and_cordon(self, record: Retirement) -> Located:
        cluster = self._cluster_named(record.facts.cluster)
        names = tuple(n for n in (record.facts.private_dns_name, record.instance) if n)
        node = cluster.node_of(record.instance, names)
        if node is None:
            return Located(True, record, problem="the instance has no node in the cluster")
        deadline = record.deadline.isoformat() if record.deadline else None
        cluster.cordon(node.name, Marks(record.kind, record.generation, deadline))
        return Located(True, record, node.name, node.uid, self._clock.now())

    def _replace(self, order: Order, record: Retirement) -> Replaced:
        try:
            return self._patiently(partial(self._ask_for_replacement, order, record))
        except (CloudUnavailable, CloudRefused) as error:
            return Replaced(settled=False, record=record, reason=str(error))

    def _ask_for_replacement(self, order: Order, record: Retirement) -> Replaced:
        """Write down what is going to be asked, then ask. What an attempt before this one wrote
        shows as a changed record; whether it still got to ask, as the instance's state."""
        written = self._write(order, record, partial(self._with_replacement, order))
        if written is None:
            return Replaced(settled=False, record=None)
        running, (decision, group) = written
        if group is not None and decision.method in _ACTING:
            self._carry_out(decision, order.instance, group.name)
        intent = running.replaced
        if intent is not None and _still_holds(intent, group):
            return Replaced(True, running, Method(intent.method), intent.reason)
        return Replaced(True, running, decision.method, decision.reason)

    def _with_replacement(
        self, order: Order, record: Retirement
    ) -> tuple[Retirement, tuple[Decision, GroupFacts | None]]:
        """Decide how the instance is replaced, by its group as it is now."""
        group = self._groups.facts(order.instance)
        decision = decide_replacement(
            record.kind,
            record.replacement,
            record.facts.owner,
            group,
            asked_already=record.replaced is not None,
        )
        running = record.model_copy(update={"phase": Phase.RUNNING})
        if group is None or decision.method not in _ACTING:
            return running, (decision, group)
        intent = ReplacementIntent(
            method=decision.method, reason=decision.reason, asked_at=self._clock.now()
        )
        return running.model_copy(update={"replaced": intent}), (decision, group)

    def _write[T](
        self,
        order: Order,
        record: Retirement,
        change: Callable[[Retirement], tuple[Retirement, T]],
    ) -> tuple[Retirement, T] | None:
        """Change the record, decided anew on what others wrote meanwhile; None where a newer
        generation has taken over."""
        for _ in range(LOCK_TRIES):
            changed, said = change(record)
            written = changed.model_copy(update={"version": record.version + 1})
            try:
                self._records.write(written)
            except RecordChanged:
                fresh = self._current(order)
                if fresh is None:
                    return None
                record = fresh
            else:
                return written, said
        raise CloudUnavailable(f"{order.instance}: its record changed {LOCK_TRIES} times in a row")

    def _carry_out(self, decision: Decision, instance: str, group: str) -> None:
        if decision.method is Method.TERMINATE_IN_GROUP:
            self._groups.terminate_in_group(instance)
        elif decision.method is Method.DETACH:
            self._instances.tag_as_detached(instance, group)
            self._groups.detach(instance, group)

    def _drain(self, order: Order, located: Located, passed: Passed, tries: int) -> Passed:
        """Work on the drain for a while. `tries` counts how often the cordon or the replacement
        has been tried in vain, 0 where both are settled: the more, the longer until the next."""
        drain = passed.drain
        record = self._patiently(partial(self._current, order))
        if record is None:
            return Passed(drain, None)
        held = held_for(record, passed.held, self._clock.now())
        held = self._holding.keep(order.instance, held)
        deadline = with_hooks(record.deadline, held)
        heartbeat = next_heartbeat(held)
        if located.node:
            terms = Terms(deadline, record.on_blocked)
            drain = self._work(record, located.node, drain, terms, heartbeat)
        now = self._clock.now()
        rest = timedelta(0)
        if not drain.over or tries:
            rest = pause_before_next(record.noticed_at, now, deadline, heartbeat)
        if tries and not rest:
            self._clock.sleep(min(tries * RETRY_EVERY, LONGEST_RETRY))
        expired = is_expired(Terms(deadline), self._clock.now())
        return Passed(drain, record, int(rest.total_seconds()), expired, held)

    def _work(
        self, record: Retirement, node: str, drain: Drain, terms: Terms, heartbeat: datetime | None
    ) -> Drain:
        until = self._clock.now() + PASS
        if heartbeat is not None:
            until = min(until, heartbeat)
        try:
            cluster = self._cluster_named(record.facts.cluster)
            return Draining(cluster, self._clock).work(node, drain, terms, until)
        except _TROUBLE as error:
            self._clock.sleep(RETRY_EVERY)
            return replace(drain, problem=f"{type(error).__name__}: {error}")

    def _finish(
        self,
        order: Order,
        record: Retirement,
        located: Located,
        replaced: Replaced,
        drain: Drain,
    ) -> Finished:
        """Close the record, answer every hook that told of this instance, and terminate what is
        Leeway's to terminate.

        The record is closed first: the state changes that follow are then known to be its own
        doing, and a hook that is announced after it gets a generation that answers it.
        """
        written = self._write(order, record, _finished)
        if written is None:
            return Finished(None)
        closed, _ = written
        drained = located.settled and (not located.node or drain.drained)
        terminate = drained and replaced.method is Method.DETACH
        refused = self._terminate(order.instance) if terminate else ()
        answered = self._holding.answer(order.instance, closed.hooks, HookResult.CONTINUE)
        refused += tuple(refusal.said for refusal in answered.refused)
        return Finished(
            Outcome(
                result=result_of(located.settled, located.node, drain),
                instance=order.instance,
                cluster=order.cluster,
                node=located.node,
                kind=closed.kind,
                generation=order.generation,
                reason=located.problem or drain.problem or closed.reason,
                noticed_at=closed.noticed_at,
                cordoned_at=located.cordoned_at,
                ended_at=self._clock.now(),
                deadline=closed.deadline,
                replacement=replaced.method if replaced.settled else FAILED,
                replacement_reason=replaced.reason,
                refused=refused,
                hooks=tuple(hook.name for hook in closed.hooks),
                terminated=terminate,
                pods=tuple(drain.pods.values()),
            ),
            answered,
        )

    def _terminate(self, instance: str) -> tuple[str, ...]:
        """Terminate the instance; what was refused, in words."""
        try:
            self._instances.terminate(instance)
        except CloudRefused as error:
            return (str(error),)
        return ()

    def _log(self, outcome: Outcome) -> str:
        self._telemetry.retired(outcome)
        return outcome.sentence

    def _announce(self, outcome: Outcome) -> str:
        """Put the Leeway event. A repeated one has the same instance and generation, by which its
        readers can tell; one that is refused holds up nothing."""
        try:
            self._announcements.announce(outcome.title, outcome.to_json())
        except CloudRefused as error:
            self._telemetry.not_told(outcome, f"no Leeway event: {error}")
            return f"not put: {error}"
        return outcome.title

    def _note(self, outcome: Outcome, node_uid: str) -> str:
        """Write the Kubernetes Event; a cluster that does not take it holds up nothing."""
        event = outcome.as_node_event(node_uid)
        try:
            self._patiently(lambda: self._cluster_named(outcome.cluster).note(event))
        except _TROUBLE as error:
            self._telemetry.not_told(outcome, f"no Kubernetes Event: {error}")
            return f"not written: {error}"
        return event.name


def _is_over(located: Located, replaced: Replaced, passed: Passed) -> bool:
    """Whether nothing is left to try: all is done, or the time is up."""
    drained = located.settled and (not located.node or passed.drain.over)
    return passed.expired or (drained and replaced.settled)


def _finished(record: Retirement) -> tuple[Retirement, None]:
    return record.model_copy(update={"phase": Phase.FINISHED}), None


def _still_holds(intent: ReplacementIntent, group: GroupFacts | None) -> bool:
    """Whether what was once intended is what happened: an instance that is to be detached has left
    its group or is leaving it, and is not in the group's own hands by now."""
    if group is None or intent.method == Method.TERMINATE_IN_GROUP:
        return True
    return group.lifecycle_state in {"InService", "Detaching", "Detached"}
