"""What writes log lines and EMF metrics to stdout, from where Lambda reads them."""

from dataclasses import dataclass

from aws_lambda_powertools import Logger, Metrics


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A feature's telemetry adds a method for each thing that it reports."""

    logger: Logger
    metrics: Metrics
