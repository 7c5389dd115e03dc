"""The Steps Protocol on AWS Lambda durable functions."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration, StepConfig
from aws_durable_execution_sdk_python.retries import RetryDecision
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext
from pydantic import TypeAdapter

from leeway.typed_json import adapter_of

LARGEST_PLAIN = 64 * 1024
"""Bytes of a result that is written as it is; a larger one is compressed. A node of 400 pods is too
much for the 256 KB that a checkpoint takes, and a node may have 737."""

_COMPRESSED = "zlib:"
"""Before a compressed result, in base64. No JSON begins so."""

LONGEST_PAUSE = 30
ATTEMPTS = 100
"""How often a step that fails is tried again: for some 50 minutes, then the execution fails."""


class Typed[T](SerDes[T]):
    """Writes and reads a step's result as JSON of a given type."""

    def __init__(self, kind: type[T]) -> None:
        self._adapter: TypeAdapter[T] = adapter_of(kind)

    def serialize(self, value: T, serdes_context: SerDesContext) -> str:
        """Write a result."""
        written = self._adapter.dump_json(value)
        if len(written) <= LARGEST_PLAIN:
            return written.decode()
        return _COMPRESSED + b64encode(zlib.compress(written)).decode()

    def deserialize(self, data: str, serdes_context: SerDesContext) -> T:
        """Read a result that an earlier invocation wrote."""
        if data.startswith(_COMPRESSED):
            data = zlib.decompress(b64decode(data.removeprefix(_COMPRESSED))).decode()
        return self._adapter.validate_json(data)


def retry(error: Exception, attempt: int) -> RetryDecision:
    """Try a failed step again after 1, 2, 4 … 30 seconds: whatever failed, giving up on a node
    loses its pods, and a step may always run again."""
    if attempt >= ATTEMPTS:
        return RetryDecision.no_retry()
    return RetryDecision.retry(Duration(min(2 ** min(attempt - 1, 10), LONGEST_PAUSE)))


class DurableSteps:
    """Runs steps in a durable execution, which remembers their results."""

    def __init__(self, context: DurableContext) -> None:
        self._context = context

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        """Do `work` once and remember its result; again if the function died before that."""
        config = StepConfig(retry_strategy=retry, serdes=Typed(kind))
        result: Any = self._context.step(lambda _: work(), name=name, config=config)
        return result  # type: ignore[no-any-return]

    def wait(self, name: str, seconds: int) -> None:
        """Suspend the execution for a while."""
        self._context.wait(Duration(seconds), name=name)
