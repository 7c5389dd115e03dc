"""EventBridge Scheduler's schedules, recurring and one-time, which invoke their targets.

moto only stores schedules.
"""

import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from moto.scheduler import urls
from moto.scheduler.exceptions import ValidationException
from moto.scheduler.models import EventBridgeSchedulerBackend, Schedule, scheduler_backends
from moto.scheduler.responses import EventBridgeSchedulerResponse

from leeway_sandbox.aws import notices
from leeway_sandbox.aws.eventbridge import Delivery, EventBus, functions_of
from leeway_sandbox.aws.schedule_clock import (
    At,
    BadExpressionError,
    ScheduledTarget,
    parse_expression,
)

NAME = re.compile(r"[0-9a-zA-Z_.-]{1,64}")


class TimedSchedules(EventBridgeSchedulerBackend):
    """moto's Scheduler, whose schedules run."""

    bus: ClassVar[EventBus]

    @property
    def _url_module(self) -> Any:
        paths = dict.fromkeys(urls.url_paths, SchedulesResponse.dispatch)
        return SimpleNamespace(url_bases=urls.url_bases, url_paths=paths)

    def create_schedule(self, **given: Any) -> Schedule:  # type: ignore[override]
        """Create a schedule and start it; raises Scheduler's errors for bad input."""
        if not NAME.fullmatch(given["name"]):
            raise ValidationException(f"Value {given['name']!r} at 'name' is not valid.")
        _check(given)
        self.get_schedule_group(given["group_name"])
        schedule = super().create_schedule(**given)
        self._begin(schedule)
        return schedule

    def update_schedule(self, **given: Any) -> Schedule:  # type: ignore[override]
        """Update a schedule and restart it; omitted fields get their defaults."""
        _check(given)
        schedule = super().update_schedule(**{**given, "state": given["state"] or "ENABLED"})
        self._begin(schedule)
        return schedule

    def delete_schedule(self, group_name: str | None, name: str) -> None:
        """Delete a schedule, which then does not run any more."""
        schedule = self.get_schedule(group_name, name)
        super().delete_schedule(group_name, name)
        self.bus.schedule_clock.remove(schedule.arn)

    def _begin(self, schedule: Schedule) -> None:
        schedule_clock = self.bus.schedule_clock
        schedule_clock.remove(schedule.arn)
        if schedule.state == "DISABLED":
            return
        text = schedule.schedule_expression
        expression = parse_expression(text, schedule.schedule_expression_timezone)

        def fire(at: datetime) -> list[str]:
            return self._invoke(schedule, at)

        def on_finished() -> None:
            if schedule.action_after_completion == "DELETE":
                self.delete_schedule(schedule.group_name, schedule.name)

        now = datetime.now(UTC)
        entry = ScheduledTarget(schedule.name, schedule.arn, text, expression, fire, now)
        if not isinstance(expression, At):
            entry.since = now  # "Rate-based schedules": the first invocation is immediate
        entry.on_finished = on_finished
        schedule_clock.add(entry)

    def _invoke(self, schedule: Schedule, at: datetime) -> list[str]:
        target = dict(schedule.target)
        event = notices.event(
            "aws.scheduler",
            "Scheduled Event",
            self.region_name,
            [schedule.arn],
            {},
            at.timestamp(),
        )
        event["detail"] = "{}"  # text; a rule sends an object
        self.bus.deliveries.send(Delivery(event, schedule.arn, target))
        return functions_of([target])


class SchedulesResponse(EventBridgeSchedulerResponse):
    """The actions that differ from moto's."""

    def update_schedule(self) -> str:
        """Update a schedule, including ActionAfterCompletion, which moto ignores."""
        answer: str = super().update_schedule()
        name = self.uri.split("?")[0].split("/")[-1]
        schedule = self.scheduler_backend.get_schedule(self._get_param("GroupName"), name)
        schedule.action_after_completion = self._get_param("ActionAfterCompletion")
        return answer


def _check(given: dict[str, Any]) -> None:
    try:
        parse_expression(given["schedule_expression"], given["schedule_expression_timezone"])
    except BadExpressionError as error:
        raise ValidationException(str(error)) from error
    if given.get("start_date") or given.get("end_date"):
        raise ValidationException("The sandbox supports neither a StartDate nor an EndDate.")
    target = given["target"] or {}
    arn = target.get("Arn", "")
    if not arn.startswith(("arn:aws:lambda:", "arn:aws:sqs:")):
        raise ValidationException(f"The sandbox invokes Lambda and SQS targets only, not {arn}.")
    if not target.get("RoleArn"):
        raise ValidationException("RoleArn: a target needs the role that may invoke it.")
    if target.get("Input"):
        try:
            json.loads(target["Input"])
        except ValueError as error:
            raise ValidationException(f"Input is not JSON: {error}") from error


def install(bus: EventBus) -> None:
    """Let moto use this backend."""
    TimedSchedules.bus = bus
    scheduler_backends.backend = TimedSchedules
