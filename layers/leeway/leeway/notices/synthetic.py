"""Creates events that EventBridge did not deliver, in the form of the real events.

`parse_notice` parses them, and receive_notice receives them as
it receives real events. The id of an event contains its subject, `about`, so that the same event
has the same id when it is created again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from leeway.notices import InterruptionAction, LifecycleHook
from leeway.notices.parse import AUTO_SCALING, EC2, HEALTH, IMPAIRED, LEEWAY, UNHEALTHY

type Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventOrigin:
    """The account and region of the created events."""

    account: str
    region: str

    def lifecycle_action(
        self, about: str, at: datetime, instance: str, hook: LifecycleHook, *, launching: bool
    ) -> Event:
        """Return the event of an instance that waits for the answer to a lifecycle hook."""
        verb = "LAUNCHING" if launching else "TERMINATING"
        detail = {
            "AutoScalingGroupName": hook.group,
            "LifecycleHookName": hook.name,
            "EC2InstanceId": instance,
            "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{verb}",
        }
        action = "launch" if launching else "terminate"
        detail_type = f"EC2 Instance-{action} Lifecycle Action"
        return self._event(AUTO_SCALING, detail_type, about, at, detail)

    def interruption(
        self, about: str, at: datetime, instance: str, action: InterruptionAction
    ) -> Event:
        """Return the event of a Spot instance that EC2 interrupts two minutes after `at`."""
        detail = {"instance-id": instance, "instance-action": action.value}
        return self._event(EC2, "EC2 Spot Instance Interruption Warning", about, at, detail)

    def reservation_interruption(
        self, about: str, at: datetime, instance: str, ends_at: datetime
    ) -> Event:
        """Return the event of an instance that EC2 ends at a time, with its reserved capacity."""
        detail = {
            "instance-id": instance,
            "instance-action": "terminate",
            "instance-termination-time": ends_at.astimezone(UTC).isoformat(),
        }
        detail_type = "EC2 Capacity Reservation Instance Interruption Warning"
        return self._event(EC2, detail_type, about, at, detail)

    def rebalance(self, about: str, at: datetime, instance: str) -> Event:
        """Return a rebalance recommendation."""
        detail_type = "EC2 Instance Rebalance Recommendation"
        return self._event(EC2, detail_type, about, at, {"instance-id": instance})

    def state_change(self, about: str, at: datetime, instance: str, state: str) -> Event:
        """Return the event of an instance that has entered a state."""
        detail_type = "EC2 Instance State-change Notification"
        detail = {"instance-id": instance, "state": state}
        return self._event(EC2, detail_type, about, at, detail)

    def scheduled_change(
        self,
        about: str,
        at: datetime,
        instance: str,
        event: str,
        starts_at: datetime,
        *,
        called_off: bool = False,
    ) -> Event:
        """Return the event of a scheduled reboot, stop or retirement of an instance, or of its
        cancellation. `event` is EC2's id of the scheduled event."""
        detail = {
            "eventArn": event,
            "service": "EC2",
            "eventTypeCategory": "scheduledChange",
            "startTime": format_datetime(starts_at.astimezone(UTC), usegmt=True),
            "statusCode": "closed" if called_off else "upcoming",
            "affectedEntities": [{"entityValue": instance}],
        }
        return self._event(HEALTH, "AWS Health Event", about, at, detail)

    def impaired_status(
        self,
        about: str,
        at: datetime,
        instance: str,
        checks: Collection[str],
        *,
        over: bool = False,
    ) -> Event:
        """Return the event of status checks that fail, or that pass again with `over`. `checks` are
        the names of the failing checks."""
        status = "ok" if over else "impaired"
        detail = {"instance-id": instance, "status": status, "failed-checks": sorted(checks)}
        return self._event(LEEWAY, IMPAIRED, about, at, detail)

    def unhealthy_node(self, about: str, at: datetime, instance: str, why: str) -> Event:
        """Return the event of an instance whose Node is unhealthy by its conditions."""
        return self._event(LEEWAY, UNHEALTHY, about, at, {"instance-id": instance, "reason": why})

    def _event(
        self, source: str, detail_type: str, about: str, at: datetime, detail: dict[str, Any]
    ) -> Event:
        return {
            "version": "0",
            "id": f"leeway-{about}",
            "detail-type": detail_type,
            "source": source,
            "account": self.account,
            "time": at.astimezone(UTC).isoformat(),
            "region": self.region,
            "resources": [],
            "detail": detail,
        }
