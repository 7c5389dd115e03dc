"""Computes the price of a stack in a month without notices and pending pods, with list prices.

It reads schedules, memory, queues and alarms from template.yaml, and the metrics and log lines from
what the functions write. List prices of us-east-1 as of 2026, in USD, without any free tier; those
of Lambda, DynamoDB and logs are in `bench.costs`, the others here:
- CloudWatch (aws.amazon.com/cloudwatch/pricing): a custom metric for each hour with data, and an
  alarm for each metric that it watches, by the month
- EventBridge Scheduler (aws.amazon.com/eventbridge/pricing): invocations
- SQS (aws.amazon.com/sqs/pricing): requests to FIFO queues
"""

from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import astuple, dataclass, fields
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from leeway.headroom.keep_headroom import HeadroomReport, HeadroomTelemetry
from leeway.pod_watch.watch_pods import PodWatchTelemetry
from leeway.reconciliation.report import ClusterReport, ReconciliationTelemetry
from leeway_sandbox.template import parse_template
from rich.console import Console
from rich.table import Table

from bench.costs import GB_SECOND, READ_UNIT, REQUEST, WRITE_UNIT, Usage, dollars

METRIC = 0.30
ALARM = 0.10
SCHEDULED = 1.00 / 1e6
FIFO_REQUEST = 0.50 / 1e6

HOURS = 730
MINUTES = HOURS * 60
RATES = {"rate(1 minute)": MINUTES, "rate(6 hours)": HOURS / 6}
"""Runs in a month by the expression of a schedule."""

READS = 20
"""Read units of the table per cluster and minute: about 15 queries, and the index of fifty
instances."""

SAMPLES = MINUTES / 5
"""How often `reconcile` records the costs of a cluster in a month."""

SAMPLE_READS, SAMPLE_WRITES = 4, 2
"""Units for a record of costs: the item of the hour, which has 2 KB for some dozen namespaces, and
every second time the catalog."""

POLLS = 5 * 3 * MINUTES
"""Requests in a month with which Lambda polls an empty queue: five pollers, each for 20 s. Source:
Lambda's developer guide, "Using Lambda with Amazon SQS"."""

PLATFORM_BYTES = 400
"""Bytes that Lambda logs per invocation: START, END and REPORT."""

SECONDS = {1: 0.5, 10: 1.0, 40: 3.0}
"""The assumed duration of a run of each minute by number of clusters. `reconcile` measures 0.06 s
of CPU for one cluster, the others a hundredth; the rest is waiting for answers."""

REFRESH_SECONDS = 30.0
"""The assumed duration of a run of refresh_catalog."""

CATALOG_METRIC_HOURS = 4 / 24
"""The share of hours in which refresh_catalog writes its metric."""

TEMPLATE = Path(__file__).parents[1] / "template.yaml"


@dataclass(frozen=True)
class Month:
    """USD per month, by item."""

    functions: float
    table: float
    queue: float
    logs: float
    metrics: float
    alarms: float
    schedules: float

    @property
    def total(self) -> float:
        """The sum of all items."""
        total: float = sum(astuple(self))
        return total


@dataclass(frozen=True)
class PoolsMonth:
    """USD per month that pools add, by item."""

    watch: float
    handovers: float
    lease: float
    messages: float
    provisioning: float

    @property
    def total(self) -> float:
        """The sum of all items."""
        total: float = sum(astuple(self))
        return total


def month(clusters: int) -> Month:
    """Return the price of a month for a number of clusters with fifty instances each, without
    headroom and without pools."""
    runs = list(_scheduled())
    logged, metrics = _quiet_minute(clusters)
    seconds = {"rate(1 minute)": SECONDS[clusters], "rate(6 hours)": REFRESH_SECONDS}
    spent = dollars(
        Usage(
            invocations=sum(RATES[rate] for _, rate in runs),
            gb_seconds=sum(RATES[rate] * seconds[rate] * _gb(name) for name, rate in runs),
            table_reads=(READS * MINUTES + SAMPLE_READS * SAMPLES) * clusters,
            log_bytes=MINUTES * logged + sum(RATES[rate] for _, rate in runs) * PLATFORM_BYTES,
        )
    )
    return Month(
        functions=spent["invocations"] + spent["gb_seconds"],
        table=spent["table_reads"] + SAMPLE_WRITES * WRITE_UNIT * SAMPLES * clusters,
        queue=FIFO_REQUEST * POLLS * _polled(),
        logs=spent["log_bytes"],
        metrics=METRIC * (metrics + CATALOG_METRIC_HOURS),
        alarms=ALARM * _watched(),
        schedules=SCHEDULED * sum(RATES[rate] for _, rate in runs),
    )


