"""Computes the price of a stack in a month without notices, with list prices.

List prices of us-east-1 as of 2026, in USD, without any free tier; those of Lambda, DynamoDB and
logs are in `bench.costs`, the others here:
- CloudWatch (aws.amazon.com/cloudwatch/pricing): custom metrics and standard alarms, by the month
- EventBridge Scheduler (aws.amazon.com/eventbridge/pricing): invocations
"""

from contextlib import redirect_stdout
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path

from aws_lambda_powertools import Logger, Metrics
from leeway.headroom.keep_headroom import HeadroomReport
from leeway.headroom.telemetry import HeadroomTelemetry
from leeway.reconciliation.report import ClusterReport
from leeway.reconciliation.telemetry import ReconciliationTelemetry
from rich.console import Console
from rich.table import Table
from samtranslator.yaml_helper import yaml_parse

from bench.costs import Usage, dollars

METRIC = 0.30
ALARM = 0.10
SCHEDULED = 1.00 / 1e6

MINUTES = 730 * 60
EVERY_MINUTE, SURVEYS = 2, 4 * 365 // 12
MEMORY_GB = 0.5
READS = 20
"""Read units of the table per cluster and minute: about 15 queries, and the index of fifty
instances."""

PLATFORM_BYTES = 400
"""Bytes that Lambda logs per invocation: START, END and REPORT."""

SECONDS = {1: 0.5, 10: 1.0, 40: 3.0}
"""The assumed duration of a run by number of clusters; each second costs $0.58 a month."""

TEMPLATE = Path(__file__).parents[1] / "template.yaml"


@dataclass(frozen=True)
class Month:
    """USD per month, by item."""

    functions: float
    table: float
    logs: float
    metrics: float
    alarms: float
    schedules: float

    @property
    def total(self) -> float:
        """The sum of all items."""
        total: float = sum(astuple(self))
        return total


def month(clusters: int, seconds: float) -> Month:
    """Return the price of a month for a number of clusters with fifty instances each and without
    headroom. `seconds` is the duration of a run of each function that runs every minute."""
    logged, metrics = _quiet_minute(clusters)
    runs = EVERY_MINUTE * MINUTES
    spent = dollars(
        Usage(
            invocations=runs + SURVEYS,
            gb_seconds=runs * seconds * MEMORY_GB,
            table_reads=READS * MINUTES * clusters,
            log_bytes=MINUTES * logged + runs * PLATFORM_BYTES,
        )
    )
    return Month(
        functions=spent["invocations"] + spent["gb_seconds"],
        table=spent["table_reads"],
        logs=spent["log_bytes"],
        metrics=METRIC * metrics,
        alarms=ALARM * _watched(),
        schedules=SCHEDULED * (runs + SURVEYS),
    )


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
    lines = out.getvalue()
    return len(lines), lines.count('"Unit"')


def _watched() -> int:
    """Return the metrics of the template's alarms; each has a price."""
    resources = yaml_parse(TEMPLATE.read_text())["Resources"].values()
    alarms = [r["Properties"] for r in resources if r["Type"] == "AWS::CloudWatch::Alarm"]
    return sum(
        len([m for m in alarm.get("Metrics", [{"MetricStat": {}}]) if "MetricStat" in m])
        for alarm in alarms
    )


def main() -> None:
    """Print the table."""
    months = {size: month(size, seconds) for size, seconds in SECONDS.items()}
    table = Table(title="USD a month in which nothing happens")
    table.add_column("clusters")
    for size, seconds in SECONDS.items():
        table.add_column(f"{size} (runs of {seconds} s)", justify="right")
    for name in [field.name for field in fields(Month)]:
        table.add_row(name, *(f"{getattr(one, name):.2f}" for one in months.values()))
    table.add_row("total", *(f"{one.total:.2f}" for one in months.values()))
    Console().print(table)
