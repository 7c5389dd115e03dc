"""The queue of provision_nodes, by boto3: its sender, and its receiver.

It is a FIFO queue with one message group for each cluster, so that SQS delivers the messages of a
cluster to one run at a time. A message for later has a group of its own: the receiver hides it
until its time, which would hold back the whole group, and then sends a message to the cluster's.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import batched
from typing import Any
from uuid import uuid4

from leeway.aws.errors import aws_errors

WAKES_APART = 3
"""Seconds between two times at which messages for later are due, so that they wake a cluster at
most 20 times a minute. SQS drops a message for a time for which it has one."""


class SqsProvisionNodes:
    """The ProvisionNodes Protocol; `client` returns boto3's SQS client, `url` is the queue's."""

    def __init__(self, client: Callable[[], Any], url: str) -> None:
        self._client = client
        self._url = url

    def wake(self, cluster: str, why: str, at: datetime | None = None) -> None:
        """Send a message. Each one for now has an id of its own: SQS drops a message whose id it
        got within five minutes, and what it announces may be newer than the last run."""
        body: dict[str, Any] = {"cluster": cluster, "why": why}
        group, unique = cluster, uuid4().hex
        if at is not None:
            body["at"] = -int(-at.timestamp() // WAKES_APART) * WAKES_APART
            # The name of a cluster has no colon.
            group = unique = f"{cluster}:{body['at']}"
        with aws_errors():
            self._client().send_message(
                QueueUrl=self._url,
                MessageBody=json.dumps(body),
                MessageGroupId=group,
                MessageDeduplicationId=unique,
            )


_IN_ONE_CALL = 10
"""Entries of a batch. Source: SQS API reference, ChangeMessageVisibilityBatch."""


class SqsMessageVisibility:
    """The MessageVisibility Protocol; `client` returns boto3's SQS client, `url` is the queue's."""

    def __init__(self, client: Callable[[], Any], url: str) -> None:
        self._client = client
        self._url = url

    def hide(self, receipts: Sequence[str], seconds: int) -> None:
        """Change the visibility of messages. A message that SQS refuses keeps its own: its receipt
        may have expired."""
        for some in batched(receipts, _IN_ONE_CALL, strict=False):
            entries = [
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": seconds}
                for number, receipt in enumerate(some)
            ]
            with aws_errors():
                self._client().change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
