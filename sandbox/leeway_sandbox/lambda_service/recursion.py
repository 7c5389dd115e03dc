"""Recursive loops: Lambda counts how often a chain of requests has invoked each function.

The counts are in the trace header that Lambda gives to a function. The SDK sends the header on with
each call, and SQS keeps it in the message. Rules: "Use Lambda recursive loop detection to prevent
infinite loops" in Lambda's guide.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote
from zlib import crc32

from leeway_sandbox.lambda_service.definitions import FunctionDefinition, ServiceError

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
