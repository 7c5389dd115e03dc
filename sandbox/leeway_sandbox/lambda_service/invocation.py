"""One invocation of a function, its outcome, and the chain of requests that led to it.

Lambda counts how often a chain has invoked each function. The counts are in the trace header that
Lambda gives to a function. The SDK sends the header on with each call, and SQS keeps it in the
message. Rules: "Use Lambda recursive loop detection to prevent infinite loops" in Lambda's guide.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote
from zlib import crc32

from leeway_sandbox.lambda_service.definitions import FunctionDefinition, ServiceError, Target

Ending = Literal["ok", "error", "killed", "timeout"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of an invocation; ``payload`` is the answer or an error document."""

    ending: Ending
    payload: bytes

    @classmethod
    def failed(cls, ending: Ending, kind: str, message: str) -> "Outcome":
        """Return an outcome that the function did not report itself."""
        return cls(ending, json.dumps({"errorType": kind, "errorMessage": message}).encode())

    @property
    def error(self) -> str:
        """Type and message of the error."""
        document = json.loads(self.payload)
        return f"{document.get('errorType')}: {document.get('errorMessage')}"


@dataclass(eq=False)
class Invocation:
    """One run of a handler; ``execution`` is the name of its durable execution.

    ``timeout`` is in seconds, from the start. ``lineage`` counts the invocations of each function
    in the chain of requests that led to this one.
    """

    target: Target
    payload: bytes
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    execution: str | None = None
    execution_arn: str | None = None
    lineage: Mapping[str, int] = field(default_factory=dict)
    outcome: asyncio.Future[Outcome] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    started: float = 0.0
    timeout: float = 0.0

    def begin(self, timeout: float) -> None:
        """Set the start time and the timeout: a worker has the invocation."""
        self.started, self.timeout = time.time(), timeout

    @property
    def deadline(self) -> float:
        """The end of the timeout, in epoch seconds."""
        return self.started + self.timeout

    def end(self, outcome: Outcome) -> None:
        """Set the outcome, unless it is set."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


MOST_INVOCATIONS = 16
TRACE_HEADER = "X-Amzn-Trace-Id"
_FIELD = "Lineage="

type Lineage = Mapping[str, int]


def lineage_of(headers: Iterable[str], function: FunctionDefinition) -> Lineage:
    """Return the counts with one more invocation of a function, caused by requests with these
    headers: the highest counts of all of them.

    Raises:
        ServiceError: the function is in a loop, which it does not allow.
    """
    counts: dict[str, int] = {}
    # botocore quotes the header.
    fields = (field for header in headers for field in unquote(header).split(";"))
    for text in fields:
        if text.startswith(_FIELD):
            for one in text.removeprefix(_FIELD).split("|"):
                name, _, count = one.rpartition(":")
                if count.isdecimal():
                    counts[name] = max(counts.get(name, 0), int(count))
    own = f"{crc32(function.arn.encode()):08x}"
    counts[own] = counts.get(own, 0) + 1
    if counts[own] > MOST_INVOCATIONS and function.recursive_loop != "Allow":
        message = f"Lambda has detected {function.name} being invoked in a recursive loop."
        raise ServiceError(400, "RecursiveInvocationException", message)
    return counts


def lineage_field(lineage: Lineage) -> str:
    """Return the field of the trace header for a function that these counts lead to."""
    return _FIELD + "|".join(f"{name}:{count}" for name, count in lineage.items())
