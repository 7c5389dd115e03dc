"""The queue of provision_nodes, by boto3: its sender, and its receiver.

It is a FIFO queue with one message group for each cluster, so that SQS delivers the messages of a
cluster to one run at a time.
"""

import json
from collections.abc import Callable, Sequence
from itertools import batched
from typing import Any
from uuid import uuid4

from leeway.aws.errors import aws_errors


class SqsProvisionNodes:
    """The ProvisionNodes Protocol; `client` returns boto3's SQS client, `url` is the queue's."""

    def __init__(self, client: Callable[[], Any], url: str) -> None:
        self._client = client
        self._url = url

    def wake(self, cluster: str, why: str) -> None:
        """Send a message. Each has an id of its own: SQS drops a message whose id it got within
        five minutes, and what it announces may be newer than the last run."""
        with aws_errors():
            self._client().send_message(
                QueueUrl=self._url,
                MessageBody=json.dumps({"cluster": cluster, "why": why}),
                MessageGroupId=cluster,
                MessageDeduplicationId=uuid4().hex,
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
