"""Asynchronous invocations, with retries, dead-letter queues and destinations."""

import asyncio
import datetime
import json
import logging
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import FunctionDefinition
from leeway_sandbox.lambda_service.invocation import Invocation, Outcome
from leeway_sandbox.lambda_service.pools import Pools

_log = logging.getLogger(__name__)


class Events:
    """The accepted events that are not handled yet."""

    def __init__(
        self, pools: Pools, journal: Journal, *, aws_endpoint: str | None, retry_delay: float
    ) -> None:
        self._pools = pools
        self._journal = journal
        self._aws_endpoint = aws_endpoint
        self._retry_delay = retry_delay
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def accept(self, invocation: Invocation) -> None:
        """Accept an event of a plain function: run it until it succeeds or has no retries left."""
        self._spawn(self._handle(invocation))

    def execution_failed(self, function: FunctionDefinition, payload: bytes) -> None:
        """Send the event of a failed, stopped or timed-out execution to the dead-letter queue."""
        if function.dead_letter:
            self._spawn(
                self._send(function, function.dead_letter, payload.decode(), payload.decode(), {})
            )

    async def close(self) -> None:
        """Cancel all pending events."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, first: Invocation) -> None:
        function = first.target.function
        attempt = 0
        while True:
            pool = self._pools.find(function.name)
            if pool is None:
                return
            invocation = Invocation(
                first.target, first.payload, first.request_id, lineage=first.lineage
            )
            outcome = await pool.run(invocation)
            attempt += 1
            if outcome.ending == "ok":
                return
            if attempt > function.retries:
                break
            await asyncio.sleep(self._retry_delay * attempt)
        await self._give_up(first, outcome, attempt)

    async def _give_up(self, invocation: Invocation, outcome: Outcome, attempts: int) -> None:
        function = invocation.target.function
        payload = invocation.payload.decode()
        if function.on_failure:
            record = _record(invocation, outcome, attempts)
            await self._send(function, function.on_failure, json.dumps(record), payload, {})
        if function.dead_letter:
            # "Dead-letter queues" in Lambda's guide: the event itself, the error as attributes.
            attributes = {
                "RequestID": invocation.request_id,
                "ErrorCode": "200",
                "ErrorMessage": outcome.error[:1024],
            }
            await self._send(function, function.dead_letter, payload, payload, attributes)
        if not function.on_failure and not function.dead_letter:
            self._journal.add("event-dropped", function=function.name, payload=json.loads(payload))

    async def _send(
        self,
        function: FunctionDefinition,
        queue: str,
        body: str,
        payload: str,
        attributes: dict[str, str],
    ) -> None:
        delivered = True
        try:
            await asyncio.to_thread(self._send_message, function, queue, body, attributes)
        except (BotoCoreError, ClientError):
            # The journal records it, so that the loss of an event is visible.
            _log.exception("Cannot send to %s", queue)
            delivered = False
        self._journal.add(
            "dead-letter",
            function=function.name,
            queue=queue,
            payload=json.loads(payload),
            delivered=delivered,
        )

    def _send_message(
        self, function: FunctionDefinition, queue: str, body: str, attributes: dict[str, str]
    ) -> None:
        sqs = boto3.session.Session().client(
            "sqs",
            endpoint_url=self._aws_endpoint,
            region_name=function.region,
            aws_access_key_id=function.access_key,
            aws_secret_access_key=function.access_key,
        )
        url = sqs.get_queue_url(QueueName=queue.rpartition(":")[2])["QueueUrl"]
        sqs.send_message(
            QueueUrl=url,
            MessageBody=body,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value}
                for name, value in attributes.items()
            },
        )


def _record(invocation: Invocation, outcome: Outcome, attempts: int) -> dict[str, Any]:
    """Return an invocation record: "Capturing records of Lambda asynchronous invocations"."""
    return {
        "version": "1.0",
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "requestContext": {
            "requestId": invocation.request_id,
            "functionArn": invocation.target.arn,
            "condition": "RetriesExhausted",
            "approximateInvokeCount": attempts,
        },
        "requestPayload": json.loads(invocation.payload),
        "responseContext": {
            "statusCode": 200,
            "executedVersion": invocation.target.version,
            "functionError": "Unhandled",
        },
        "responsePayload": json.loads(outcome.payload),
    }
