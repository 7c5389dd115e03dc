"""What Lambda writes to CloudWatch Logs: the lines of functions, and its own about invocations.

Lambda's own lines are those of the text format: "Log and monitor Python Lambda functions" and
"Understanding and monitoring Lambda function invocations" in Lambda's guide. The sandbox writes the
line START when an invocation ends, with the time of its start.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import FunctionDefinition, Functions

type Entry = Mapping[str, Any]
type Line = tuple[float, str]
"""The time in epoch seconds, and the message."""


def log_events(journal: Journal, functions: Functions, since: int) -> dict[str, Any]:
    """Return the log events of the journal's entries from a number on: each has its `group`, its
    `stream`, the access key of the role that writes it (`caller`), and its time in milliseconds."""
    known = {function.name: function for function in functions}
    found = journal.since(since)
    events = [
        {
            "group": function.log_group,
            "stream": entry["stream"],
            "caller": function.access_key,
            "timestamp": int(at * 1000),
            "message": message,
        }
        for entry in found["entries"]
        if entry["kind"] in ("logs", "invocation") and (function := known.get(entry["function"]))
        for at, message in _lines(entry, function)
    ]
    return {"next": found["next"], "events": events}


def _lines(entry: Entry, function: FunctionDefinition) -> Iterator[Line]:
    if entry["kind"] == "invocation":
        yield from _of_invocation(entry, function)
        return
    line = entry["line"]
    # The journal has JSON lines parsed; this is the form in which the functions wrote them.
    text = line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))
    yield entry["at"], f"{text}\n"


def _of_invocation(entry: Entry, function: FunctionDefinition) -> Iterator[Line]:
    request, ended, took = entry["request_id"], entry["at"], entry["milliseconds"]
    yield ended - took / 1000, f"START RequestId: {request} Version: {function.version}\n"
    if entry["outcome"] == "timeout":
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended))
        yield ended, f"{at} {request} {entry['problem']}\n\n"
    elif entry.get("problem"):
        yield ended, f"RequestId: {request} Error: {entry['problem']}\nRuntime.ExitError\n"
    yield ended, f"END RequestId: {request}\n"
    report = [
        f"REPORT RequestId: {request}",
        f"Duration: {took:.2f} ms",
        f"Billed Duration: {math.ceil(took)} ms",
        f"Memory Size: {function.memory} MB",
        f"Max Memory Used: {entry['memory'] or function.memory} MB",
    ]
    if "init_milliseconds" in entry:
        report.append(f"Init Duration: {entry['init_milliseconds']:.2f} ms")
    if entry["outcome"] == "timeout":
        report.append("Status: timeout")
    elif entry.get("problem"):
        report += ["Status: error", "Error Type: Runtime.ExitError"]
    yield ended, "\t".join([*report, "\n"])
