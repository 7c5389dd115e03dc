"""One invocation of a function, and its outcome."""

import asyncio
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from leeway_sandbox.lambda_service.definitions import Target

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
