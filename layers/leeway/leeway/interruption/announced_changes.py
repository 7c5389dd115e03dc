"""Schedules the retirements for changes that AWS announces hours or weeks ahead."""

from contextlib import suppress
from datetime import datetime

from leeway.instances.observed import CHANGE_PREFIX, is_over
from leeway.interruption.instance_notice import InstanceNotice
from leeway.notices import NoticeKind
from leeway.notices.health import narrow_event
from leeway.ports.aws import CloudRefused, CloudUnavailable, ScheduledChanges
from leeway.ports.functions import Schedules


class AnnouncedChanges:
    """The schedules for announced changes, and what EC2 says about them."""

    def __init__(self, schedules: Schedules, changes: ScheduledChanges) -> None:
        self._schedules = schedules
        self._changes = changes

    def schedule(self, about: InstanceNotice, begins: datetime) -> None:
        """Schedule the same event again for this instance at the begin of its retirement."""
        event = narrow_event(about.event, about.facts.instance)
        self._schedules.put(about.schedule_name, begins, event)

    def unschedule(self, about: InstanceNotice) -> None:
        """Remove the schedule for the announced change, if there is one."""
        self._schedules.remove(about.schedule_name)

    def is_over(self, about: InstanceNotice) -> bool:
        """Return whether EC2 says that a change of AWS Health is cancelled or completed: the event
        of AWS Health about that may be lost. False if EC2 cannot be read."""
        notice = about.notice
        from_health = notice.kind is NoticeKind.SCHEDULED_CHANGE
        if not from_health or notice.event.startswith(CHANGE_PREFIX) or not notice.effective_at:
            return False
        instance = about.facts.instance
        with suppress(CloudUnavailable, CloudRefused):
            return is_over(self._changes.changes_of(instance), instance, notice.effective_at)
        return False
