"""Use case: a notice arrives, is written down, and starts what it asks for."""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from leeway.admission.ports import Admissions
from leeway.admission.record import Admission, requested_by, take
from leeway.clock import Clock
from leeway.execution.attempt import RecordChange
from leeway.instances.facts import InstanceFacts
from leeway.instances.observed import CHANGE_PREFIX, is_over
from leeway.interruption.late import is_late, why_over
from leeway.interruption.ports import InstanceRecords
from leeway.lifecycle_hooks.held_hooks import EKS_HOOKS
from leeway.notices import InstanceId, Notice, NoticeKind
from leeway.notices.health import narrowed
from leeway.notices.parse import parse_notice
from leeway.notices.synthetic import EventOrigin
from leeway.parallel import in_parallel
from leeway.policy.ports import ClusterPolicies
from leeway.policy.rules import (
    DEFAULTS,
    UNAVAILABLE_FOR,
    Action,
    ClusterPolicy,
    Policy,
    begins_at,
    rule,
)
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    CurrentInstances,
    Instances,
    ScheduledChanges,
)
from leeway.ports.functions import AdmitNode, CleanUp, RetireNode, Schedules
from leeway.ports.table import Claims, Offering, RecordChanged, UnavailableOfferings
from leeway.retirement.attempts import has_lived_on, receive, undo
from leeway.retirement.record import Retirement

LOCK_TRIES = 6
"""How often a record is read again when another notice for it was written in between."""

HANDS = 16
"""Instances of a notice that are seen to at the same time: AWS Health names hundreds in one, and
the function has a minute."""

TOLD = 10
"""Failures that an error tells of, at the most: with the event that it was about, it has to fit
into a message of the queue of failures."""

CLEANED_AT_ONCE = 8
FOR_EACH = timedelta(seconds=10)
"""After how many instances of a cluster is cleaned up at once, in such a while. Each asks EC2 up to
two times, which allows an account twenty such calls a second, once a hundred are used up."""


class NoticeResult(StrEnum):
    """What became of a notice for one instance."""

    STARTED = "started"
    KNOWN = "known"
    SCHEDULED = "scheduled"
    UNDOING = "undoing"
    NOT_OURS = "not-ours"
    LEFT_TO_OWNER = "left-to-owner"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class InstanceOutcome:
    """What became of a notice for one instance, and why."""

    result: NoticeResult
    reason: str
    instance: str = ""
    cluster: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class NoticeOutcome:
    """A notice and what became of it, for each instance that it names."""

    notice: Notice
    instances: tuple[InstanceOutcome, ...]

    def to_dict(self) -> dict[str, Any]:
        """Render the answer of the function."""
        return {
            "notice": self.notice.id,
            "kind": self.notice.kind.value,
            "instances": [asdict(one) for one in self.instances],
        }


