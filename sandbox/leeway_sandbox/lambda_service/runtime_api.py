"""The Lambda Runtime API for the runtime client in each worker.

Every worker has its own path prefix, which identifies it. Shapes: "Using the Lambda runtime API for
custom runtimes" in Lambda's guide.
"""

import uuid

from aiohttp import web

from leeway_sandbox.lambda_service.invocation import Invocation, Outcome, lineage_field
from leeway_sandbox.lambda_service.pools import Pools
from leeway_sandbox.lambda_service.workers import Worker, WorkerPool

RUNTIME_PREFIX = "/_runtime/"
_VERSION = RUNTIME_PREFIX + "{worker}/2018-06-01/runtime"


class RuntimeApi:
    """Gives invocations to workers and receives their answers."""

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
