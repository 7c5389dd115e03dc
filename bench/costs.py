"""Computes what AWS charges for the usage of a storm of interruptions.

List prices of us-east-1 as of 2026, in USD, without any free tier:
- Lambda (aws.amazon.com/lambda/pricing): requests, GB-seconds on arm64, durable operations, data
  that durable executions write
- DynamoDB on demand (aws.amazon.com/dynamodb/pricing/on-demand): request units
- EventBridge (aws.amazon.com/eventbridge/pricing): events that Leeway puts; AWS's own are free
- CloudWatch Logs (aws.amazon.com/cloudwatch/pricing): data collected
"""

from dataclasses import astuple, dataclass, fields

REQUEST = 0.20 / 1e6
GB_SECOND = 0.0000133334
DURABLE_OPERATION = 8.00 / 1e6
DURABLE_GB_WRITTEN = 0.25
READ_UNIT = 0.125 / 1e6
WRITE_UNIT = 0.625 / 1e6
EVENT = 1.00 / 1e6
LOG_GB = 0.50


@dataclass(frozen=True)
class Usage:
    """The usage of a storm. A read is one strongly consistent unit; a write is one unit of the
    table and one of its index."""

    invocations: float = 0
    gb_seconds: float = 0
    durable_operations: float = 0
    durable_bytes: float = 0
    table_reads: float = 0
    table_writes: float = 0
    events: float = 0
    log_bytes: float = 0

    def per(self, interruptions: int) -> "Usage":
        """The usage of one interruption of a storm with this number."""
        return Usage(*(value / interruptions for value in astuple(self)))


PRICES = Usage(
    invocations=REQUEST,
    gb_seconds=GB_SECOND,
    durable_operations=DURABLE_OPERATION,
    durable_bytes=DURABLE_GB_WRITTEN / 1e9,
    table_reads=READ_UNIT,
    table_writes=2 * WRITE_UNIT,
    events=EVENT,
    log_bytes=LOG_GB / 1e9,
)


def dollars(usage: Usage) -> dict[str, float]:
    """Return USD by item, and the `total`."""
    names = [field.name for field in fields(Usage)]
    costs = {
        name: used * price
        for name, used, price in zip(names, astuple(usage), astuple(PRICES), strict=True)
    }
    return costs | {"total": sum(costs.values())}