class NotAllInstancesReceived(Exception):
    """Some of a notice's instances could not be seen to; `receipt` has the others."""

    def __init__(self, receipt: NoticeOutcome, failures: Sequence[Exception]) -> None:
        said = [f"{type(e).__name__}: {e}" for e in failures[:TOLD]]
        more = [f"and {len(failures) - TOLD} more"] if len(failures) > TOLD else []
        super().__init__("; ".join([*said, *more]))
        self.receipt = receipt


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What receiving takes, beside the notice. `clusters` are those under Leeway's care, and
    `place` is the account and region that they are in."""

    place: EventOrigin
    records: InstanceRecords
    instances: Instances
    current: CurrentInstances
    changes: ScheduledChanges
    policies: ClusterPolicies
    retire_node: RetireNode
    schedules: Schedules
    offerings: UnavailableOfferings
    clusters: frozenset[str]
    clock: Clock
    arrivals: Admissions
    admit_node: AdmitNode
    cleaning: CleanUp
    claims: Claims


@dataclass(frozen=True, slots=True)
class _Case:
    """A notice for one instance, with what is known of that. `event` is the notice as it came."""

    event: Mapping[str, Any]
    notice: Notice
    stored: Retirement | None
    arrival: Admission | None
    facts: InstanceFacts
    policy: Policy
    dry_run: bool

    @property
    def schedule(self) -> str:
        """The name of the schedule for what is announced: a repeat and later news find it."""
        digest = hashlib.sha256(self.notice.event.encode()).hexdigest()[:16]
        return f"{self.facts.instance}-{digest}"

    def became(self, result: NoticeResult, reason: str, attempt: int = 0) -> InstanceOutcome:
        """Render what became of it."""
        return InstanceOutcome(result, reason, self.facts.instance, self.facts.cluster, attempt)


class ReceiveNotice:
    """Receives notices."""

    def __init__(self, world: Dependencies) -> None:
        self._world = world

    def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
        """Take in one EventBridge event. Receiving it again changes nothing.

        `begun` is what Leeway has begun with the instance before: it goes on, whatever the policy
        says by now about notices of the kind that tells of it.

        Raises:
            MalformedNotice, UnknownNotice: it is not a notice.
            NotAllReceived: some instance could not be seen to; the others have been, and
                receiving the event again does the rest.
        """
        notice = parse_notice(event)
        if why := self._why_not_received(notice):
            return NoticeOutcome(notice, (InstanceOutcome(NoticeResult.IGNORED, why),))
        if notice.reservation and not notice.instances:
            found = self._world.current.in_reservation(notice.reservation)
            if not found:
                why = f"no instance runs in capacity reservation {notice.reservation}"
                return NoticeOutcome(notice, (InstanceOutcome(NoticeResult.IGNORED, why),))
            notice = replace(notice, instances=tuple(map(InstanceId, found)))
        if not notice.instances:
            said = rule(notice, DEFAULTS[notice.kind])
            return NoticeOutcome(notice, (InstanceOutcome(NoticeResult.IGNORED, said.reason),))

        def receive_for(instance: InstanceId) -> InstanceOutcome | Exception:
            try:
                return self._receive_for(instance, notice, event, begun)
            except Exception as error:  # noqa: BLE001 (raised below, when all had their turn)
                return error

        done = in_parallel(receive_for, notice.instances, HANDS)
        receipt = NoticeOutcome(
            notice, tuple(one for one in done if isinstance(one, InstanceOutcome))
        )
        if failures := [one for one in done if isinstance(one, Exception)]:
            raise NotAllInstancesReceived(receipt, failures)
        return receipt

    def _why_not_received(self, notice: Notice) -> str:
        """Say why nothing of an event is looked at; empty where it is."""
        if notice.replay:
            return f"it was sent again by the replay {notice.replay} of an archive"
        here = self._world.place
        if (notice.account, notice.region) != (here.account, here.region):
            return (
                f"it is of account {notice.account} in {notice.region},"
                f" and this is {here.account} in {here.region}"
            )
        return ""

    def _receive_for(
        self,
        instance: InstanceId,
        notice: Notice,
        event: Mapping[str, Any],
        begun: Action | None,
    ) -> InstanceOutcome:
        for _ in range(LOCK_TRIES):
            known = self._world.records.known(instance)
            stored = known.retirement
            if stored is None and notice.state == _RUNS:
                # Every launch says so: nothing is asked about an instance without a retirement.
                return InstanceOutcome(
                    NoticeResult.IGNORED, "it runs, and was never retired", instance
                )
            # The index is never older than a record: an instance may have left its group since.
            facts = known.facts or (
                stored.facts if stored else self._world.instances.describe(instance)
            )
            if facts is None:
                said = "no such instance, or its tags name no cluster, or several"
                return InstanceOutcome(NoticeResult.NOT_OURS, said, instance)
            if facts.cluster not in self._world.clusters:
                reason = f"cluster {facts.cluster} is not under Leeway's care"
                return InstanceOutcome(NoticeResult.NOT_OURS, reason, instance, facts.cluster)
            policy = self._world.policies.policy_of(facts.cluster)
            here = policy.notices[notice.kind]
            if begun is not None:
                here = replace(here, action=begun)
            # Nothing comes from the future: one of two clocks is wrong, and time is short.
            told = replace(notice, time=min(notice.time, self._world.clock.now()))
            case = _Case(event, told, stored, known.arrival, facts, here, policy.dry_run)
            try:
                left = _left_to_owner(case, policy) or self._left_as_over(case)
                return left or self._settle(case)
            except RecordChanged:
                continue
        raise CloudUnavailable(f"{instance}: its record changed {LOCK_TRIES} times in a row")

    def _left_as_over(self, case: _Case) -> InstanceOutcome | None:
        """Leave alone what comes late and EC2 does not confirm; None where it is to be obeyed.

        Raises:
            CloudUnavailable, CloudRefused: EC2 does not answer; receiving it again asks again.
        """
        notice, now, world = case.notice, self._world.clock.now(), self._world
        if case.policy.action is Action.IGNORE or not is_late(notice, now):
            return None
        instance = case.facts.instance
        # Of hooks EC2 knows nothing: they need not wait for it.
        current = world.current.current_instance(instance) if notice.hook is None else None
        runs = current is not None and current.state == "running"
        scheduled = notice.kind is NoticeKind.SCHEDULED_CHANGE and runs
        changes = world.changes.changes_of(instance) if scheduled else ()
        if why := why_over(notice, instance, current, changes, now):
            return case.became(NoticeResult.IGNORED, f"it comes late, and {why}")
        return None

    def _settle(self, case: _Case) -> InstanceOutcome:
        notice = case.notice
        if notice.state == _RUNS and (undone := self._undo(case)):
            return undone
        if case.facts.instance in notice.over:
            return self._called_off(case)
        if case.policy.action is Action.IGNORE:
            return case.became(NoticeResult.IGNORED, rule(notice, case.policy).reason)
        if case.policy.action is Action.ADMIT:
            return self._admit(case)
        if notice.state == _ENDED:
            return self._clean_up(case, self._retire(case))
        begins = begins_at(notice, case.policy)
        if begins is not None and begins > self._world.clock.now():
            return self._schedule(case, begins)
        if self._is_over(case):
            now = self._world.clock.now()
            return self._called_off(replace(case, notice=replace(notice, time=now)))
        if begins is None:
            return self._retire(case)
        # Weeks may lie between the notice and its lead: what it asks for, it asks for from then on.
        return self._retire(replace(case, notice=replace(notice, time=max(notice.time, begins))))

    def _called_off(self, case: _Case) -> InstanceOutcome:
        self._world.schedules.remove(case.schedule)
        reason = "what was announced is called off or over, and nothing was begun"
        return self._undo(case) or case.became(NoticeResult.IGNORED, reason)

    def _is_over(self, case: _Case) -> bool:
        """Whether EC2 says that what AWS Health has announced is called off or done: Health's own
        word of that may have got lost. While EC2 does not answer, it is still to come."""
        notice = case.notice
        by_health = notice.kind is NoticeKind.SCHEDULED_CHANGE
        if not by_health or notice.event.startswith(CHANGE_PREFIX) or notice.effective_at is None:
            return False
        instance = case.facts.instance
        with suppress(CloudUnavailable, CloudRefused):
            return is_over(self._world.changes.changes_of(instance), instance, notice.effective_at)
        return False

    def _clean_up(self, case: _Case, received: InstanceOutcome) -> InstanceOutcome:
        """Have cleaned up at once what a terminated instance leaves, but not after more than some
        in a while: the minute's reconcile does the same for all at once. Nor after a retirement
        that left nothing on its node but the Node, which can wait for that."""
        before = case.stored if case.stored is not None and case.stored.left_empty_node else None
        emptied = before is not None and not has_lived_on(before, case.notice.time)
        if case.dry_run or emptied:
            return received
        facts, now = case.facts, self._world.clock.now()
        place = zlib.crc32(facts.instance.encode()) % CLEANED_AT_ONCE

        def start() -> str:
            if not self._world.claims.claim(f"clean/{facts.cluster}/{place}", now, now + FOR_EACH):
                return "many instances end just now"
            self._world.cleaning.start(facts.instance, facts.cluster)
            return ""

        return _besides(received, "it is cleaned up after by the minute, and not at once", start)

    def _schedule(self, case: _Case, begins: datetime) -> InstanceOutcome:
        event = narrowed(case.event, case.facts.instance)
        self._world.schedules.put(case.schedule, begins, event)
        undone = self._undo(case)
        return undone or case.became(
            NoticeResult.SCHEDULED,
            f"it begins at {begins:%Y-%m-%d %H:%M} UTC, ahead of what is announced",
        )

    def _undo(self, case: _Case) -> InstanceOutcome | None:
        change = undo(case.stored, case.notice)
        if change is None:
            return None
        self._carry_out(change)
        return case.became(NoticeResult.UNDOING, change.reason, change.record.attempt)

    def _retire(self, case: _Case) -> InstanceOutcome:
        ruling = rule(case.notice, case.policy, self._world.clock.now())
        if ruling.action is Action.IGNORE:
            return case.became(NoticeResult.IGNORED, ruling.reason)
        notice = case.notice
        if notice.hook is not None and notice.hook.name in EKS_HOOKS:
            notice = replace(notice, hook=None)
        change = receive(case.stored, notice, ruling, case.facts)
        self._carry_out(change)
        result = NoticeResult.STARTED if change.start else NoticeResult.KNOWN
        received = case.became(result, change.reason, change.record.attempt)
        if case.notice.kind is not NoticeKind.SPOT_INTERRUPTION:
            return received
        mark = partial(self._mark_unavailable, case.notice, case.facts)
        return _besides(received, "its offering is not marked as unavailable", mark)

    def _admit(self, case: _Case) -> InstanceOutcome:
        """Start an admission. One that only rehearses leaves the hook to whoever answers it now."""
        ruling = rule(case.notice, case.policy)
        if case.notice.hook is not None and case.notice.hook.name in EKS_HOOKS:
            return case.became(NoticeResult.IGNORED, f"EKS answers {case.notice.hook.name} itself")
        if case.dry_run:
            return case.became(NoticeResult.IGNORED, f"dry run, and {ruling.reason}")
        if ruling.deadline is None:
            return case.became(
                NoticeResult.IGNORED, "an admission takes a deadline, and there is none"
            )
        request = requested_by(case.notice, ruling.deadline, ruling.reason)
        change = take(case.arrival, request, case.facts)
        record = change.record
        if change.write:
            self._world.arrivals.write(record)
        if change.start:
            self._world.admit_node.start(record.instance, record.facts.cluster, record.attempt)
        result = NoticeResult.STARTED if change.start else NoticeResult.KNOWN
        return case.became(result, change.reason, record.attempt)

    def _carry_out(self, change: RecordChange[Retirement]) -> None:
        record = change.record
        if change.write:
            self._world.records.write(record)
        if change.start:
            self._world.retire_node.start(record.instance, record.facts.cluster, record.attempt)

    def _mark_unavailable(self, notice: Notice, facts: InstanceFacts) -> str:
        offering = Offering(notice.region, facts.instance_type, facts.zone, facts.capacity_type)
        until = self._world.clock.now() + UNAVAILABLE_FOR
        self._world.offerings.mark(offering, f"EC2 takes {facts.instance} back", until)
        return ""


_RUNS, _ENDED = "running", "terminated"


def _besides(received: InstanceOutcome, otherwise: str, work: Callable[[], str]) -> InstanceOutcome:
    """Do what a notice leads to besides, and without which it is received all the same: `work`
    returns why it was not done, if it was not. Where it fails, that is said as well: a storm would
    else be received again and again for it."""
    try:
        why = work()
    except (CloudUnavailable, CloudRefused) as error:
        why = str(error)
    return replace(received, reason=f"{received.reason}; {otherwise}: {why}") if why else received


def _left_to_owner(case: _Case, policy: ClusterPolicy) -> InstanceOutcome | None:
    owner = case.facts.owner
    if policy.retires_nodes_of(owner):
        return None
    reason = f"{owner.kind} {owner.name} drains and replaces its own nodes"
    return case.became(NoticeResult.LEFT_TO_OWNER, reason)
