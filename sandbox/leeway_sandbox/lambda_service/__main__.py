"""Runs the Lambda service until it is stopped: ``python -m leeway_sandbox.lambda_service``."""

import argparse
import asyncio
import logging
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware

from leeway_sandbox import access
from leeway_sandbox.control import PREFIX, Journal
from leeway_sandbox.lag import lag
from leeway_sandbox.lambda_service.control import Control
from leeway_sandbox.lambda_service.definitions import Functions
from leeway_sandbox.lambda_service.event_sources import EventSources
from leeway_sandbox.lambda_service.events import Events
from leeway_sandbox.lambda_service.executions import Executions, WorkerInvoker
from leeway_sandbox.lambda_service.faults import Faults
from leeway_sandbox.lambda_service.pools import RUNTIME_PREFIX, Pools, RuntimeApi
from leeway_sandbox.lambda_service.server import (
    STARTS_A_SECOND,
    Descriptions,
    Handler,
    LambdaApi,
    Service,
    StartQuota,
    answer_errors,
)
from leeway_sandbox.listening import listen, port_of, refused
from leeway_sandbox.process import exit_on_errors, report_ready, wait_for_stop

_MAX_BODY_BYTES = 8 * 2**20
# The runtime client sends the stack trace of an error in a header of up to 1 MiB.
_MAX_HEADER_BYTES = 2 * 2**20
_BLOCKING_CALLS = 32
_REDELIVERY = 2  # seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m leeway_sandbox.lambda_service", description=__doc__
    )
    access.arguments(parser)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--aws", help="URL of the sandbox's AWS, for functions and dead letters")
    parser.add_argument("--concurrency", type=int, default=200, help="invocations per function")
    parser.add_argument(
        "--starts",
        type=int,
        default=STARTS_A_SECOND,
        help="durable executions that may start in a second; 0: no limit",
    )
    parser.add_argument(
        "--retry-delay", type=float, default=1.0, help="seconds before the first retry"
    )
    parser.add_argument(
        "--redelivery",
        type=int,
        default=_REDELIVERY,
        help="seconds until a failed message of a queue comes again, if its visibility timeout "
        "is longer",
    )
    parser.add_argument("--keep", type=int, default=2000, help="number of ended executions to keep")
    return parser.parse_args()


def _check_caller(gate: access.Gate) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = gate.refusal(request.path, request.headers)
        if refusal is not None:
            return refused(*refusal)
        # Workers run on this machine.
        if request.path.startswith(RUNTIME_PREFIX) and request.remote != access.LOOPBACK:
            problem = "Only workers on this machine call the Lambda Runtime API."
            return refused(HTTPStatus.FORBIDDEN, problem)
        await asyncio.sleep(lag())
        answer = await handler(request)
        await asyncio.sleep(lag())
        return answer

    return check


async def _may_invoke(aws: str | None, headers: dict[str, str], access_key: str) -> str:
    """Ask the IAM of the sandbox's AWS; everybody may without one."""
    if aws is None:
        return ""
    body = {"access_key": access_key, "action": "lambda:InvokeFunction"}
    url = f"{aws}{PREFIX}authorize"
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=body, headers=headers) as answer,
    ):
        return str((await answer.json())["problem"])


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
    event_sources = EventSources(
        functions,
        pools,
        faults,
        journal,
        aws_endpoint=arguments.aws,
        redelivery=arguments.redelivery,
    )
    gate = access.Gate.of(arguments)
    checks = [_check_caller(gate), answer_errors]
    application = web.Application(middlewares=checks, client_max_size=_MAX_BODY_BYTES)
    application.add_routes(RuntimeApi(pools).routes())
    service = Service(functions, pools, executions, events, event_sources, faults, journal)
    may_invoke = partial(_may_invoke, arguments.aws, gate.pass_on())
    application.add_routes(LambdaApi(service, StartQuota(arguments.starts), may_invoke).routes())
    application.add_routes(Descriptions(service).routes())
    application.add_routes(Control(service).routes())
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=0.2,
        max_field_size=_MAX_HEADER_BYTES,
        max_line_size=_MAX_HEADER_BYTES,
    )
    await runner.setup()
    await listen(runner, arguments.host, arguments.port)
    port = port_of(runner)
    pools.serve_at(port)
    url = f"http://127.0.0.1:{port}"
    report_ready(port=port, url=url)
    await wait_for_stop()
    await event_sources.close()
    executions.close()
    await events.close()
    pools.close()
    await runner.cleanup()


def main() -> None:
    """Parse the command line and run."""
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s lambda %(levelname)s %(name)s: %(message)s",
    )
    # Each worker needs two descriptors: a pipe and a connection.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with exit_on_errors():
        asyncio.run(_serve(_arguments()))


if __name__ == "__main__":
    main()
