"""Plain functions: each handler behaves in one way."""

import json
import logging
import os
import time
from pathlib import Path
from typing import Any


def echo(event: Any, context: Any) -> dict[str, Any]:
    """Return the event."""
    print(json.dumps({"seen": event}))
    return {
        "event": event,
        "pid": os.getpid(),
        "arn": context.invoked_function_arn,
        "request_id": context.aws_request_id,
        "remaining": context.get_remaining_time_in_millis(),
    }


def clock(event: Any, context: Any) -> float:
    return time.time()


def environment(event: Any, context: Any) -> dict[str, str]:
    return dict(os.environ)


def failing(event: Any, context: Any) -> None:
    """Fail ``depth`` calls deep."""
    if event.get("depth", 0) > 0:
        failing({"depth": event["depth"] - 1}, context)
    logging.getLogger().error("about to fail")
    raise ValueError("no good")


def slow(event: Any, context: Any) -> int:
    time.sleep(event["seconds"])
    return os.getpid()


def leaving(event: Any, context: Any) -> None:
    os._exit(event["status"])


def marking(event: Any, context: Any) -> Any:
    """Write a mark, and fail until there are ``needed`` of them."""
    marks = Path(event["marks"])
    with marks.open("a") as file:
        file.write(f"{context.aws_request_id}\n")
    if len(marks.read_text().splitlines()) < event["needed"]:
        raise RuntimeError("not yet")
    return event["needed"]


def watching(event: Any, context: Any) -> float:
    """Run until two seconds before the deadline, or `beyond` it; return the time that was left."""
    left: float = context.get_remaining_time_in_millis() / 1000
    time.sleep(max(0.0, left - 2 + event.get("beyond", 0)))
    return left
