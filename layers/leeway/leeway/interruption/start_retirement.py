"""Applies notices to retirement records, and starts retire_node for new attempts."""

from dataclasses import replace

from leeway.clock import Clock
from leeway.execution.attempt import RecordChange
from leeway.interruption.instance_notice import InstanceNotice
from leeway.interruption.outcome import InstanceOutcome, NoticeResult
from leeway.lifecycle_hooks.held_hooks import EKS_HOOKS
from leeway.notices import NoticeKind
from leeway.policy.rules import UNAVAILABLE_FOR, Action, rule
from leeway.ports.functions import RetireNode
from leeway.ports.table import Offering, UnavailableOfferings
from leeway.retirement.attempts import apply_notice, undo
from leeway.retirement.ports import Records
from leeway.retirement.record import Retirement


class StartRetirement:
    """Starts and undoes retirements."""

    def __init__(
        self,
        records: Records,
        retire_node: RetireNode,
        offerings: UnavailableOfferings,
        clock: Clock,
    ) -> None:
        self._records = records
        self._retire_node = retire_node
        self._offerings = offerings
        self._clock = clock

    def retire(self, about: InstanceNotice) -> InstanceOutcome:
        """Begin a retirement or a new attempt, if the stored retirement does not cover the notice.

        Raises:
            RecordChanged: another writer changed the record.
            CloudUnavailable, CloudRefused: the table or Lambda failed.
        """
        ruling = rule(about.notice, about.policy, self._clock.now())
        if ruling.action is Action.IGNORE:
            return about.outcome(NoticeResult.IGNORED, ruling.reason)
        notice = about.notice
        if notice.hook is not None and notice.hook.name in EKS_HOOKS:
            notice = replace(notice, hook=None)
        change = apply_notice(about.retirement, notice, ruling, about.facts)
        self._apply(change)
        result = NoticeResult.STARTED if change.start else NoticeResult.KNOWN
        outcome = about.outcome(result, change.reason, change.record.attempt)
        if notice.kind is not NoticeKind.SPOT_INTERRUPTION:
            return outcome
        return outcome.with_side_effect(
            "Its offering is not marked as unavailable", lambda: self._mark_unavailable(about)
        )

    def undo(self, about: InstanceNotice) -> InstanceOutcome | None:
        """Undo the retirement of an instance that stays; None if there is nothing to undo.

        Raises:
            RecordChanged: another writer changed the record.
            CloudUnavailable, CloudRefused: the table or Lambda failed.
        """
        change = undo(about.retirement, about.notice)
        if change is None:
            return None
        self._apply(change)
        return about.outcome(NoticeResult.UNDOING, change.reason, change.record.attempt)

    def _apply(self, change: RecordChange[Retirement]) -> None:
        record = change.record
        if change.write:
            self._records.write(record)
        if change.start:
            self._retire_node.start(record.instance, record.facts.cluster, record.attempt)

    def _mark_unavailable(self, about: InstanceNotice) -> str:
        facts, region = about.facts, about.notice.region
        offering = Offering(region, facts.instance_type, facts.zone, facts.capacity_type)
        until = self._clock.now() + UNAVAILABLE_FOR
        self._offerings.mark(offering, f"EC2 interrupts {facts.instance}", until)
        return ""
