"""The one place that reads the environment and builds clients."""

import os
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from botocore.config import Config

from leeway.clock import SystemClock
from leeway.cloud.autoscaling import AutoScalingGroups
from leeway.cloud.dynamodb import DynamoRecords
from leeway.cloud.ec2 import Ec2Instances
from leeway.cloud.eks import EksClusters
from leeway.cloud.eventbridge import EventBridgeAnnouncements
from leeway.cloud.functions import LambdaRetireNode
from leeway.cluster.ports import Cluster
from leeway.reception import Reception
from leeway.retirement import RetireNode
from leeway.telemetry import PowertoolsTelemetry

TRIES = 6
"""Of an AWS call, with growing pauses between: a throttled storm gets through in some seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the template sets in a function's environment."""

    table: str
    clusters: tuple[str, ...]
    retire_node: str

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment.

        Raises:
            KeyError: LEEWAY_TABLE is not set.
        """
        named = os.environ.get("LEEWAY_CLUSTERS", "").split(",")
        return cls(
            table=os.environ["LEEWAY_TABLE"],
            clusters=tuple(name.strip() for name in named if name.strip()),
            retire_node=os.environ.get("LEEWAY_RETIRE_NODE", ""),
        )


@cache
def _settings() -> Settings:
    return Settings.from_environment()


@cache
def _session() -> boto3.Session:
    return boto3.Session()


@cache
def client(service: str) -> Any:
    """Build a boto3 client, once per warm function and only when first used: EC2's alone costs
    more than all the rest of a cold start."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": TRIES},
        connect_timeout=2,
        read_timeout=10,
    )
    return _session().client(service, config=config)


@cache
def telemetry() -> PowertoolsTelemetry:
    """Build the logger and the metrics of this function."""
    return PowertoolsTelemetry(Logger(), Metrics())


@cache
def cluster_named(name: str) -> Cluster:
    """Open an EKS cluster's API, once per warm function."""
    from leeway.cluster.eks import eks_cluster

    endpoint = EksClusters(partial(client, "eks")).endpoint(name)
    return eks_cluster(endpoint, _session())


@cache
def instances() -> Ec2Instances:
    """Build the adapter of EC2's instances."""
    return Ec2Instances(partial(client, "ec2"))


@cache
def groups() -> AutoScalingGroups:
    """Build the adapter of Auto Scaling groups."""
    return AutoScalingGroups(partial(client, "autoscaling"))


@cache
def reception() -> Reception:
    """Build the use case of `receive_notice`."""
    settings = _settings()
    return Reception(
        records=DynamoRecords(partial(client, "dynamodb"), settings.table),
        instances=instances(),
        retire_node=LambdaRetireNode(partial(client, "lambda"), settings.retire_node),
        clusters=settings.clusters,
    )


@cache
def retire_node() -> RetireNode:
    """Build the use case of `retire_node`."""
    return RetireNode(
        records=DynamoRecords(partial(client, "dynamodb"), _settings().table),
        groups=groups(),
        instances=instances(),
        announcements=EventBridgeAnnouncements(partial(client, "events")),
        cluster_named=cluster_named,
        telemetry=telemetry(),
        clock=SystemClock(),
    )
