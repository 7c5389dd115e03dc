"""Starts of other functions, by Lambda's Invoke."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.clock import Clock

STARTS_PER_SECOND = 100
"""Durable executions that one function starts per second. Lambda allows 300 per second for all
functions of a region. Source: Lambda developer guide, "Lambda quotas"."""


class RateLimit:
    """Limits the starts of one function: a caller that is too early waits for the next free slot.
    Safe to use from several threads."""

    def __init__(self, clock: Clock, per_second: int = STARTS_PER_SECOND) -> None:
        self._clock = clock
        self._gap = timedelta(seconds=1) / per_second
        self._free_at = datetime.min.replace(tzinfo=UTC)
        self._lock = Lock()

    def wait(self) -> None:
        """Wait for the next free slot; return immediately if no start used the last slot."""
        with self._lock:
            now = self._clock.now()
            due = max(now, self._free_at)
            self._free_at = due + self._gap
        if due > now:
            self._clock.sleep((due - now).total_seconds())


class LambdaExecutions:
    """The RetireNode and AdmitNode Protocols.

    `client` returns boto3's Lambda client; `arn` is a qualified ARN; `prefix` begins the names of
    executions. The names end with a hash of the `table` that holds the records: Lambda reserves a
    name for two weeks, per function or per account and region (its documentation says both), and a
    stack that is deployed again counts attempts from 1.
    """

    def __init__(
        self, client: Callable[[], Any], arn: str, prefix: str, table: str, rate_limit: RateLimit
    ) -> None:
        self._client = client
        self._arn = arn
        self._prefix = prefix
        self._table_hash = hashlib.sha256(table.encode()).hexdigest()[:8]
        self._rate_limit = rate_limit

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Start this attempt's execution.

        Two starts of an attempt have the same payload, so Lambda returns the existing execution for
        the second. Source: Lambda developer guide, "Durable execution names".
        """
        payload = {"instance": instance, "cluster": cluster, "attempt": attempt}
        self._rate_limit.wait()
        with aws_errors():
            try:
                self._client().invoke(
                    FunctionName=self._arn,
                    InvocationType="Event",
                    DurableExecutionName=f"{self._prefix}-{instance}-{attempt}-{self._table_hash}",
                    Payload=json.dumps(payload, sort_keys=True).encode(),
                )
            except ClientError as error:
                if code_of(error) != "DurableExecutionAlreadyStartedException":
                    raise


class LambdaCleanUp:
    """The CleanUp Protocol; `client` returns boto3's Lambda client."""

    def __init__(self, client: Callable[[], Any], arn: str) -> None:
        self._client = client
        self._arn = arn

    def start(self, instance: str, cluster: str) -> None:
        """Invoke `reconcile` asynchronously for one instance."""
        payload = {"instance": instance, "cluster": cluster}
        with aws_errors():
            self._client().invoke(
                FunctionName=self._arn,
                InvocationType="Event",
                Payload=json.dumps(payload, sort_keys=True).encode(),
            )
