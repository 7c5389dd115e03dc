"""Writes log lines and EMF metrics to stdout, which Lambda sends to CloudWatch."""

from dataclasses import dataclass

from aws_lambda_powertools import Logger, Metrics


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The base of each feature's telemetry, which adds a method for each thing that it reports."""

    logger: Logger
    metrics: Metrics