def pools_month(clusters: int) -> PoolsMonth:
    """Return the price that pools in each of a number of clusters add."""
    watch = _gb("WatchPodsFunction") * HOURS * 3600 * GB_SECOND
    runs = clusters * MINUTES
    provisioning = _gb("ProvisionNodesFunction") * SECONDS[1] * GB_SECOND + REQUEST
    return PoolsMonth(
        watch=watch,
        handovers=watch / 7,  # the successor starts up to two of 14 minutes before the end
        lease=4 * MINUTES * WRITE_UNIT,
        messages=4 * runs * FIFO_REQUEST,  # sent, received, made visible later, deleted
        provisioning=runs * (provisioning + READS * READ_UNIT + PLATFORM_BYTES * 0.50 / 1e9),
    )


@cache
def _template() -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = parse_template(TEMPLATE.read_text())
    return parsed


def _events() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, resource in _template()["Resources"].items():
        if resource["Type"] == "AWS::Serverless::Function":
            for event in resource["Properties"].get("Events", {}).values():
                yield name, event


def _scheduled() -> Iterator[tuple[str, str]]:
    """Yield the function and the expression of each schedule. Those with a state are on only for
    functions in a VPC, once a day."""
    for name, event in _events():
        if event["Type"] == "ScheduleV2" and "State" not in event["Properties"]:
            yield name, event["Properties"]["ScheduleExpression"]


def _polled() -> int:
    """Return the number of queues that Lambda polls."""
    return sum(event["Type"] == "SQS" for _, event in _events())


def _gb(function: str) -> float:
    """Return the memory of a function, by default, in GB."""
    size = _template()["Resources"][function]["Properties"]["MemorySize"]
    if isinstance(size, Mapping):
        size = _template()["Parameters"][size["Ref"]]["Default"]
    return float(size) / 1024


def _quiet_minute(clusters: int) -> tuple[int, int]:
    """Return the bytes that the functions log in a minute without notices, and the number of
    metrics."""
    names = [f"production-{number}" for number in range(clusters)]
    with redirect_stdout(StringIO()) as out:
        written_by = (
            Logger(service="reconcile"),
            Metrics(namespace="Leeway", service="reconcile"),
        )
        ReconciliationTelemetry(*written_by).reconciled(
            [ClusterReport(name, instances=50) for name in names], all_clusters=True
        )
        for name in names:
            HeadroomTelemetry(*written_by).headroom_reconciled(HeadroomReport(name))
        PodWatchTelemetry(*written_by).watch_problems(0)
    lines = out.getvalue()
    return len(lines), lines.count('"Unit"')


def _watched() -> int:
    """Return the metrics of the template's alarms; each has a price."""
    resources = _template()["Resources"].values()
    alarms = [r["Properties"] for r in resources if r["Type"] == "AWS::CloudWatch::Alarm"]
    return sum(
        len([m for m in alarm.get("Metrics", [{"MetricStat": {}}]) if "MetricStat" in m])
        for alarm in alarms
    )


def rows() -> Iterator[tuple[str, ...]]:
    """Yield the rows of both tables, as docs/deploy.md has them."""
    quiet = [month(clusters) for clusters in SECONDS]
    added = [pools_month(clusters) for clusters in SECONDS]
    for months in (quiet, added):
        for field in fields(months[0]):
            yield (field.name, *(f"{getattr(one, field.name):.2f}" for one in months))
        yield ("in all", *(f"{one.total:.2f}" for one in months))
    both = [one.total + other.total for one, other in zip(quiet, added, strict=True)]
    yield ("with pools, in all", *(f"{total:.2f}" for total in both))


def main() -> None:
    """Print the table."""
    table = Table(title="USD a month in which nothing happens")
    table.add_column("clusters")
    for size, seconds in SECONDS.items():
        table.add_column(f"{size} (runs of {seconds} s)", justify="right")
    for row in rows():
        table.add_row(*row)
    Console().print(table)
