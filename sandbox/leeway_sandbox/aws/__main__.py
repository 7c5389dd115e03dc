"""Starts the embedded AWS: `python -m leeway_sandbox.aws`."""

import argparse
import asyncio
import gc
import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from leeway_sandbox import access
from leeway_sandbox.process import exit_on_errors, report_ready, wait_for_stop

if TYPE_CHECKING:
    from leeway_sandbox.aws.server import Front

SERVICES = (
    "autoscaling",
    "cloudformation",
    "cloudwatch",
    "dynamodb",
    "ec2",
    "eks",
    "elbv2",
    "events",
    "iam",
    "logs",
    "pricing",
    "scheduler",
    "sqs",
    "ssm",
    "sts",
)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; every duration is in seconds."""
    parser = argparse.ArgumentParser(prog="python -m leeway_sandbox.aws", description=__doc__)
    access.arguments(parser)
    parser.add_argument("--port", type=int, default=0, help="0 is any free port")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--schedule-speed",
        type=float,
        default=1.0,
        help="times as fast as real time; 0: only on command",
    )
    parser.add_argument("--instance-start", type=float, default=1.0)
    parser.add_argument("--instance-stop", type=float, default=1.0)
    parser.add_argument("--health-check", type=float, default=2.0)
    parser.add_argument("--reaction", type=float, default=0.5)
    parser.add_argument("--detach", type=float, default=1.0)
    parser.add_argument("--minimum-heartbeat", type=int, default=30)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM, SIGINT, or the exit of the process that started this one."""
    options = parse(arguments)
    gc.disable()  # the import of moto creates a million objects that stay; `start` enables it
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="aws %(levelname)s %(message)s"
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)
    with exit_on_errors():
        _import_server()
        asyncio.run(serve(options))


def load() -> None:
    """Import the server, and do once what sandboxes do at their first calls."""
    _import_server()
    from boto3 import Session
    from moto.core.routing import get_service_router
    from moto.core.utils import get_service_model
    from moto.eks import utils as eks

    from leeway_sandbox.aws import documents, images, prices

    for module in ("cloudformation", "logs"):
        import_module(f"leeway_sandbox.aws.{module}")
    for module in ("cloudwatch", "iam", "scheduler", "sqs", "ssm", "sts"):
        import_module(f"moto.{module}.urls")
    import_module("moto.iam.access_control")
    for service in SERVICES:
        get_service_model(service)
    for service in ("eks", "scheduler"):
        get_service_router(service)._get_router("rest-json")
    session = Session()
    session.get_available_partitions()
    vars(eks)["Session"] = lambda: session
    images.node_images()
    documents.write_types()
    prices.load()


def _import_server() -> None:
    # moto reads these on import: one account, no CORS headers in answers.
    os.environ.setdefault("MOTO_ACCOUNT_ID", "123456789012")
    os.environ.setdefault("MOTO_DISABLE_GLOBAL_CORS", "true")
    import_module("leeway_sandbox.aws.server")


async def serve(options: argparse.Namespace) -> None:
    """Build the server, report that it is ready, and answer requests."""
    from leeway_sandbox.aws.server import start

    port = await start(build(options), options.host, options.port)
    report_ready(port=port, url=f"http://127.0.0.1:{port}")
    await wait_for_stop()
    # No state outlives the process, so nothing needs to be closed; threads may be in a call.
    os._exit(0)


def build(options: argparse.Namespace) -> "Front":
    """Build the server with the options of the command line."""
    from moto.moto_api._internal import mock_random

    from leeway_sandbox.aws.cloud import Cloud, Delays
    from leeway_sandbox.aws.server import Front

    if options.seed is not None:
        mock_random.seed(options.seed)
    delays = Delays(
        options.instance_start,
        options.instance_stop,
        options.health_check,
        options.reaction,
        options.detach,
        options.minimum_heartbeat,
    )
    return Front(
        Cloud(options.region, delays, options.seed),
        access.Gate.of(options, "/moto-api"),
        schedule_speed=options.schedule_speed,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
