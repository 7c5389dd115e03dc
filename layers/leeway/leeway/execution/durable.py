"""The Steps Protocol, implemented with AWS Lambda durable functions."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration, StepConfig
from aws_durable_execution_sdk_python.retries import RetryDecision
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext

from leeway.typed_json import dumps, loads

__all__ = ["DurableContext", "DurableSteps", "durable_execution"]
# Handlers import the SDK from here: what Leeway sets up before any import covers the SDK as well.

MAX_UNCOMPRESSED = 64 * 1024
"""Bytes. A larger result is compressed: the result for a node of 400 pods exceeds the 256 KB of a
checkpoint, and a node can have 737 pods."""

_COMPRESSED = "zlib:"
"""The prefix of a compressed result, which is in base64. JSON cannot begin with it."""

MAX_STEP_PAUSE = 30
"""Seconds between two attempts of a step."""

STEP_ATTEMPTS = 100
"""How often a step that fails is attempted, for about 50 minutes; then the execution fails."""


class Typed[T](SerDes[T]):
    """Serializes the results of steps as JSON, for one type."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    def serialize(self, value: T, serdes_context: SerDesContext) -> str:
        """Return the result as JSON, compressed if it is large."""
        written = dumps(value)
        if len(written) <= MAX_UNCOMPRESSED:
            return written.decode()
        return _COMPRESSED + b64encode(zlib.compress(written)).decode()

    def deserialize(self, data: str, serdes_context: SerDesContext) -> T:
        """Read a result that `serialize` wrote in an earlier invocation."""
        if data.startswith(_COMPRESSED):
            data = zlib.decompress(b64decode(data.removeprefix(_COMPRESSED))).decode()
        return loads(self._kind, data)


def retry(error: Exception, attempt: int) -> RetryDecision:
    """Retry a failed step after 1, 2, 4 … 30 seconds, for every kind of error: every step is safe
    to repeat, and a retirement that stops halfway loses pods."""
    if attempt >= STEP_ATTEMPTS:
        return RetryDecision.no_retry()
    return RetryDecision.retry(Duration(min(2 ** min(attempt - 1, 10), MAX_STEP_PAUSE)))


class DurableSteps:
    """Runs the steps of one durable execution."""

    def __init__(self, context: DurableContext) -> None:
        self._context = context

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        """Call `work` and store its result; call it again if the function exits before that."""
        config = StepConfig(retry_strategy=retry, serdes=Typed(kind))
        result: Any = self._context.step(lambda _: work(), name=name, config=config)
        return result  # type: ignore[no-any-return]

    def wait(self, name: str, seconds: int) -> None:
        """Suspend the execution for this many seconds."""
        self._context.wait(Duration(seconds), name=name)
