"""DynamoDB's batch calls. A call may leave items of its batch unprocessed: those are retried.

botocore retries a call that fails, but not the unprocessed items of a call that succeeds.
Source: DynamoDB developer guide, "Error handling with DynamoDB".
"""

from collections.abc import Iterable
from itertools import batched
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.clock import Clock
from leeway.execution.retrying import retry_while_unavailable
from leeway.ports.aws import CloudUnavailable

WRITES_PER_CALL = 25
KEYS_PER_CALL = 100
"""Source: DynamoDB API reference, "BatchWriteItem" and "BatchGetItem"."""


def write_batches(
    client: Any, table: str, requests: Iterable[dict[str, Any]], clock: Clock
) -> None:
    """Send put and delete requests by BatchWriteItem.

    Raises:
        CloudUnavailable: DynamoDB is unavailable, or leaves items of a batch unprocessed until the
            retry timeout.
        CloudRefused: DynamoDB refuses a batch.
    """
    for batch in batched(requests, WRITES_PER_CALL, strict=False):
        _write_batch(client, table, list(batch), clock)


def _write_batch(client: Any, table: str, pending: list[dict[str, Any]], clock: Clock) -> None:
    def write_pending() -> None:
        nonlocal pending
        with aws_errors():
            answer = client.batch_write_item(RequestItems={table: pending})
        pending = answer.get("UnprocessedItems", {}).get(table, [])
        if pending:
            raise CloudUnavailable(f"BatchWriteItem left {len(pending)} items unprocessed")

    retry_while_unavailable(clock, write_pending)


def get_batches(
    client: Any, table: str, keys: Iterable[dict[str, Any]], clock: Clock
) -> list[dict[str, Any]]:
    """Return the items of these keys by BatchGetItem, in no order. Missing items are left out.

    Raises:
        CloudUnavailable: DynamoDB is unavailable, or leaves keys of a batch unprocessed until the
            retry timeout.
        CloudRefused: DynamoDB refuses a batch.
    """
    found: list[dict[str, Any]] = []
    for batch in batched(keys, KEYS_PER_CALL, strict=False):
        found += _get_batch(client, table, list(batch), clock)
    return found


def _get_batch(
    client: Any, table: str, pending: list[dict[str, Any]], clock: Clock
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def get_pending() -> None:
        nonlocal pending
        with aws_errors():
            answer = client.batch_get_item(RequestItems={table: {"Keys": pending}})
        found.extend(answer["Responses"].get(table, []))
        pending = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
        if pending:
            raise CloudUnavailable(f"BatchGetItem left {len(pending)} keys unprocessed")

    retry_while_unavailable(clock, get_pending)
    return found
