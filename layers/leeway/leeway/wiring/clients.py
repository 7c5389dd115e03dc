"""Builds what every function uses: settings, AWS clients, a logger and metrics."""

import gc
import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial, wraps
from threading import Lock
from typing import Any

import boto3
import botocore.session
from aws_lambda_powertools import Logger, Metrics
from botocore.config import Config
from botocore.parsers import PROTOCOL_PARSERS, EC2QueryParser, ResponseParserFactory
from botocore.utils import parse_timestamp

from leeway import __version__
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.eventbridge import EventBridgeLeewayEvents
from leeway.aws.table import DynamoTable
from leeway.clock import CorrectedClock, SystemClock, follow_dates
from leeway.manifests.configuration import Configuration, ManifestTelemetry, StoredManifests
from leeway.typed_json import decoder_of

DEFAULT_TRIES = 6
"""Tries of an AWS call, with exponential backoff: in a throttled storm the calls succeed after some
seconds."""

BACKGROUND_TRIES = 10
"""Tries of a call of `background_client`."""

FAIL_FAST_TRIES = 2
"""Tries of a call that delays a drain: the retirement repeats it later, or does not need it."""

READ_TIMEOUT = 5
"""Seconds that botocore waits for an answer."""

LIST_READ_TIMEOUT = 20
"""The same for a description of a thousand instances with all of their tags."""

MAX_POOL_CONNECTIONS = 32
"""Connections that a client keeps open: as many as threads that call at the same time. A further
connection is closed after its call."""

FAIL_FAST_SERVICES = frozenset({"autoscaling"})
"""Services whose clients have FAIL_FAST_TRIES by default."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment variables that the template sets."""

    table: str
    clusters: tuple[str, ...]
    retire_node: str
    admit_node: str
    reconcile: str
    provision_queue: str

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
            provision_queue=os.environ.get("LEEWAY_PROVISION_QUEUE", ""),
        )


@cache
def settings() -> Settings:
    """Read the settings, once per warm function."""
    return Settings.from_environment()


@cache
def clock() -> CorrectedClock:
    """Build the clock of this function; it follows AWS's time from the first answer on."""
    return CorrectedClock(SystemClock())


_NOT_READ = frozenset(
    {
        "blockDeviceMapping",
        "enclaveOptions",
        "hibernationOptions",
        "maintenanceOptions",
        "metadataOptions",
        "monitoring",
        "networkInterfaceSet",
        "networkPerformanceOptions",
        "privateDnsNameOptions",
        "productCodes",
        "secondaryInterfaceSet",
    }
)
"""What DescribeInstances answers about an instance and Leeway does not read. With three network
interfaces it is most of an instance, and parsing was most of a run of `reconcile`."""


class _Ec2Parser(EC2QueryParser):  # type: ignore[misc]  # botocore has no types
    """Leaves out what is not read of an instance."""

    def _handle_structure(self, shape: Any, node: Any) -> Any:
        if shape.name == "Instance":
            for child in [one for one in node if self._node_tag(one) in _NOT_READ]:
                node.remove(child)
        return super()._handle_structure(shape, node)


class _Parsers(ResponseParserFactory):  # type: ignore[misc]  # botocore has no types
    """The parsers of the answers of AWS."""

    def create_parser(self, protocol_name: str) -> Any:
        """Return the parser of a protocol."""
        parser = _Ec2Parser if protocol_name == "ec2" else PROTOCOL_PARSERS[protocol_name]
        return parser(timestamp_parser=_parse_timestamp)


