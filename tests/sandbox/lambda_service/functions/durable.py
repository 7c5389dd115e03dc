"""Durable functions. Steps write to the file ``marks``, so that a test sees each run."""

import time
from pathlib import Path
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration


def _mark(event: Any, name: str) -> str:
    if "marks" in event:
        with Path(event["marks"]).open("a") as file:
            file.write(f"{name}\n")
    return name


@durable_execution
def steps(event: Any, context: DurableContext) -> dict[str, Any]:
    """Two steps around a wait."""
    first = context.step(lambda _: _mark(event, "first"), name="first")
    context.wait(Duration.from_seconds(1), name="pause")
    second = context.step(lambda _: _mark(event, "second"), name="second")
    return {"event": event, "steps": [first, second]}


@durable_execution
def failing(event: Any, context: DurableContext) -> None:
    raise ValueError("no good")


@durable_execution
def waiting(event: Any, context: DurableContext) -> None:
    context.wait(Duration.from_minutes(10), name="long")


@durable_execution
def overdue(event: Any, context: DurableContext) -> str:
    """Exceeds the timeout of its function the first time."""
    _mark(event, "run")
    if len(Path(event["marks"]).read_text().splitlines()) == 1:
        time.sleep(60)
    return "done"
