"""Delivers matched events to their targets: Lambda functions over HTTP, SQS queues in moto.

moto does not deliver to Lambda targets.
"""

import json
import logging
import queue
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import urllib3
from moto.sqs.models import sqs_backends

from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.notices import Event

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
        """Whether a schedule sends this event: of EventBridge Scheduler or of a rule."""
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

    def send(self, delivery: Delivery, copies: int = 1, delay: float = 0) -> None:
        """Deliver asynchronously, `copies` times, after `delay` seconds; faults may change this."""
        about = str(delivery.event.get("detail-type", ""))
        service = "scheduler" if delivery.is_tick else "events"
        fault = self._cloud.faults.take(service, "Deliver", about)
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
