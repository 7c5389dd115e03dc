"""Receives a notice: parses the event, decides by the policy for each of its instances, writes the
record of the instance, and starts the function that acts."""

import hashlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from leeway.admission.record import ADMISSION, Admission, apply_request, request_from_notice
from leeway.catalog.unavailable import Offering, UnavailableOfferings
from leeway.clock import Clock
from leeway.execution.attempt import RecordChange
from leeway.execution.retrying import Conflicts
from leeway.instances.facts import (
    CHANGE_PREFIX,
    CurrentInstance,
    InstanceFacts,
    ObservedChange,
    is_over,
    is_scheduled,
)
from leeway.interruption.instance_state import read_instance
from leeway.notices import InstanceId, Notice, NoticeKind
from leeway.notices.parse import EventOrigin, narrow_event, parse_notice
from leeway.parallel import in_parallel
from leeway.policy.rules import (
    DEFAULTS,
    ENDING_STATES,
    NOTICE_IGNORED,
    UNAVAILABLE_FOR,
    Action,
    ClusterPolicies,
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
from leeway.reasons import Reason, ReasonCode
from leeway.retirement.attempts import apply_notice, has_kept_running, undo
from leeway.retirement.hooks import EKS_HOOKS
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import Table
from leeway.telemetry import Telemetry

INSTANCE_NOT_MANAGED = ReasonCode(
    "InstanceNotManaged", "The instance is in no cluster that Leeway manages: {why}."
)

OWNER_RETIRES_NODE = ReasonCode("OwnerRetiresNode", "{owner} drains and replaces its own nodes.")

RETIREMENT_SCHEDULED = ReasonCode(
    "RetirementScheduled", "The retirement begins at {time:%Y-%m-%d %H:%M} UTC."
)

ADMISSION_NEEDS_DEADLINE = ReasonCode(
    "AdmissionNeedsDeadline",
    "The policy sets no deadline for {kind} notices. An admission needs one: set it.",
    "admitnodefailuresalarm",
)

NOTICE_REJECTED = ReasonCode(
    "NoticeRejected", "The event could not be received: {error}.", "receivenoticefailuresalarm"
)

INSTANCE_CONCURRENCY = 16
"""Instances of a notice that are handled at the same time. AWS Health names hundreds in one event,
and the function has a minute."""

MAX_CLEAN_UPS = 8
CLAIM_TIME = timedelta(seconds=10)
"""At most MAX_CLEAN_UPS clean-ups of a cluster start in each CLAIM_TIME. Each makes up to two calls
to EC2, which allows an account 20 such calls per second after a burst of 100."""

MAX_ERRORS = 10
"""How many errors the message of an exception contains: together with the event, it must fit into a
message of the dead-letter queue."""


class NoticeResult(StrEnum):
    """What Leeway does with a notice for one instance."""

    STARTED = "started"
    KNOWN = "known"
    SCHEDULED = "scheduled"
    UNDOING = "undoing"
    NOT_OURS = "not-ours"
    LEFT_TO_OWNER = "left-to-owner"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class InstanceOutcome:
    """What Leeway does with a notice for one instance, and why. `instance` is empty if the outcome
    is about the whole notice; `attempt` is 0 if there is no record."""

    result: NoticeResult
    reason: Reason
    instance: str = ""
    cluster: str = ""
    attempt: int = 0

    def without(self, failure: str, why: object) -> "InstanceOutcome":
        """Add that something was not done that the notice can do without, and why. An error of it
        is not raised: during a storm, EventBridge would deliver the notice again for it."""
        return replace(self, reason=self.reason.and_then(f"{failure}: {why}."))


@dataclass(frozen=True, slots=True)
class NoticeOutcome:
    """A notice and its outcome for each of its instances."""

    notice: Notice
    instances: tuple[InstanceOutcome, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the response of the function receive_notice."""
        return {
            "notice": self.notice.id,
            "kind": self.notice.kind.value,
            "instances": [asdict(one) for one in self.instances],
        }


class NotAllInstancesReceived(Exception):
    """Receiving failed for some instances of a notice; `receipt` has the outcome of the others."""

    def __init__(self, receipt: NoticeOutcome, failures: Sequence[Exception]) -> None:
        errors = [f"{type(error).__name__}: {error}" for error in failures[:MAX_ERRORS]]
        hidden = len(failures) - MAX_ERRORS
        more = [f"and {hidden} more"] if hidden > 0 else []
        super().__init__("; ".join([*errors, *more]))
        self.receipt = receipt


class NoticedInstances(Instances, CurrentInstances, ScheduledChanges, Protocol):
    """EC2 instances, their present state and their scheduled changes."""


@dataclass(frozen=True, slots=True)
class _About:
    """A notice about one instance, with everything that the decision about it needs.

    - `event`: the EventBridge event that the notice was parsed from.
    - `retirement`, `admission`: the records of the instance, None if there are none.
    - `policy`: the policy for this kind of notice; `cluster_policy`: the policy of the cluster.
    """

    event: Mapping[str, Any]
    notice: Notice
    retirement: Retirement | None
    admission: Admission | None
    facts: InstanceFacts
    policy: Policy
    cluster_policy: ClusterPolicy

    @property
    def schedule_name(self) -> str:
        """The name of the schedule for the announced change, the same for every notice about it."""
        digest = hashlib.sha256(self.notice.event.encode()).hexdigest()[:16]
        return f"{self.facts.instance}-{digest}"

    def outcome(self, result: NoticeResult, reason: Reason, attempt: int = 0) -> InstanceOutcome:
        return InstanceOutcome(result, reason, self.facts.instance, self.facts.cluster, attempt)

    def ignored(self, why: object) -> InstanceOutcome:
        return self.outcome(NoticeResult.IGNORED, NOTICE_IGNORED(why))


@dataclass(frozen=True, slots=True)
class ReceiveNotice:
    """Receives notices. `clusters` are the clusters that Leeway manages, `origin` is the account
    and region of this function."""

    origin: EventOrigin
    clusters: frozenset[str]
    clock: Clock
    policies: ClusterPolicies
    table: Table
    instances: NoticedInstances
    schedules: Schedules
    offerings: UnavailableOfferings
    retire_node: RetireNode
    admit_node: AdmitNode
    clean_up: CleanUp

    def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
        """Receive one EventBridge event. To receive an event again is safe.

        `begun` is an action that Leeway has begun for the instance: it applies instead of the
        action of the policy, which may have changed since.

        Raises:
            MalformedNotice, UnknownNotice: the event is not a notice.
            NotAllInstancesReceived: some instances failed. The others are done, and receiving the
                event again does the rest.
        """
        notice = parse_notice(event)
        if why := self._why_not_for_us(notice):
            return _ignored(notice, NOTICE_IGNORED(why))
        if notice.reservation and not notice.instances:
            found = self.instances.in_reservation(notice.reservation)
            if not found:
                why = f"no instance runs in capacity reservation {notice.reservation}"
                return _ignored(notice, NOTICE_IGNORED(why))
            notice = replace(notice, instances=tuple(map(InstanceId, found)))
        if not notice.instances:
            return _ignored(notice, rule(notice, DEFAULTS[notice.kind]).reason)
        receive_for = partial(self._receive_for, notice, event, begun)
        results = in_parallel(receive_for, notice.instances, INSTANCE_CONCURRENCY)
        receipt = NoticeOutcome(
            notice, tuple(one for one in results if isinstance(one, InstanceOutcome))
        )
        if failures := [one for one in results if isinstance(one, Exception)]:
            raise NotAllInstancesReceived(receipt, failures)
        return receipt

    def _why_not_for_us(self, notice: Notice) -> str:
        """Return why the whole notice is ignored; empty if its instances are handled."""
        if notice.replay:
            return f"the replay {notice.replay} of an EventBridge archive sent the event again"
        own = self.origin
        if (notice.account, notice.region) == (own.account, own.region):
            return ""
        return (
            f"the event is from account {notice.account} in {notice.region}; this function is in "
            f"account {own.account} in {own.region}"
        )

    def _receive_for(
        self, notice: Notice, event: Mapping[str, Any], begun: Action | None, instance: InstanceId
    ) -> InstanceOutcome | Exception:
        """Receive the notice for one instance; an error is returned, for the others to go on."""
        conflicts = Conflicts(f"the record of {instance}")
        try:
            while True:
                with conflicts:
                    about = self._read(notice, event, begun, instance)
                    return about if isinstance(about, InstanceOutcome) else self._handle(about)
        except Exception as error:  # noqa: BLE001 (`receive` raises it, after all instances)
            return error

    def _read(
        self, notice: Notice, event: Mapping[str, Any], begun: Action | None, instance: InstanceId
    ) -> _About | InstanceOutcome:
        """Read everything that the decision needs, unless the notice is not for Leeway."""
        known = read_instance(self.table, instance, self.clusters)
        retirement = known.retirement
        if retirement is None and notice.state == "running":
            # EC2 sends this event for every launch, so no call is made for it.
            never = NOTICE_IGNORED("the instance runs and has never been retired")
            return InstanceOutcome(NoticeResult.IGNORED, never, instance)
        # The index is never older than the record: the instance may have left its group since.
        facts = known.facts or (
            retirement.facts if retirement else self.instances.describe(instance)
        )
        if facts is None:
            why = "EC2 has no such instance, or its tags name no cluster, or several clusters"
            return InstanceOutcome(NoticeResult.NOT_OURS, INSTANCE_NOT_MANAGED(why), instance)
        cluster = facts.cluster
        if cluster not in self.clusters:
            why = f"the parameter ClusterNames does not name its cluster {cluster}"
            reason = INSTANCE_NOT_MANAGED(why)
            return InstanceOutcome(NoticeResult.NOT_OURS, reason, instance, cluster)
        cluster_policy = self.policies.policy_of(cluster)
        policy = cluster_policy.notices[notice.kind]
        if begun is not None:
            policy = replace(policy, action=begun)
        # A timestamp in the future is clamped to now: one of two clocks is wrong.
        notice = replace(notice, time=min(notice.time, self.clock.now()))
        return _About(event, notice, retirement, known.admission, facts, policy, cluster_policy)

    def _handle(self, about: _About) -> InstanceOutcome:
        """Do what the policy says about the notice, and return the outcome.

        Raises:
            RecordChanged: another writer changed a record of the instance: read it again.
            CloudUnavailable, CloudRefused: AWS failed: receiving the notice again does the rest.
        """
        notice, owner = about.notice, about.facts.owner
        if not about.cluster_policy.retires_nodes_of(owner):
            reason = OWNER_RETIRES_NODE(owner=f"{owner.kind} {owner.name}".strip())
            return about.outcome(NoticeResult.LEFT_TO_OWNER, reason)
        if why := self._why_outdated(about):
            return about.ignored(f"it is late and does not apply any more: {why}")
        if notice.state == "running" and (undone := self._undo(about)):
            return undone
        if notice.kind is NoticeKind.LAUNCH_HOOK and not notice.into_pool:
            self._undo(about)  # and admit it: it may have left service without a stop
        if about.facts.instance in notice.over:
            return self._cancel(about)
        match about.policy.action:
            case Action.IGNORE:
                return about.outcome(NoticeResult.IGNORED, rule(notice, about.policy).reason)
            case Action.ADMIT:
                return self._admit(about)
            case _ if notice.state == "terminated":
                return self._clean_up_after(about, self._retire(about))
        begins, now = begins_at(notice, about.policy), self.clock.now()
        if begins is not None and begins > now:
            return self._schedule(about, begins)
        if self._is_announced_change_over(about):
            return self._cancel(replace(about, notice=replace(notice, time=now)))
        if begins is not None:
            # The retirement counts from the begin of its lead time, weeks after the first notice.
            about = replace(about, notice=replace(notice, time=max(notice.time, begins)))
        return self._retire(about)

    def _why_outdated(self, about: _About) -> str:
        """Return why a late notice does not apply any more; empty if it applies or is not late."""
        notice, instance, now = about.notice, about.facts.instance, self.clock.now()
        if about.policy.action is Action.IGNORE or not is_late(notice, now):
            return ""
        # EC2 does not know lifecycle actions, so it is not called for them.
        current = self.instances.current_instance(instance) if notice.hook is None else None
        runs = current is not None and current.state == "running"
        scheduled = notice.kind is NoticeKind.SCHEDULED_CHANGE and runs
        changes = self.instances.changes_of(instance) if scheduled else ()
        return why_outdated(notice, instance, current, changes, now)

    def _retire(self, about: _About) -> InstanceOutcome:
        """Begin a retirement or a new attempt, if the stored retirement does not cover the
        notice."""
        ruling = rule(about.notice, about.policy, self.clock.now())
        if ruling.action is Action.IGNORE:
            return about.outcome(NoticeResult.IGNORED, ruling.reason)
        notice = about.notice
        if notice.hook is not None and notice.hook.name in EKS_HOOKS:
            notice = replace(notice, hook=None)
        change = apply_notice(about.retirement, notice, ruling, about.facts)
        self._apply(change)
        result = NoticeResult.STARTED if change.start else NoticeResult.KNOWN
        outcome = about.outcome(result, change.reason, change.record.attempt)
        if notice.kind is NoticeKind.SPOT_INTERRUPTION:
            try:
                self._mark_unavailable(about)
            except (CloudUnavailable, CloudRefused) as error:
                return outcome.without("Its offering is not marked as unavailable", error)
        return outcome

    def _undo(self, about: _About) -> InstanceOutcome | None:
        """Undo the retirement of an instance that stays; None if there is nothing to undo."""
        change = undo(about.retirement, about.notice)
        if change is None:
            return None
        self._apply(change)
        return about.outcome(NoticeResult.UNDOING, change.reason, change.record.attempt)

    def _apply(self, change: RecordChange[Retirement]) -> None:
        record = change.record
        if change.write:
            self.table.put(RETIREMENT, record)
        if change.start:
            self.retire_node.start(record.instance, record.facts.cluster, record.attempt)

    def _mark_unavailable(self, about: _About) -> None:
        facts, region = about.facts, about.notice.region
        kind = facts.reservation.id if facts.reservation else facts.instance_type
        offering = Offering(region, kind, facts.zone, facts.capacity_type)
        until = self.clock.now() + UNAVAILABLE_FOR
        self.offerings.mark(offering, f"EC2 interrupts {facts.instance}", until)

    def _schedule(self, about: _About, begins: datetime) -> InstanceOutcome:
        """Schedule the same event again for this instance at the begin of its retirement."""
        event = narrow_event(about.event, about.facts.instance)
        self.schedules.put(about.schedule_name, begins, event)
        undone = self._undo(about)
        return undone or about.outcome(NoticeResult.SCHEDULED, RETIREMENT_SCHEDULED(time=begins))

    def _cancel(self, about: _About) -> InstanceOutcome:
        self.schedules.remove(about.schedule_name)
        why = "the announced event is cancelled or over, and there is no retirement to undo"
        return self._undo(about) or about.ignored(why)

    def _is_announced_change_over(self, about: _About) -> bool:
        """Return whether EC2 says that a change of AWS Health is cancelled or completed: the event
        of AWS Health about that may be lost. False if EC2 cannot be read."""
        notice, instance = about.notice, about.facts.instance
        from_health = notice.kind is NoticeKind.SCHEDULED_CHANGE
        if not from_health or notice.event.startswith(CHANGE_PREFIX) or not notice.effective_at:
            return False
        with suppress(CloudUnavailable, CloudRefused):
            return is_over(self.instances.changes_of(instance), instance, notice.effective_at)
        return False

    def _admit(self, about: _About) -> InstanceOutcome:
        """Begin an admission or a new attempt, if the stored admission does not cover the notice.
        In dry-run mode no admission starts, and the client that answers the hook today answers
        it."""
        notice, ruling = about.notice, rule(about.notice, about.policy)
        if notice.hook is not None and notice.hook.name in EKS_HOOKS:
            return about.ignored(f"EKS answers lifecycle hook {notice.hook.name} itself")
        if about.cluster_policy.dry_run:
            return about.ignored("the cluster is in dry-run mode, so no admission starts")
        if ruling.deadline is None:
            reason = ADMISSION_NEEDS_DEADLINE(kind=notice.kind)
            return about.outcome(NoticeResult.IGNORED, reason)
        request = request_from_notice(notice, ruling.deadline, ruling.reason)
        change = apply_request(about.admission, request, about.facts)
        record = change.record
        if change.write:
            self.table.put(ADMISSION, record)
        if change.start:
            self.admit_node.start(record.instance, record.facts.cluster, record.attempt)
        result = NoticeResult.STARTED if change.start else NoticeResult.KNOWN
        return about.outcome(result, change.reason, record.attempt)

    def _clean_up_after(self, about: _About, outcome: InstanceOutcome) -> InstanceOutcome:
        """Start a clean-up after a terminated instance and return the outcome of its notice.

        If too many clean-ups have started, the next run of reconcile cleans up after all instances.
        No clean-up starts after a retirement that left an empty node: only the Node object is left,
        which the next run of reconcile deletes.
        """
        retirement = about.retirement
        empty = retirement is not None and retirement.left_empty_node
        if retirement is not None and has_kept_running(retirement, about.notice.time):
            empty = False
        if about.cluster_policy.dry_run or empty:
            return outcome
        facts, later = about.facts, "The next run of reconcile cleans up after the instance"
        slot = zlib.crc32(facts.instance.encode()) % MAX_CLEAN_UPS
        try:
            if not self.table.claim(f"clean/{facts.cluster}/{slot}", self.clock.now() + CLAIM_TIME):
                return outcome.without(later, "many instances terminate at the same time")
            self.clean_up.start(facts.instance, facts.cluster)
        except (CloudUnavailable, CloudRefused) as error:
            return outcome.without(later, error)
        return outcome


def _ignored(notice: Notice, reason: Reason) -> NoticeOutcome:
    return NoticeOutcome(notice, (InstanceOutcome(NoticeResult.IGNORED, reason),))


@dataclass(frozen=True, slots=True)
class NoticeTelemetry(Telemetry):
    """Logs the notices that receive_notice receives."""

    def received(self, receipt: NoticeOutcome) -> None:
        """Log the outcome of a notice, one line per instance."""
        notice = receipt.notice
        for one in receipt.instances:
            self.logger.info(
                one.reason.message,
                extra={
                    "code": one.reason.code,
                    "notice": notice.id,
                    "kind": notice.kind,
                    "result": one.result,
                    "instance": one.instance,
                    "cluster": one.cluster,
                    "attempt": one.attempt,
                },
            )

    def rejected(self, event: object, error: Exception) -> None:
        """Log an event that is not a notice, or that could not be received for all instances."""
        fields = event if isinstance(event, dict) else {}
        reason = NOTICE_REJECTED(error=error)
        self.logger.error(
            reason.message,
            extra={
                "code": reason.code,
                "result": type(error).__name__,
                "notice": str(fields.get("id", ""))[:64],
                "detail_type": str(fields.get("detail-type", ""))[:128],
            },
        )


LATE_AFTER = timedelta(minutes=10)
"""How old a notice is before Leeway asks EC2 whether it still applies."""

REBALANCE_VALID_FOR = timedelta(hours=2)
"""How long a rebalance recommendation applies. EC2 does not store it; EventBridge and Lambda each
retry its delivery for an hour."""

_HOOKS = frozenset({NoticeKind.TERMINATE_HOOK, NoticeKind.LAUNCH_HOOK})


def is_late(notice: Notice, now: datetime) -> bool:
    """Return whether the notice is late: its announced end is more than LATE_AFTER ago, or, if it
    announces none or cancels one, its own time is.

    EventBridge delivers an event within seconds, and stops after the hour of the rules' retry
    policy. An older event was sent again: from an archive, a dead-letter queue, or by hand.
    """
    happens = notice.effective_at or notice.time
    if notice.over:
        happens = notice.time
    return now - happens > LATE_AFTER


def why_outdated(
    notice: Notice,
    instance: str,
    current: CurrentInstance | None,
    changes: Collection[ObservedChange],
    now: datetime,
) -> str:
    """Return why a late notice does not apply to an instance any more; empty if EC2 confirms it.

    `current` is the instance as EC2 describes it now, None if EC2 has no such instance. `changes`
    are the changes that EC2 has scheduled for it.
    """
    if notice.kind in _HOOKS:
        return "reconcile sends a new notice for a lifecycle action that still waits"
    if current is None:
        return "EC2 has no such instance"
    cancelled_at = notice.effective_at if instance in notice.over else None
    if cancelled_at is not None and is_scheduled(changes, instance, cancelled_at):
        return "EC2 still has the change scheduled"
    if notice.over or notice.state == "running":
        runs = current.state == "running"
        return "" if runs else f"the instance is {current.state}"
    if current.launched_at > notice.time:
        return f"the instance was started again at {current.launched_at:%Y-%m-%d %H:%M:%S} UTC"
    if current.state in ENDING_STATES:
        return ""
    return _why_instance_stays(notice, instance, current, changes, now)


def _why_instance_stays(
    notice: Notice,
    instance: str,
    current: CurrentInstance,
    changes: Collection[ObservedChange],
    now: datetime,
) -> str:
    """Return why the notice does not end a running instance; empty if EC2 confirms that it does."""
    match notice.kind:
        case NoticeKind.SPOT_INTERRUPTION if current.interrupted:
            return ""
        case NoticeKind.IMPAIRED_STATUS:
            return "reconcile sends a new notice while the status checks fail"
        case NoticeKind.UNHEALTHY_NODE:
            return "reconcile sends a new notice while the node is unhealthy"
        case NoticeKind.REBALANCE if now - notice.time <= REBALANCE_VALID_FOR:
            return ""
        case NoticeKind.REBALANCE:
            return "a rebalance recommendation applies for two hours"
        case NoticeKind.SCHEDULED_CHANGE if notice.effective_at is not None:
            if is_scheduled(changes, instance, notice.effective_at):
                return ""
            return "EC2 has no change scheduled for the instance at that time"
        case _:
            return f"the instance is {current.state}, and EC2 does not interrupt it"
