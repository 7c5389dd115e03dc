"""Functions that other functions start, through Lambda's Invoke."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.clock import Clock

STARTS_A_SECOND = 100
"""Durable executions that one function starts in a second. Lambda takes 300 a second in a region,
of all functions together. Source: Lambda developer guide, "Lambda quotas"."""


class Pace:
    """Spreads what one function starts: whoever comes too early waits for the next free moment."""

    def __init__(self, clock: Clock, per_second: int = STARTS_A_SECOND) -> None:
        self._clock = clock
        self._gap = timedelta(seconds=1) / per_second
        self._free_at = datetime.min.replace(tzinfo=UTC)
        self._lock = Lock()

    def wait(self) -> None:
        """Wait until the next start is due; the first one after a while is due at once."""
        with self._lock:
            now = self._clock.now()
            due = max(now, self._free_at)
            self._free_at = due + self._gap
        if due > now:
            self._clock.sleep((due - now).total_seconds())


class LambdaExecutions:
    """The RetireNode and AdmitNode Protocols.

    `client` makes boto3's Lambda client when first asked; `arn` is a qualified ARN; `verb` is what
    the names of executions begin with. They end with a mark of the `table` whose records they are
    of: AWS says in one place that a name is unique for a function, in another for an account and
    region, and remembers it for two weeks. A stack that is made anew counts attempts from 1.
    """

    def __init__(
        self, client: Callable[[], Any], arn: str, verb: str, table: str, pace: Pace
    ) -> None:
        self._client = client
        self._arn = arn
        self._verb = verb
        self._mark = hashlib.sha256(table.encode()).hexdigest()[:8]
        self._pace = pace

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Start this attempt's execution.

        The payload holds nothing that differs between two starts of an attempt, so Lambda
        answers a repeated one with the execution that is there.
        Source: Lambda developer guide, "Durable execution names".
        """
        payload = {"instance": instance, "cluster": cluster, "attempt": attempt}
        self._pace.wait()
        with aws_errors():
            try:
                self._client().invoke(
                    FunctionName=self._arn,
                    InvocationType="Event",
                    DurableExecutionName=f"{self._verb}-{instance}-{attempt}-{self._mark}",
                    Payload=json.dumps(payload, sort_keys=True).encode(),
                )
            except ClientError as error:
                if code_of(error) != "DurableExecutionAlreadyStartedException":
                    raise


class LambdaCleanUp:
    """The CleanUp Protocol; `client` makes boto3's Lambda client when first asked."""

    def __init__(self, client: Callable[[], Any], arn: str) -> None:
        self._client = client
        self._arn = arn

    def start(self, instance: str, cluster: str) -> None:
        """Have cleaned up what the instance leaves; doing it twice does no harm."""
        payload = {"instance": instance, "cluster": cluster}
        with aws_errors():
            self._client().invoke(
                FunctionName=self._arn,
                InvocationType="Event",
                Payload=json.dumps(payload, sort_keys=True).encode(),
            )
