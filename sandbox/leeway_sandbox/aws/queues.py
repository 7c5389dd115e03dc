"""SQS queues that deduplicate and wait as those of AWS do.

moto forgets a deduplication id when its message is deleted, and a long poll of moto uses a thread
that never sleeps while the group of a message is busy.
"""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import moto.sqs.models as moto_sqs
from moto.core.utils import unix_time_millis
from moto.sqs import urls
from moto.sqs.exceptions import QueueDoesNotExist
from moto.sqs.models import DEDUPLICATION_TIME_IN_SECONDS, Message, Queue, SQSBackend, sqs_backends

from leeway_sandbox.aws.calls import Answer, Call, Environ
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.control import Controls
from leeway_sandbox.errors import SandboxError

LONGEST_WAIT = 20  # seconds


class WaitingQueue(Queue):
    """moto's queue, which remembers deduplication ids and wakes the long polls."""

    changes: ClassVar["Changes"]

    def __init__(self, *args: Any, **kwargs: Any):
        self._sent: dict[tuple[str | None, str], int] = {}
        super().__init__(*args, **kwargs)

    def add_message(self, message: Message) -> None:
        """Add a message, unless one with its deduplication id was sent in the last five minutes."""
        if self.fifo_queue and self._repeats(message):
            return
        self._messages.append(message)
        self.changes.announce(self.queue_arn)

    def delete_message(self, receipt_handle: str) -> None:
        """Delete a message, which makes the next one of its group receivable."""
        super().delete_message(receipt_handle)
        self.changes.announce(self.queue_arn)

    def _repeats(self, message: Message) -> bool:
        """Whether the message is a duplicate: SQS guide, "FIFO queue key terms"."""
        sent_at = int(message.sent_timestamp or 0)
        oldest = sent_at - DEDUPLICATION_TIME_IN_SECONDS * 1000
        self._sent = {key: at for key, at in self._sent.items() if at > oldest}
        if message.deduplication_id is None:
            return False
        by_group = self.deduplication_scope == "messageGroup"  # type: ignore[attr-defined]
        key = (message.group_id if by_group else None, message.deduplication_id)
        if key in self._sent:
            return True
        self._sent[key] = sent_at
        return False

    def next_receivable(self) -> float | None:
        """Return the epoch milliseconds at which a message is receivable if nothing changes."""
        now = unix_time_millis()
        held = {message for message in self.pending_messages if message.visible_at >= now}
        groups = {message.group_id for message in held} if self.fifo_queue else set()
        free = (one for one in self._messages if one not in held and one.group_id not in groups)
        times = [max(message.visible_at, message.delayed_until) for message in free]
        return min([*times, *(message.visible_at for message in held)], default=None)


class WaitingQueues(SQSBackend):
    """moto's SQS, in which a receipt never waits: `receive` does."""

    changes: ClassVar["Changes"]

    @property
    def _url_module(self) -> Any:
        return urls

    def receive_message(
        self, queue_name: str, count: int, wait_seconds_timeout: int, *rest: Any, **more: Any
    ) -> list[Message]:
        """Receive the messages that are there now."""
        return super().receive_message(queue_name, count, 0, *rest, **more)

    def change_message_visibility(
        self, queue_name: str, receipt_handle: str, visibility_timeout: int
    ) -> None:
        """Change when a message is receivable again."""
        super().change_message_visibility(queue_name, receipt_handle, visibility_timeout)
        self.changes.announce(self.get_queue(queue_name).queue_arn)


class Changes:
    """Wakes the long polls of a queue. They wait in the event loop that creates this object."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._loop = asyncio.get_running_loop()

    def announce(self, queue_arn: str) -> None:
        """Wake every long poll of a queue; any thread may call this."""
        self._loop.call_soon_threadsafe(self._wake, queue_arn)

    def _wake(self, queue_arn: str) -> None:
        for event in self._waiting.get(queue_arn, ()):
            event.set()

    async def wait(self, queue_arn: str, seconds: float) -> None:
        """Wait until the queue changes, at most this long."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(queue_arn, [])
        waiting.append(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            waiting.remove(event)


def with_trace(environ: Environ) -> Environ:
    """Return a SendMessage call in SQS's JSON protocol with the trace header of its caller as a
    system attribute of the message: SQS guide, "message system attributes"."""
    trace = environ.get("HTTP_X_AMZN_TRACE_ID")
    if not trace or not environ["CONTENT_TYPE"].startswith("application/x-amz-json"):
        return environ
    attribute = {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}}
    given = {"MessageSystemAttributes": attribute} | json.loads(environ["wsgi.input"].read())
    body = json.dumps(given).encode()
    return {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}


@dataclass(frozen=True)
class LongPoll:
    """A ReceiveMessage call: the queue, and how long the call waits for a message, in seconds."""

    queue: WaitingQueue
    seconds: float

    @classmethod
    def of(cls, call: Call, path: str, body: bytes) -> Self | None:
        """Read a call; None if its queue does not exist or its time is not valid, which moto
        answers."""
        if call.form:
            given: dict[str, Any] = {key: values[0] for key, values in call.form.items()}
        else:
            given = json.loads(body)
        url = given.get("QueueUrl") or path
        try:
            queue = sqs_backends[ACCOUNT][call.region].get_queue(urlsplit(url).path.split("/")[-1])
        except QueueDoesNotExist:
            return None
        assert isinstance(queue, WaitingQueue)
        default = queue.receive_message_wait_time_seconds  # type: ignore[attr-defined]
        seconds = float(given.get("WaitTimeSeconds", default))
        return cls(queue, seconds) if 0 <= seconds <= LONGEST_WAIT else None


async def receive(poll: LongPoll, changes: Changes, answer: Callable[[], Answer]) -> Answer:
    """Answer a ReceiveMessage call when there is a message, or when its time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + poll.seconds
    while True:
        result = answer()
        left = end - loop.time()
        if left <= 0 or b"ReceiptHandle" in result[2]:
            return result
        at = poll.queue.next_receivable()
        # A message is receivable after its time, not at it.
        due = left if at is None else (at - unix_time_millis()) / 1000 + 0.001
        await changes.wait(poll.queue.queue_arn, min(left, max(due, 0.001)))


def install(changes: Changes) -> None:
    """Let moto use these queues."""
    WaitingQueue.changes = WaitingQueues.changes = changes
    moto_sqs.Queue = WaitingQueue  # type: ignore[misc]
    sqs_backends.backend = WaitingQueues


log = logging.getLogger(__name__)


class Killer:
    """Asks the Lambda service to kill the workers of a caller; `headers` have the control token."""

    def __init__(self, cloud: Cloud, bus: EventBus, headers: Mapping[str, str]):
        self._cloud, self._bus, self._headers = cloud, bus, headers

    async def kill(self, call: Call) -> None:
        """Kill the running workers of the function that makes this call."""
        functions = await asyncio.to_thread(self._kill, call.access_key)
        self._cloud.journal.add("caller-killed", call=str(call), functions=functions)

    def _kill(self, access_key: str) -> list[str]:
        service = Controls({"lambda": str(self._bus.deliveries.lambda_url)}, self._headers)
        try:
            killed: list[str] = service.call("lambda", "POST", "kill", {"accessKey": access_key})[
                "functions"
            ]
        except SandboxError as error:
            log.warning("The caller was not killed: %s", error)
            return []
        return killed
