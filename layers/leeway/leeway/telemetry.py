"""Writes log lines and EMF metrics to stdout, which Lambda sends to CloudWatch."""

from dataclasses import dataclass

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The base of each feature's telemetry, which adds a method for each thing that it reports."""

    logger: Logger
    metrics: Metrics

    def count(self, problems: str, count: int) -> None:
        """Count problems for the alarm of this name, which covers all functions and clusters; the
        log lines name them. CloudWatch charges for each metric in each hour with data: without
        problems there are none."""
        if count:
            self.metrics.add_dimension("service", "leeway")
            self.metrics.add_metric(problems, MetricUnit.Count, count)
            self.metrics.flush_metrics()
