"""Decides what a notice leads to for one instance, and does it."""

from dataclasses import replace
from datetime import datetime

from leeway.clock import Clock
from leeway.interruption.announced_changes import AnnouncedChanges
from leeway.interruption.clean_up import CleanUpRequests
from leeway.interruption.instance_notice import InstanceNotice
from leeway.interruption.late import LateNotices
from leeway.interruption.outcome import InstanceOutcome, NoticeResult
from leeway.interruption.reasons import (
    ANNOUNCEMENT_WITHDRAWN,
    OWNER_RETIRES_NODE,
    RETIREMENT_SCHEDULED,
)
from leeway.interruption.start_admission import StartAdmission
from leeway.interruption.start_retirement import StartRetirement
from leeway.policy.rules import Action, begins_at, rule


class HandleInstance:
    """Handles notices, each for one instance."""

    def __init__(
        self,
        late: LateNotices,
        announced: AnnouncedChanges,
        retirements: StartRetirement,
        admissions: StartAdmission,
        clean_ups: CleanUpRequests,
        clock: Clock,
    ) -> None:
        self._late = late
        self._announced = announced
        self._retirements = retirements
        self._admissions = admissions
        self._clean_ups = clean_ups
        self._clock = clock

    def handle(self, about: InstanceNotice) -> InstanceOutcome:
        """Do what the policy says about the notice, and return the outcome.

        Raises:
            RecordChanged: another writer changed a record of the instance: read it again.
            CloudUnavailable, CloudRefused: AWS failed: receiving the notice again does the rest.
        """
        owner = about.facts.owner
        if not about.cluster_policy.retires_nodes_of(owner):
            reason = OWNER_RETIRES_NODE(owner=f"{owner.kind} {owner.name}".strip())
            return about.outcome(NoticeResult.LEFT_TO_OWNER, reason)
        if outdated := self._late.why_outdated(about, self._clock.now()):
            return about.outcome(NoticeResult.IGNORED, outdated)
        if about.notice.state == "running" and (undone := self._retirements.undo(about)):
            return undone
        if about.facts.instance in about.notice.over:
            return self._cancel(about)
        match about.policy.action:
            case Action.IGNORE:
                reason = rule(about.notice, about.policy).reason
                return about.outcome(NoticeResult.IGNORED, reason)
            case Action.ADMIT:
                return self._admissions.admit(about)
            case _ if about.notice.state == "terminated":
                return self._clean_ups.request(about, self._retirements.retire(about))
            case _:
                return self._retire_in_time(about)

    def _retire_in_time(self, about: InstanceNotice) -> InstanceOutcome:
        """Retire now, or schedule the retirement for the begin of its lead time."""
        notice, now = about.notice, self._clock.now()
        begins = begins_at(notice, about.policy)
        if begins is not None and begins > now:
            return self._schedule(about, begins)
        if self._announced.is_over(about):
            return self._cancel(replace(about, notice=replace(notice, time=now)))
        if begins is None:
            return self._retirements.retire(about)
        # The retirement counts from the begin of its lead time, weeks after the first notice.
        at_begin = replace(notice, time=max(notice.time, begins))
        return self._retirements.retire(replace(about, notice=at_begin))

    def _schedule(self, about: InstanceNotice, begins: datetime) -> InstanceOutcome:
        self._announced.schedule(about, begins)
        undone = self._retirements.undo(about)
        scheduled = RETIREMENT_SCHEDULED(time=begins)
        return undone or about.outcome(NoticeResult.SCHEDULED, scheduled)

    def _cancel(self, about: InstanceNotice) -> InstanceOutcome:
        self._announced.unschedule(about)
        undone = self._retirements.undo(about)
        return undone or about.outcome(NoticeResult.IGNORED, ANNOUNCEMENT_WITHDRAWN())
