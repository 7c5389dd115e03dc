"""The worker pools of all functions, the environment of the workers, and the API that they call."""

import contextlib
import json
import os
import socket
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from leeway_sandbox.access_entries import SECRET
from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import FunctionDefinition
from leeway_sandbox.lambda_service.faults import Faults
from leeway_sandbox.lambda_service.invocation import Invocation, Outcome, lineage_field
from leeway_sandbox.lambda_service.workers import Worker, WorkerPool
from leeway_sandbox.nursery import COMMON, VARIABLE, share_base, start_base


class Base:
    """The process that forks the zygotes of functions with the same layers."""

    def __init__(self, layers: Sequence[str]) -> None:
        self.layers = layers
        self._connection, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def start(self, clients: Sequence[str]) -> None:
        """Start the process, which first imports libraries and the models of AWS services. In tests
        a nursery has started it."""
        nursery = os.environ.get(VARIABLE)
        with self._other:
            if nursery:
                share_base(nursery, self.layers, clients, self._other)
            else:
                self._process = start_base(self.layers, clients, self._other)

    def fork(self, settings: dict[str, Any]) -> socket.socket:
        """Return the connection of a new zygote. It ends if the zygote exits."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.suppress(ConnectionError):
            socket.send_fds(self._connection, [json.dumps(settings).encode()], [theirs.fileno()])
        return ours

    def close(self) -> None:
        """End the process; the zygotes end with it."""
        self._connection.close()


class Pools:
    """One pool for each function. All methods run in the thread of the event loop."""

    def __init__(
        self, *, concurrency: int, aws_endpoint: str | None, journal: Journal, faults: Faults
    ) -> None:
        self.concurrency = concurrency
        self._aws_endpoint = aws_endpoint
        self._journal = journal
        self._faults = faults
        self._pools: dict[str, WorkerPool] = {}
        self._host = ""
        self._bases: list[Base] = []

    def serve_at(self, port: int) -> None:
        """Set the port of this service, for the environment of the workers."""
        self._host = f"127.0.0.1:{port}"

    def find(self, function: str) -> WorkerPool | None:
        """Return the pool of a function, or None."""
        return self._pools.get(function)

    def find_execution(self, execution_arn: str) -> Worker | None:
        """Return the worker that runs a durable execution, or None."""
        for pool in self._pools.values():
            if worker := pool.find_execution(execution_arn):
                return worker
        return None

    def status(self) -> dict[str, dict[str, object]]:
        """Return the status of each pool."""
        return {name: pool.status() for name, pool in self._pools.items()}

    def replace(self, functions: list[FunctionDefinition]) -> None:
        """Replace all functions; an unchanged function keeps its warm workers."""
        kept = {
            function.name: pool
            for function in functions
            if (pool := self._pools.get(function.name)) and pool.function == function
        }
        for name, pool in self._pools.items():
            if name not in kept:
                pool.close()
        base = self._base(functions)
        self._pools = {
            function.name: kept.get(function.name) or self._pool(function, base)
            for function in functions
        }

    def kill(self, caller: str) -> list[str]:
        """Kill the running workers of the functions with this access key; return their names."""
        found = [pool for pool in self._pools.values() if pool.function.access_key == caller]
        return [pool.function.name for pool in found if pool.kill_running()]

    def set_clocks(self) -> None:
        """Set the clocks of all workers by the faults."""
        for pool in self._pools.values():
            pool.set_clock()

    def close(self) -> None:
        """Stop all workers."""
        for pool in self._pools.values():
            pool.close()
        for base in self._bases:
            base.close()

    def _base(self, functions: list[FunctionDefinition]) -> Base:
        """Return the process with the layers that all functions have; start it if need be."""
        first, *others = [function.code[1:] for function in functions] or [()]
        layers = [one for one in first if all(one in code for code in others)]
        for base in self._bases:
            if base.layers == layers:
                return base
        base = Base(layers)
        base.start(sorted({client for one in functions for client in one.clients}))
        self._bases.append(base)
        return base

    def _pool(self, function: FunctionDefinition, base: Base) -> WorkerPool:
        return WorkerPool(
            function,
            fork_zygote=base.fork,
            host=self._host,
            environment=self._environment(function),
            concurrency=self.concurrency,
            journal=self._journal,
            faults=self._faults,
        )

    def _environment(self, function: FunctionDefinition) -> dict[str, str]:
        """Return Lambda's variables ("Using Lambda environment variables") and the endpoints."""
        environment = {
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python3.{sys.version_info.minor}",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory),
            "AWS_LAMBDA_FUNCTION_VERSION": function.version,
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": function.log_group,
            "AWS_REGION": function.region,
            "AWS_DEFAULT_REGION": function.region,
            "AWS_ACCESS_KEY_ID": function.access_key,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": "sandbox",
            "AWS_ENDPOINT_URL_LAMBDA": f"http://{self._host}",
            "LAMBDA_TASK_ROOT": function.code[0],
            "_HANDLER": function.handler,
            **COMMON,
        }
        if self._aws_endpoint:
            environment["AWS_ENDPOINT_URL"] = self._aws_endpoint
        return environment | function.environment


RUNTIME_PREFIX = "/_runtime/"
_VERSION = RUNTIME_PREFIX + "{worker}/2018-06-01/runtime"


class RuntimeApi:
    """The Lambda Runtime API: gives invocations to workers and receives their answers.

    Every worker has its own path prefix, which identifies it. Shapes: "Using the Lambda runtime API
    for custom runtimes" in Lambda's guide.
    """

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the API."""
        return [
            web.get(f"{_VERSION}/invocation/next", self._next),
            web.post(f"{_VERSION}/invocation/{{request}}/response", self._response),
            web.post(f"{_VERSION}/invocation/{{request}}/error", self._error),
            web.post(f"{_VERSION}/init/error", self._init_error),
        ]

    def _who(self, request: web.Request) -> tuple[WorkerPool, Worker]:
        identity = request.match_info["worker"]
        pool = self._pools.find(identity.rpartition("-")[0])
        worker = pool.find(identity) if pool else None
        if pool is None or worker is None:
            raise web.HTTPForbidden(text=f"There is no worker {identity}")
        return pool, worker

    async def _next(self, request: web.Request) -> web.Response:
        pool, worker = self._who(request)
        invocation = await pool.next(worker)
        return web.Response(body=invocation.payload, headers=_headers(invocation))

    async def _response(self, request: web.Request) -> web.Response:
        return await self._finish(request, succeeded=True)

    async def _error(self, request: web.Request) -> web.Response:
        return await self._finish(request, succeeded=False)

    async def _finish(self, request: web.Request, *, succeeded: bool) -> web.Response:
        pool, worker = self._who(request)
        outcome = Outcome("ok" if succeeded else "error", await request.read())
        if not pool.finish(worker, request.match_info["request"], outcome):
            raise web.HTTPForbidden(text="This worker does not run this invocation")
        return web.json_response({"status": "OK"}, status=202)

    async def _init_error(self, request: web.Request) -> web.Response:
        pool, worker = self._who(request)
        pool.fail_initialisation(worker, await request.read())
        return web.json_response({"status": "OK"}, status=202)


def _headers(invocation: Invocation) -> dict[str, str]:
    trace = f"Root=1-00000000-{uuid.uuid4().hex[:24]};Sampled=0;{lineage_field(invocation.lineage)}"
    return {
        # The native client crashes without a content type.
        "Content-Type": "application/json",
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(int(invocation.deadline * 1000)),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.target.arn,
        "Lambda-Runtime-Trace-Id": trace,
    }
