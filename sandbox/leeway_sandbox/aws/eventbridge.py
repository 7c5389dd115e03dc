"""EventBridge rules that deliver events to Lambda and SQS targets.

moto's pattern matcher decides which rules match. moto's own rules do not deliver to Lambda.
"""

import json
from datetime import UTC, datetime
from typing import Any, ClassVar

import moto.events.models as moto_events
from moto.events.exceptions import ValidationException
from moto.events.models import EventsBackend, Rule, events_backends

from leeway_sandbox.aws import notices
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.delivery import Deliveries, Delivery, functions_of
from leeway_sandbox.aws.notices import Event, timestamp
from leeway_sandbox.aws.schedule_clock import ScheduleClock, ScheduledTarget
from leeway_sandbox.aws.schedule_expressions import BadExpressionError, parse

UNSUPPORTED = ("InputPath", "InputTransformer")


class DeliveringRule(Rule):
    """moto's rule, which delivers events to its targets."""

    bus: ClassVar["EventBus"]

    def takes(self, event: Event) -> bool:
        """Whether the rule is enabled and has a pattern that matches."""
        return (
            self.state != "DISABLED"
            and self.event_pattern.dump() is not None
            and self.event_pattern.matches_event(event)  # type: ignore[arg-type]
        )

    def send_to_targets(self, original_event: Any, transform_input: bool = True) -> None:
        """Deliver a PutEvents entry; moto calls this for every rule of a bus."""
        event = {key: value for key, value in original_event.items() if key != "ingestion-time"}
        if not isinstance(event["time"], str):
            event["time"] = timestamp(float(event["time"]))
        if self.takes(event):
            self.deliver(event)

    def deliver(self, event: Event, copies: int = 1, delay: float = 0) -> None:
        """Deliver the event to every target."""
        for target in self.targets:
            self.bus.deliveries.send(Delivery(event, self.arn, target), copies, delay)

    def tick(self, at: datetime) -> list[str]:
        """Deliver a scheduled event to the targets; return the functions among them."""
        event = notices.event(
            "aws.events", "Scheduled Event", self.region_name, [self.arn], {}, at.timestamp()
        )
        self.deliver(event)
        return functions_of(self.targets)

    def follow_schedule(self) -> None:
        """Add the schedule of this rule to the clock; remove it if the rule is disabled."""
        schedule_clock = self.bus.schedule_clock
        schedule_clock.remove(self.arn)
        if self.scheduled_expression and self.state != "DISABLED":
            expression = parse(self.scheduled_expression)
            now = datetime.now(UTC)
            schedule_clock.add(
                ScheduledTarget(
                    self.name, self.arn, self.scheduled_expression, expression, self.tick, now
                )
            )


class JournaledEvents(EventsBackend):
    """moto's EventBridge, with schedules and with a journal of PutEvents."""

    bus: ClassVar["EventBus"]

    def put_rule(self, name: str, *args: Any, **kwargs: Any) -> Rule:
        """Create or replace a rule, and start its schedule."""
        try:
            if expression := kwargs.get("scheduled_expression"):
                parse(expression)
        except BadExpressionError as error:
            raise ValidationException(str(error)) from error
        rule = super().put_rule(name, *args, **kwargs)
        assert isinstance(rule, DeliveringRule)
        rule.follow_schedule()
        return rule

    def delete_rule(self, name: str, event_bus_arn: str | None) -> None:
        """Delete a rule and its schedule."""
        rule = self.event_buses["default"].rules.get(name)
        super().delete_rule(name, event_bus_arn)
        if rule:
            self.bus.schedule_clock.remove(rule.arn)

    def enable_rule(self, name: str, event_bus_arn: str | None) -> bool:
        """Enable a rule and its schedule."""
        return super().enable_rule(name, event_bus_arn) and self._follow(name)

    def disable_rule(self, name: str, event_bus_arn: str | None) -> bool:
        """Disable a rule and its schedule."""
        return super().disable_rule(name, event_bus_arn) and self._follow(name)

    def _follow(self, name: str) -> bool:
        rule = self.event_buses["default"].rules.get(name)
        if isinstance(rule, DeliveringRule):
            rule.follow_schedule()
        return True

    def put_events(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Put events, and add every accepted entry to the journal."""
        entries = super().put_events(events)
        for event, entry in zip(events, entries, strict=True):
            if "EventId" in entry:
                self.bus.cloud.journal.add(
                    "put-events",
                    source=event["Source"],
                    detail_type=event["DetailType"],
                    detail=json.loads(event["Detail"]),
                )
        return entries

    def put_targets(
        self, name: str, event_bus_arn: str | None, targets: list[dict[str, Any]]
    ) -> None:
        """Put targets; refuse a target that the sandbox does not support."""
        for target in targets:
            if not any(service in target["Arn"] for service in (":lambda:", ":sqs:")):
                raise ValidationException(
                    f"The sandbox delivers to Lambda and SQS targets only, not {target['Arn']}."
                )
            for field in UNSUPPORTED:
                if field in target:
                    raise ValidationException(f"The sandbox does not apply a target's {field}.")
        super().put_targets(name, event_bus_arn, targets)


class EventBus:
    """The default event bus, on which the AWS services send their events."""

    def __init__(self, cloud: Cloud, schedule_speed: float):
        self.cloud = cloud
        self.schedule_clock = ScheduleClock(cloud, schedule_speed)
        self.deliveries = Deliveries(cloud)
        DeliveringRule.bus = JournaledEvents.bus = self
        moto_events.Rule = DeliveringRule  # type: ignore[misc]
        events_backends.backend = JournaledEvents

    def emit(self, event: Event, copies: int = 1, delay: float = 0) -> list[str]:
        """Deliver an event to every rule that matches; return the functions that get it."""
        # The region of the event is ignored, so that events of other regions work unchanged.
        buses = events_backends[ACCOUNT][self.cloud.region].event_buses
        rules = buses["default"].rules.values()
        taking = [rule for rule in rules if isinstance(rule, DeliveringRule) and rule.takes(event)]
        functions = [name for rule in taking for name in functions_of(rule.targets)]
        self.cloud.journal.add(
            "notice",
            id=event.get("id"),
            source=event.get("source"),
            detail_type=event.get("detail-type"),
            instance=_instance_of(event),
            time=event.get("time"),
            functions=functions,
        )
        for rule in taking:
            rule.deliver(event, copies, delay)
        return functions


def _instance_of(event: Event) -> str | None:
    detail = event.get("detail")
    if not isinstance(detail, dict):
        return None
    found = detail.get("instance-id") or detail.get("EC2InstanceId")
    return found if isinstance(found, str) else None
