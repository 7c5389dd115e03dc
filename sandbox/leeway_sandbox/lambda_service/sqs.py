"""The SQS calls of the pollers, over HTTP in SQS's JSON protocol.

boto3 would hold a thread for every long poll.
"""

import json
from http import HTTPStatus
from typing import Any

import aiohttp
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from leeway_sandbox.access_entries import POLLER_AGENT, SECRET

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
