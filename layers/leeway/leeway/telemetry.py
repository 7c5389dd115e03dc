"""Writes log lines, errors in them, and EMF metrics to stdout, which Lambda sends to CloudWatch."""

import traceback
from dataclasses import dataclass
from pathlib import PurePath

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit


def describe_error(error: Exception) -> str:
    """Return `Type: message`. An exception that Leeway does not define gets `(file.py:line)` of the
    code that raised it, because its message alone is seldom enough to find the cause."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__module__.startswith("leeway.") or not frames:
        return text
    return f"{text} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})"


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