def _parse_timestamp(value: Any) -> datetime:
    """Parse the ISO 8601 of AWS with the standard library, which is ten times as fast."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        parsed: datetime = parse_timestamp(value)
        return parsed


@cache
def session() -> boto3.Session:
    """Open the session of all clients. Lambda sets AWS_REGION; boto3 reads only
    AWS_DEFAULT_REGION."""
    core = botocore.session.get_session()
    core.register_component("response_parser_factory", _Parsers())
    opened = boto3.Session(botocore_session=core, region_name=os.environ.get("AWS_REGION"))
    follow_dates(opened.events, clock())
    return opened


_BUILDING = Lock()

# The default user agent lists SDK, platform and features. Building it, and the validation of
# parameters, took a tenth of a call's CPU time. The tests of the adapters validate parameters.
_BASE_CONFIG = Config(
    user_agent=f"leeway/{__version__}",
    parameter_validation=False,
    max_pool_connections=MAX_POOL_CONNECTIONS,
)


@cache
def background_client(service: str, region: str | None = None) -> Any:
    """Build a boto3 client for work that is not urgent: it has long timeouts, and limits its own
    rate if AWS throttles it."""
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": BACKGROUND_TRIES},
        connect_timeout=5,
        read_timeout=60,
    )
    return session().client(service, region_name=region, config=_BASE_CONFIG.merge(config))


@cache
def client(service: str, tries: int = 0, read_timeout: int = READ_TIMEOUT) -> Any:
    """Build a boto3 client, once per warm function. `tries` 0 means the default of the service;
    `read_timeout` is in seconds. Several threads may request their first client at the same time,
    and a session is not thread-safe: a lock serialises them."""
    default = FAIL_FAST_TRIES if service in FAIL_FAST_SERVICES else DEFAULT_TRIES
    config = Config(
        retries={"mode": "standard", "total_max_attempts": tries or default},
        connect_timeout=2,
        read_timeout=read_timeout,
    )
    with _BUILDING:
        return session().client(service, config=_BASE_CONFIG.merge(config))


def prepare(
    services: Iterable[str],
    read: Iterable[type[Any]],
    fail_fast: Iterable[str] = (),
    listing: Iterable[str] = (),
) -> None:
    """Build clients and decoders while Lambda initialises the function: it gives the function a
    full vCPU for that, at any memory size. The garbage collector, which was off since the import
    of `leeway`, is on again. Outside Lambda this does nothing.

    `read` are the types that the function reads from JSON; `fail_fast` are services of which
    the function uses a client with FAIL_FAST_TRIES, `listing` those with LIST_READ_TIMEOUT.
    """
    if "AWS_LAMBDA_FUNCTION_NAME" not in os.environ:
        return
    for service in services:
        client(service)
    for service in fail_fast:
        client(service, tries=FAIL_FAST_TRIES)
    for service in listing:
        client(service, read_timeout=LIST_READ_TIMEOUT)
    for kind in read:
        decoder_of(kind)
    gc.enable()


def probed[C, R](handler: Callable[[Any, C], R]) -> Callable[[Any, C], R | dict[str, Any]]:
    """Let a handler answer the probes of `leeway doctor` (`wiring/probes.py`). A probe has exactly
    these two keys, which no other event has, and never gets to the handler."""

    @wraps(handler)
    def answer(event: Any, context: C) -> R | dict[str, Any]:
        if not (isinstance(event, dict) and event.keys() == {"leeway", "cluster"}):
            return handler(event, context)
        from leeway.wiring.probes import answers  # no other invocation needs it

        return answers(str(event["cluster"]))

    return answer


@cache
def logger() -> Logger:
    """Build the logger of this function."""
    # ASCII output escapes control characters that names of objects may hold: a terminal that shows
    # the log does not interpret them.
    built = Logger(json_serializer=partial(json.dumps, default=str, separators=(",", ":")))
    # The durable SDK logs errors between steps. Its lines get the same format, and so name the
    # execution.
    sdk_logger = logging.getLogger("aws_durable_execution_sdk_python")
    sdk_logger.handlers, sdk_logger.propagate = built.handlers, False
    return built


@cache
def metrics() -> Metrics:
    """Build the metrics of this function."""
    return Metrics()


def log_execution(arn: str) -> None:
    """Add the ARN of the durable execution to all further log lines."""
    logger().append_keys(execution=arn)


@cache
def table(tries: int = 0, name: str = "") -> DynamoTable:
    """Build the table, by default of this stack; `tries` 0 means DEFAULT_TRIES."""
    # `prepare` has built the client with these arguments: with others, it would be built again.
    dynamodb = partial(client, "dynamodb", tries=tries) if tries else partial(client, "dynamodb")
    return DynamoTable(dynamodb, name or settings().table, clock())


@cache
def configuration() -> Configuration:
    """Build the reader of users' manifests. It fails fast: if the table is throttled, the default
    policy applies, so that an interruption does not wait."""
    manifests = StoredManifests(table(tries=FAIL_FAST_TRIES))
    return Configuration(manifests, clock(), ManifestTelemetry(logger(), metrics()))


@cache
def instances() -> Ec2Instances:
    """Build the adapter of EC2's instances."""
    return Ec2Instances(partial(client, "ec2"))


@cache
def leeway_events() -> EventBridgeLeewayEvents:
    """Build the adapter that publishes Leeway's own events."""
    return EventBridgeLeewayEvents(partial(client, "events"))


@cache
def groups() -> AutoScalingGroups:
    """Build the adapter of Auto Scaling groups."""
    return AutoScalingGroups(partial(client, "autoscaling"))
