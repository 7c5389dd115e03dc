"""What every function needs: its settings, AWS clients, a logger and metrics."""

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from botocore.config import Config

from leeway import __version__
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.aws.dates import follow_dates
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.eventbridge import EventBridgeLeewayEvents
from leeway.aws.manifests import DynamoManifests
from leeway.aws.records import DynamoRecords
from leeway.clock import CorrectedClock, SystemClock
from leeway.manifests.configuration import Configuration
from leeway.manifests.telemetry import ManifestTelemetry
from leeway.typed_json import adapter_of

TRIES = 6
"""Of an AWS call, with growing pauses between: a throttled storm gets through in some seconds."""

PATIENT_TRIES = 10
"""Of a call that nobody waits for."""

HASTY_TRIES = 2
"""Of a call for whose answer a drain would wait: a retirement tries again by itself, or can do
without."""

ANSWERS_WITHIN = 5
"""Seconds that an answer usually may take."""

LISTS_WITHIN = 20
"""Seconds that EC2 may take to describe a thousand instances, with all of their tags."""

CONNECTIONS = 32
"""That a client keeps: so many hands call at once, and one more connection is closed after its
call."""

HASTY = frozenset({"autoscaling"})
"""Services that are only asked like that."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the template sets in a function's environment."""

    table: str
    clusters: tuple[str, ...]
    retire_node: str
    admit_node: str
    reconcile: str

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
            admit_node=os.environ.get("LEEWAY_ADMIT_NODE", ""),
            reconcile=os.environ.get("LEEWAY_RECONCILE", ""),
        )


@cache
def settings() -> Settings:
    """Read the settings, once per warm function."""
    return Settings.from_environment()


@cache
def clock() -> CorrectedClock:
    """Build the clock of this function, which goes by AWS's time as soon as AWS has answered."""
    return CorrectedClock(SystemClock())


@cache
def session() -> boto3.Session:
    """Open the session that all clients share. Boto3 itself reads AWS_DEFAULT_REGION alone."""
    opened = boto3.Session(region_name=os.environ.get("AWS_REGION"))
    follow_dates(opened.events, clock())
    return opened


_BUILDING = Lock()

# Of a call's processor time, a tenth went into naming SDK, platform and features in each request,
# and into checking parameters, which the tests of the adapters have checked.
_LEAN = Config(
    user_agent=f"leeway/{__version__}",
    parameter_validation=False,
    max_pool_connections=CONNECTIONS,
)


@cache
def patient_client(service: str, region: str | None = None) -> Any:
    """Build a boto3 client for what has time: it slows down by itself where AWS throttles it, and
    waits for long answers."""
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": PATIENT_TRIES},
        connect_timeout=5,
        read_timeout=60,
    )
    return session().client(service, region_name=region, config=_LEAN.merge(config))


@cache
def client(service: str, tries: int = 0, answers_within: int = ANSWERS_WITHIN) -> Any:
    """Build a boto3 client, once per warm function; `tries` where not the service's usual, and the
    seconds that an answer may take. Many hands may want their first at the same time, and a session
    builds one after the other only."""
    usual = HASTY_TRIES if service in HASTY else TRIES
    config = Config(
        retries={"mode": "standard", "total_max_attempts": tries or usual},
        connect_timeout=2,
        read_timeout=answers_within,
    )
    with _BUILDING:
        return session().client(service, config=_LEAN.merge(config))


def prepare(
    services: Iterable[str], written: Iterable[type[Any]], hasty: Iterable[str] = ()
) -> None:
    """Build clients, and the writers of what is written, while Lambda initialises the function:
    it has a whole vCPU for that, whatever its memory. Elsewhere nothing is built unused.

    `hasty` are services of which a client with few tries is used, too or instead.
    """
    if "AWS_LAMBDA_FUNCTION_NAME" not in os.environ:
        return
    for service in services:
        client(service)
    for service in hasty:
        client(service, tries=HASTY_TRIES)
    for kind in written:
        adapter_of(kind)


@cache
def logger() -> Logger:
    """Build the logger of this function."""
    # In ASCII: who follows the log at a terminal sees others' control characters, and obeys none.
    built = Logger(json_serializer=partial(json.dumps, default=str, separators=(",", ":")))
    # What fails between the steps is logged by the durable SDK: in lines like Leeway's own, which
    # name the execution.
    of_the_sdk = logging.getLogger("aws_durable_execution_sdk_python")
    of_the_sdk.handlers, of_the_sdk.propagate = built.handlers, False
    return built


@cache
def metrics() -> Metrics:
    """Build the metrics of this function."""
    return Metrics()


def log_execution(arn: str) -> None:
    """Name the durable execution in every log line from now on."""
    logger().append_keys(execution=arn)


@cache
def records() -> DynamoRecords:
    """Build the adapter of the table's retirement records."""
    return DynamoRecords(partial(client, "dynamodb"), settings().table)


@cache
def configuration() -> Configuration:
    """Build what reads users' manifests. An interruption must not wait long for a table that is
    throttled: there are defaults."""
    manifests = DynamoManifests(partial(client, "dynamodb", tries=HASTY_TRIES), settings().table)
    return Configuration(manifests, clock(), ManifestTelemetry(logger(), metrics()))


@cache
def instances() -> Ec2Instances:
    """Build the adapter of EC2's instances."""
    return Ec2Instances(partial(client, "ec2"))


@cache
def announcements() -> EventBridgeLeewayEvents:
    """Build the adapter of Leeway's own events."""
    return EventBridgeLeewayEvents(partial(client, "events"))


@cache
def groups() -> AutoScalingGroups:
    """Build the adapter of Auto Scaling groups."""
    return AutoScalingGroups(partial(client, "autoscaling"))
