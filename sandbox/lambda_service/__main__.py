"""``python -m sandbox.lambda_service``: runs the Lambda service until told to stop."""

import argparse
import asyncio
import json
import logging
import os
import resource
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from sandbox.journal import Journal
from sandbox.lambda_service.control import ControlApi
from sandbox.lambda_service.definitions import Functions
from sandbox.lambda_service.events import Events
from sandbox.lambda_service.executions import Executions, WorkerInvoker
from sandbox.lambda_service.faults import Faults
from sandbox.lambda_service.pools import Pools
from sandbox.lambda_service.runtime_api import RuntimeApi
from sandbox.lambda_service.server import LambdaApi, answer_errors
from sandbox.lambda_service.service import Service

_MAX_BODY_BYTES = 8 * 2**20
# The runtime client reports an error's stack trace in a header, up to 1 MiB of it.
_MAX_HEADER_BYTES = 2 * 2**20
_BLOCKING_CALLS = 32
_PARENT_CHECK_SECONDS = 0.5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.lambda_service", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--aws", help="URL of the sandbox's AWS, for functions and dead letters")
    parser.add_argument("--concurrency", type=int, default=200, help="invocations per function")
    parser.add_argument(
        "--retry-delay", type=float, default=1.0, help="seconds before the first retry"
    )
    parser.add_argument(
        "--keep", type=int, default=2000, help="executions that are remembered once they have ended"
    )
    parser.add_argument("--exit-with-parent", action="store_true", help="end at EOF of stdin")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_BLOCKING_CALLS, "blocking"))
    journal, faults, functions = Journal(), Faults(), Functions()
    pools = Pools(
        concurrency=arguments.concurrency,
        aws_endpoint=arguments.aws,
        journal=journal,
        faults=faults,
    )
    executions = Executions(
        WorkerInvoker(pools, functions, loop),
        journal,
        region=arguments.region,
        retry_delay=arguments.retry_delay,
        concurrency=arguments.concurrency,
        kept=arguments.keep,
    )
    events = Events(pools, journal, aws_endpoint=arguments.aws, retry_delay=arguments.retry_delay)
    application = web.Application(middlewares=[answer_errors], client_max_size=_MAX_BODY_BYTES)
    application.add_routes(RuntimeApi(pools).routes())
    service = Service(functions, pools, executions, events, faults, journal)
    application.add_routes(LambdaApi(service).routes())
    application.add_routes(ControlApi(service).routes())
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=0.2,
        max_field_size=_MAX_HEADER_BYTES,
        max_line_size=_MAX_HEADER_BYTES,
    )
    await runner.setup()
    site = web.TCPSite(runner, arguments.host, arguments.port)
    await site.start()
    port = runner.addresses[0][1]
    pools.serve_at(port)
    url = f"http://127.0.0.1:{port}"
    print(json.dumps({"ready": True, "port": port, "url": url}), flush=True)
    await _until_told_to_stop(exit_with_stdin=arguments.exit_with_parent)
    executions.close()
    await events.close()
    pools.close()
    await runner.cleanup()


async def _until_told_to_stop(*, exit_with_stdin: bool) -> None:
    """Wait for SIGTERM or SIGINT, or until the process that started this one is gone."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if exit_with_stdin:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end_of_input, stop)
    parent = os.getppid()
    while not stop.is_set() and os.getppid() == parent:
        try:
            await asyncio.wait_for(stop.wait(), _PARENT_CHECK_SECONDS)
        except TimeoutError:
            continue


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


def main() -> None:
    """Parse the command line and run."""
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s lambda %(levelname)s %(name)s: %(message)s",
    )
    # Each worker takes two descriptors: a pipe and a connection.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(_arguments()))


if __name__ == "__main__":
    main()
