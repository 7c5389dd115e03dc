"""EventBridge rules that deliver events to Lambda and SQS targets.

moto's pattern matcher decides which rules match. moto's own rules do not deliver to Lambda.
"""

import json
import logging
import queue
import threading
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import moto.events.models as moto_events
import urllib3
from moto.events.exceptions import ValidationException
from moto.events.models import EventsBackend, Rule, events_backends
from moto.sqs.models import sqs_backends

from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.notices import Event, timestamp
from leeway_sandbox.aws.schedule_clock import ScheduleClock
from leeway_sandbox.lag import lag

log = logging.getLogger(__name__)

WORKERS = 16
RETRIES = 6  # EventBridge retries for 24 hours; here the last attempt is about 11 seconds later
FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0  # seconds, doubling in between
RETRYABLE = {408, 429}


@dataclass(frozen=True)
class Delivery:
    """The delivery of one event to one target of one rule."""

    event: Event
    rule_arn: str
    target: dict[str, Any]
    attempt: int = 0

    @property
    def is_tick(self) -> bool:
        """Whether a schedule of EventBridge Scheduler sends this event."""
        return self.event.get("detail-type") == "Scheduled Event"

    @property
    def body(self) -> str:
        """The payload: the event, or the constant `Input` of the target."""
        return self.target.get("Input") or json.dumps(self.event)


def functions_of(targets: list[dict[str, Any]]) -> list[str]:
    """Return the names of the functions among these targets."""
    arns = [target["Arn"] for target in targets if ":function:" in target["Arn"]]
    return [arn.split(":function:")[1].split(":")[0] for arn in arns]


class Refused(Exception):
    """The target refused the event; a `permanent` refusal is not retried."""

    def __init__(self, message: str, *, permanent: bool = False):
        super().__init__(message)
        self.permanent = permanent


class Deliveries:
    """Threads that deliver events, retry failures, and then use the dead-letter queue."""

    def __init__(self, cloud: Cloud):
        self._cloud = cloud
        self._queue: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._http = urllib3.PoolManager(maxsize=WORKERS, retries=False)
        self.lambda_url: str | None = None
        for number in range(WORKERS):
            threading.Thread(target=self._work, name=f"delivery-{number}", daemon=True).start()

    def send(self, delivery: Delivery, copies: int = 1) -> None:
        """Deliver asynchronously, `copies` times; faults may change this."""
        about = str(delivery.event.get("detail-type", ""))
        service = "scheduler" if delivery.is_tick else "events"
        fault = self._cloud.faults.take(service, "Deliver", about)
        delay = lag()
        if fault:
            if fault.drop:
                return
            copies *= fault.copies
            delay += self._cloud.faults.delay(fault)
        for _ in range(copies):
            if delay > 0:
                self._cloud.timers.after(delay, self._queue.put, delivery)
            else:
                self._queue.put(delivery)

    def _work(self) -> None:
        while True:
            delivery = self._queue.get()
            try:
                try:
                    self._attempt(delivery)
                except Refused as refusal:
                    self._failed(delivery, refusal)
            except Exception:
                log.exception("A delivery to %s failed and is lost", delivery.target["Arn"])

    def _attempt(self, delivery: Delivery) -> None:
        arn = delivery.target["Arn"]
        if ":sqs:" in arn:
            group = delivery.target.get("SqsParameters", {}).get("MessageGroupId")
            self._enqueue(arn, delivery.body, group_id=group)
            return
        if self.lambda_url is None:
            raise Refused("No Lambda service is linked")
        url = f"{self.lambda_url}/2015-03-31/functions/{quote(arn, safe='')}/invocations"
        headers = {"X-Amz-Invocation-Type": "Event", "Content-Type": "application/json"}
        try:
            answer = self._http.request(
                "POST", url, body=delivery.body, headers=headers, timeout=10.0
            )
        except urllib3.exceptions.HTTPError as error:
            raise Refused(str(error)) from error
        if answer.status >= 300:
            permanent = answer.status < 500 and answer.status not in RETRYABLE
            raise Refused(f"HTTP {answer.status}", permanent=permanent)

    def _failed(self, delivery: Delivery, refusal: Refused) -> None:
        retries = min(
            delivery.target.get("RetryPolicy", {}).get("MaximumRetryAttempts", RETRIES), RETRIES
        )
        if not refusal.permanent and delivery.attempt < retries:
            delay = min(FIRST_DELAY * 2**delivery.attempt, LONGEST_DELAY)
            again = Delivery(
                delivery.event, delivery.rule_arn, delivery.target, delivery.attempt + 1
            )
            self._cloud.timers.after(delay, self._queue.put, again)
            return
        queue_arn = delivery.target.get("DeadLetterConfig", {}).get("Arn")
        log.warning("%s refused an event: %s", delivery.target["Arn"], refusal)
        self._cloud.journal.add(
            "delivery-failed",
            id=delivery.event["id"],
            target=delivery.target["Arn"],
            error=str(refusal),
            attempts=delivery.attempt + 1,
            dead_letter_queue=queue_arn,
        )
        if queue_arn:
            facts = {
                "RULE_ARN": delivery.rule_arn,
                "TARGET_ARN": delivery.target["Arn"],
                "ERROR_CODE": "SDK_CLIENT_ERROR",
                "ERROR_MESSAGE": str(refusal),
                "RETRY_ATTEMPTS": str(delivery.attempt),
            }
            attributes = {
                key: {"DataType": "String", "StringValue": value} for key, value in facts.items()
            }
            self._enqueue(queue_arn, delivery.body, message_attributes=attributes)

    def _enqueue(self, queue_arn: str, body: str, **options: Any) -> None:
        _, _, _, region, _, name = queue_arn.split(":")
        with self._cloud.lock:
            sqs_backends[ACCOUNT][region].send_message(name, body, **options)


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

    def deliver(self, event: Event, copies: int = 1) -> None:
        """Deliver the event to every target."""
        for target in self.targets:
            self.bus.deliveries.send(Delivery(event, self.arn, target), copies)


class JournaledEvents(EventsBackend):
    """moto's EventBridge, with a journal of PutEvents."""

    bus: ClassVar["EventBus"]

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

    def emit(self, event: Event, copies: int = 1) -> list[str]:
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
            rule.deliver(event, copies)
        return functions


def _instance_of(event: Event) -> str | None:
    detail = event.get("detail")
    if not isinstance(detail, dict):
        return None
    found = detail.get("instance-id") or detail.get("EC2InstanceId")
    return found if isinstance(found, str) else None
