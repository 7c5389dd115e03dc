"""Lets EventBridge Scheduler's schedules invoke their targets: recurring ones, and those of once.

Stands in for invocation, which moto lacks: its schedules are only stored.
"""

import json
import re
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from moto.scheduler import urls
from moto.scheduler.exceptions import ValidationException
from moto.scheduler.models import EventBridgeSchedulerBackend, Schedule, scheduler_backends
from moto.scheduler.responses import EventBridgeSchedulerResponse

from sandbox.aws import notices
from sandbox.aws.delivery import Delivery, functions_of
from sandbox.aws.eventbridge import EventBus
from sandbox.aws.schedule_clock import ScheduledTarget
from sandbox.aws.schedule_expressions import At, BadExpressionError, parse

NAME = re.compile(r"[0-9a-zA-Z_.-]{1,64}")


class LivingSchedules(EventBridgeSchedulerBackend):
    """moto's Scheduler, whose schedules are due sometime."""

    bus: ClassVar[EventBus]

    @property
    def _url_module(self) -> Any:
        paths = dict.fromkeys(urls.url_paths, SchedulesResponse.dispatch)
        return SimpleNamespace(url_bases=urls.url_bases, url_paths=paths)

    def create_schedule(self, **given: Any) -> Schedule:  # type: ignore[override]
        """As moto does, and the schedule begins; raises what Scheduler does for bad input."""
        if not NAME.fullmatch(given["name"]):
            raise ValidationException(f"Value {given['name']!r} at 'name' is not valid.")
        _check(given)
        self.get_schedule_group(given["group_name"])
        schedule = super().create_schedule(**given)
        self._begin(schedule)
        return schedule

    def update_schedule(self, **given: Any) -> Schedule:  # type: ignore[override]
        """As moto does; what is not given falls back to its default, and the schedule restarts."""
        _check(given)
        schedule = super().update_schedule(**{**given, "state": given["state"] or "ENABLED"})
        self._begin(schedule)
        return schedule

    def delete_schedule(self, group_name: str | None, name: str) -> None:
        """As moto does; it is not due any more."""
        schedule = self.get_schedule(group_name, name)
        super().delete_schedule(group_name, name)
        self.bus.schedule_clock.remove(schedule.arn)

    def delete_schedule_group(self, name: str | None) -> None:
        """As moto does, with the schedules that are in it."""
        for schedule in self.get_schedule_group(name).schedules.values():
            self.bus.schedule_clock.remove(schedule.arn)
        super().delete_schedule_group(name)

    def _begin(self, schedule: Schedule) -> None:
        schedule_clock = self.bus.schedule_clock
        schedule_clock.remove(schedule.arn)
        if schedule.state == "DISABLED":
            return
        text = schedule.schedule_expression
        expression = parse(text, schedule.schedule_expression_timezone)
        recurring = not isinstance(expression, At)  # dates are ignored for what happens once

        def fire(at: datetime) -> list[str]:
            return self._invoke(schedule, at)

        def on_finished() -> None:
            if schedule.action_after_completion == "DELETE":
                self.delete_schedule(schedule.group_name, schedule.name)

        now = datetime.now(UTC)
        entry = ScheduledTarget(schedule.name, schedule.arn, text, expression, fire, now)
        if recurring:
            # "Rate-based schedules": without a start date the first invocation comes at once.
            entry.since = _moment(schedule.start_date) or now
            entry.until = _moment(schedule.end_date)
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
        event["detail"] = "{}"  # text, unlike a rule's
        # "Adding context attributes" in Scheduler's user guide.
        attributes = {
            "schedule-arn": schedule.arn,
            "scheduled-time": event["time"],
            "execution-id": uuid.uuid4().hex[:16],
            "attempt-number": "1",
        }
        for name, value in attributes.items():
            if target.get("Input"):
                target["Input"] = target["Input"].replace(f"<aws.scheduler.{name}>", value)
        self.bus.deliveries.send(Delivery(event, schedule.arn, target))
        return functions_of([target])


class SchedulesResponse(EventBridgeSchedulerResponse):
    """The actions; what is not here is moto's."""

    def update_schedule(self) -> str:
        """moto's, with what becomes of the schedule afterwards, which moto leaves out."""
        answer: str = super().update_schedule()
        name = self.uri.split("?")[0].split("/")[-1]
        schedule = self.scheduler_backend.get_schedule(self._get_param("GroupName"), name)
        schedule.action_after_completion = self._get_param("ActionAfterCompletion")
        return answer


def _check(given: dict[str, Any]) -> None:
    try:
        parse(given["schedule_expression"], given["schedule_expression_timezone"])
    except BadExpressionError as error:
        raise ValidationException(str(error)) from error
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


def _moment(given: float | str | None) -> datetime | None:
    """A date of the API, in epoch seconds or, from a template, ISO 8601."""
    if given is None:
        return None
    try:
        return datetime.fromtimestamp(float(given), UTC)
    except ValueError:
        return datetime.fromisoformat(str(given)).astimezone(UTC)


def install(bus: EventBus) -> None:
    """Put these schedules in moto's place."""
    LivingSchedules.bus = bus
    scheduler_backends.backend = LivingSchedules
