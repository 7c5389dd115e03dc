"""Event source mappings: pollers that give the messages of SQS queues to functions.

Rules: "Using Lambda with Amazon SQS" and "Handling errors for an SQS event source in Lambda" in
Lambda's guide.
"""

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from leeway_sandbox.access_entries import POLLER_AGENT, SECRET, access_key
from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import EventSource, Functions, ServiceError, Target
from leeway_sandbox.lambda_service.faults import Faults
from leeway_sandbox.lambda_service.invocation import Invocation, Outcome, lineage_of
from leeway_sandbox.lambda_service.pools import Pools

WAIT_SECONDS = 20
_ANSWER_SECONDS = WAIT_SECONDS + 10


class SqsError(Exception):
    """SQS did not answer, or refused a call."""


class Sqs:
    """Calls SQS with the credentials of one access key."""

    def __init__(self, endpoint: str, region: str, access_key: str) -> None:
        self._endpoint, self._region = endpoint, region
        self._credentials = Credentials(access_key, SECRET)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        self._http = aiohttp.ClientSession(timeout=timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def url(self, queue_arn: str) -> str:
        """Return the URL of a queue."""
        answer = await self._call("GetQueueUrl", QueueName=queue_arn.rpartition(":")[2])
        return str(answer["QueueUrl"])

    async def visibility_timeout(self, url: str) -> int:
        """Return the time for which a queue hides a received message, in seconds."""
        name = "VisibilityTimeout"
        answer = await self._call("GetQueueAttributes", QueueUrl=url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    async def receive(self, url: str, count: int) -> list[dict[str, Any]]:
        """Receive up to `count` messages; wait for the first one up to 20 seconds."""
        answer = await self._call(
            "ReceiveMessage",
            QueueUrl=url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=WAIT_SECONDS,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        received: list[dict[str, Any]] = answer.get("Messages", [])
        return received

    async def delete(self, url: str, receipt: str) -> None:
        """Delete a received message."""
        await self._call("DeleteMessage", QueueUrl=url, ReceiptHandle=receipt)

    async def hide(self, url: str, receipt: str, seconds: int) -> None:
        """Make a received message receivable again in this time."""
        await self._call(
            "ChangeMessageVisibility",
            QueueUrl=url,
            ReceiptHandle=receipt,
            VisibilityTimeout=seconds,
        )

    async def _call(self, action: str, **parameters: Any) -> dict[str, Any]:
        body = json.dumps(parameters)
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
            "User-Agent": POLLER_AGENT,
        }
        request = AWSRequest("POST", f"{self._endpoint}/", data=body, headers=headers)
        SigV4Auth(self._credentials, "sqs", self._region).add_auth(request)
        try:
            async with self._http.post(
                request.url, data=body, headers=dict(request.headers.items())
            ) as answer:
                content = await answer.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise SqsError(f"{action}: {error!r}") from error
        if answer.status != HTTPStatus.OK:
            raise SqsError(f"{action}: HTTP {answer.status}: {content[:300]!r}")
        found: dict[str, Any] = json.loads(content or b"{}")
        return found


_log = logging.getLogger(__name__)
_AFTER_AN_ERROR = 0.5  # seconds
_SANDBOX = access_key("sandbox")

type Message = dict[str, Any]


class EventSources:
    """The pollers of all event source mappings."""

    def __init__(
        self,
        functions: Functions,
        pools: Pools,
        faults: Faults,
        journal: Journal,
        *,
        aws_endpoint: str | None,
        redelivery: int,
    ) -> None:
        self._functions, self._pools = functions, pools
        self._faults, self._journal = faults, journal
        self._aws_endpoint, self._redelivery = aws_endpoint, redelivery
        self._pollers: list[_Poller] = []

    async def replace(self, sources: list[EventSource]) -> None:
        """Replace all mappings; raises ServiceError if a function does not exist."""
        targets = [(source, self._functions.resolve(source.function)) for source in sources]
        await self.close()
        if self._aws_endpoint is None:
            return
        self._pollers = [
            _Poller(
                source,
                target,
                self._pools,
                self._faults,
                self._journal,
                self._redelivery,
                Sqs(self._aws_endpoint, target.function.region, target.function.access_key),
                Sqs(self._aws_endpoint, target.function.region, _SANDBOX),
            )
            for source, target in targets
        ]
        for poller in self._pollers:
            poller.start()

    def sources(self) -> list[EventSource]:
        """Return the mappings."""
        return [poller.source for poller in self._pollers]

    def enable(self, source: EventSource, *, enabled: bool) -> None:
        """Start or stop a mapping."""
        for poller in self._pollers:
            if poller.source == source:
                poller.enable(enabled=enabled)

    def state(self, source: EventSource) -> str:
        """Return the state of a mapping, as Lambda names it."""
        return next(poller.state for poller in self._pollers if poller.source == source)

    def status(self) -> dict[str, dict[str, int]]:
        """Return the number of running batches of each mapping."""
        return {poller.source.name: {"running": poller.running} for poller in self._pollers}

    async def close(self) -> None:
        """Stop polling. A batch that runs is not deleted, so its messages come again."""
        pollers, self._pollers = self._pollers, []
        for poller in pollers:
            await poller.close()


@dataclass(eq=False)
class _Poller:
    """Polls the queue of one mapping. `sqs` calls with the role of the function, as AWS does, and
    `control` with the credentials of the sandbox."""

    source: EventSource
    target: Target
    pools: Pools
    faults: Faults
    journal: Journal
    redelivery: int
    sqs: Sqs
    control: Sqs
    running: int = 0
    visibility_timeout: int = 0  # of the queue, in seconds
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    polling: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """Enabled, Disabling while a batch runs, or Disabled."""
        if self.polling is not None:
            return "Enabled"
        return "Disabling" if self.running else "Disabled"

    def start(self) -> None:
        """Begin to poll."""
        self.polling = self._spawn(self._poll())

    def enable(self, *, enabled: bool) -> None:
        """Begin to poll, or stop. A message that SQS is just delivering then comes again when its
        visibility timeout has ended, and batches that run go on."""
        if enabled and self.polling is None:
            self.start()
        elif not enabled and self.polling is not None:
            self.polling.cancel()
            self.polling = None

    async def close(self) -> None:
        """Stop to poll."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.sqs.close()
        await self.control.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _poll(self) -> None:
        slots = asyncio.Semaphore(self.source.concurrency or self.pools.concurrency)
        url = ""
        while True:
            await slots.acquire()
            messages: list[Message] = []
            try:
                url = url or await self._find()
                messages = await self.sqs.receive(url, self.source.batch_size)
            except SqsError as error:
                _log.warning("%s cannot receive: %s", self.source.name, error)
                await asyncio.sleep(_AFTER_AN_ERROR)
            if messages:
                self._spawn(self._handle(url, messages, slots))
            else:
                slots.release()

    async def _find(self) -> str:
        url = await self.control.url(self.source.queue)
        self.visibility_timeout = await self.sqs.visibility_timeout(url)
        return url

    async def _handle(self, url: str, messages: list[Message], slots: asyncio.Semaphore) -> None:
        self.running += 1
        try:
            outcome = await self._invoke(messages)
            failed = _failed(outcome, messages, partial=self.source.partial_failures)
            self._record(messages, outcome, failed)
            for message in messages:
                if message["MessageId"] not in failed:
                    await self._settle(url, message)
                elif outcome.ending != "ok":
                    await self._shorten(url, message)
        finally:
            self.running -= 1
            slots.release()

    async def _invoke(self, messages: list[Message]) -> Outcome:
        function = self.target.function
        await asyncio.sleep(self.faults.latency_of(function.name))
        pool = self.pools.find(function.name)
        if pool is None:
            return Outcome.failed("error", "Sandbox.NoFunction", f"{function.name} is gone")
        traces = (message["Attributes"].get("AWSTraceHeader", "") for message in messages)
        try:
            lineage = lineage_of(traces, function)
        except ServiceError as error:
            # Lambda drops the messages of a loop.
            self.journal.add("recursion-stopped", function=function.name, reason=str(error))
            return Outcome("ok", b"null")
        records = [_record(message, self.source.queue) for message in messages]
        payload = json.dumps({"Records": records}).encode()
        return await pool.run(Invocation(self.target, payload, lineage=lineage))

    async def _settle(self, url: str, message: Message) -> None:
        """Delete a handled message, unless a fault repeats it."""
        copies = self.faults.copies_of(self.target.function.name)
        if int(message["Attributes"]["ApproximateReceiveCount"]) < copies:
            await self._change(self.control.hide(url, _receipt(message), 0))
        else:
            await self._change(self.sqs.delete(url, _receipt(message)))

    async def _shorten(self, url: str, message: Message) -> None:
        """Let a message come again earlier than at AWS: there, the visibility timeout of the queue
        must end. The visibility of a message that the function reports is the function's choice."""
        if self.redelivery < self.visibility_timeout:
            await self._change(self.control.hide(url, _receipt(message), self.redelivery))

    async def _change(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except SqsError as error:
            # The message comes again, as it does when a poller of AWS cannot delete it.
            _log.warning("%s cannot settle a message: %s", self.source.name, error)

    def _record(self, messages: list[Message], outcome: Outcome, failed: frozenset[str]) -> None:
        self.journal.add(
            "queue-batch",
            function=self.target.function.name,
            queue=self.source.queue.rpartition(":")[2],
            outcome=outcome.ending,
            failed=sorted(failed),
            messages=[
                {
                    "id": message["MessageId"],
                    "group": message["Attributes"].get("MessageGroupId"),
                    "receives": int(message["Attributes"]["ApproximateReceiveCount"]),
                }
                for message in messages
            ],
        )


def _receipt(message: Message) -> str:
    return str(message["ReceiptHandle"])


def _record(message: Message, queue: str) -> dict[str, Any]:
    """Return a record of the event: "Example Amazon SQS FIFO message event" in Lambda's guide."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {
            name: {key[0].lower() + key[1:]: value for key, value in attribute.items()}
            for name, attribute in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue,
        "awsRegion": queue.split(":")[3],
    }


def _failed(outcome: Outcome, messages: list[Message], *, partial: bool) -> frozenset[str]:
    """Return the ids of the messages that come again.

    An answer that is no valid partial batch response fails the whole batch: "Implementing partial
    batch responses" in Lambda's guide.
    """
    everything = frozenset(str(message["MessageId"]) for message in messages)
    if outcome.ending != "ok":
        return everything
    if not partial:
        return frozenset()
    try:
        answer = json.loads(outcome.payload or b"null")
        failures = (answer or {}).get("batchItemFailures") or []
        failed = frozenset(failure["itemIdentifier"] for failure in failures)
    except (ValueError, AttributeError, KeyError, TypeError):
        return everything
    return failed if failed <= everything else everything
