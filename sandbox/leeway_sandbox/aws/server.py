"""Serves moto over HTTP, behind access checks, faults, throttling and the count of calls."""

import asyncio
import gc
import io
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

from leeway_sandbox.access import Gate
from leeway_sandbox.aws import (
    account,
    autoscaling,
    booting,
    dynamodb,
    eks,
    fleets,
    images,
    instances,
    launch_templates,
    prices,
    queues,
    schedules,
)
from leeway_sandbox.aws.authorization import Authorization
from leeway_sandbox.aws.calls import Answer, Call, Environ, error_of_region, recognise, refusal
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.control import Control
from leeway_sandbox.aws.eks import ClusterAccess
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.moto_calls import Moto
from leeway_sandbox.aws.nodes import NodeLink
from leeway_sandbox.aws.queues import Killer
from leeway_sandbox.aws.reservations import ReservationCalls, Reservations
from leeway_sandbox.aws.stacks import DeployedStacks
from leeway_sandbox.aws.throttling import Throttle
from leeway_sandbox.control import JSON, PREFIX
from leeway_sandbox.lag import lag
from leeway_sandbox.listening import listen, port_of, refused

if TYPE_CHECKING:
    from leeway_sandbox.aws.logs import FunctionLogs

log = logging.getLogger(__name__)

BACKLOG = 1024
LONGEST_BODY = 64 * 1024 * 1024
LOST = 0  # in place of a status: the action is done, and the client gets no answer
KEPT_ALIVE = 3600  # seconds that an idle connection stays open


class Front:
    """Handles every request first.

    One thread answers all requests. moto's models allow one caller at a time, and
    another thread for each call takes more than half of the time of a call.
    """

    def __init__(self, cloud: Cloud, gate: Gate, *, schedule_speed: float = 1.0):
        self._cloud, self._gate = cloud, gate
        bus = EventBus(cloud, schedule_speed)
        schedules.install(bus)
        self._queue_changes = queues.Changes()
        queues.install(self._queue_changes)
        instances.install(cloud, bus)
        ReservationCalls.reservations = Reservations(cloud, bus)
        account.install()
        booting.install()
        images.install()
        launch_templates.install()
        fleets.install(cloud)
        nodes = NodeLink(cloud, gate.pass_on())
        autoscaling.install(cloud, bus)
        prices.add_retired_types()
        dynamodb.install(cloud)
        self._throttle = Throttle()
        access = ClusterAccess(cloud.region, nodes.controls, gate.pass_on())
        eks.install(access.changed)
        self._stacks = stacks = DeployedStacks(cloud.region)
        self._authorization = Authorization(cloud.region, stacks)
        self.control = Control(
            cloud, bus, nodes, self._throttle, stacks, access, self._authorization
        )
        self._moto = Moto(stacks, cloud.region)
        self._killer = Killer(cloud, bus, gate.pass_on())
        self._bus = bus
        self._function_logs: FunctionLogs | None = None

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one HTTP request."""
        # `_environ` passes the unquoted raw path to the control API and to moto: check both forms.
        for path in (request.path, unquote(request.raw_path, "latin-1")):
            refusal = self._gate.refusal(path, request.headers)
            if refusal is not None:
                return refused(*refusal)
        body = await request.read()
        await asyncio.sleep(lag())
        status, headers, content = await self._answer(_environ(request, body), body)
        await asyncio.sleep(lag())
        if status == LOST and request.transport:
            request.transport.close()
        headers.pop("Content-Length", None)  # aiohttp sets it
        return web.Response(status=status, headers=headers, body=content)

    async def _answer(self, environ: Environ, body: bytes) -> Answer:
        if environ["PATH_INFO"].startswith(PREFIX):
            asked = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"])
            status, result = await self.control.answer(*asked, body)
            return status, {"Content-Type": JSON}, result
        call = recognise(environ, body)
        if call is None:
            return self._forward(None, environ)
        keys = dynamodb.keys_reached(call, body)
        kinds = {key.partition("#")[0] + "#" for key in keys}
        self.control.count(call.access_key, str(call), kinds)
        if str(call) == "cloudformation:UpdateStack":
            # CloudFormation checks this right on the transform of the template, Serverless.
            self.control.count(call.access_key, "cloudformation:CreateChangeSet", ())
        if refused := self._throttle.refuses(call):
            return refusal(call, environ, *refused)
        with self._cloud.lock:
            error = error_of_region(call, environ, self._cloud.region)
            error = error or self._authorization.error_of(call, body)
        if error is not None:
            return refusal(call, environ, *error)
        fault = self._cloud.faults.take_call(call)
        if fault:
            await asyncio.sleep(self._cloud.faults.delay(fault))
            if fault.drop or fault.kill:
                if fault.drop or fault.when == "after":
                    await self._serve(call, environ)
                if fault.kill:
                    await self._killer.kill(call)
                return LOST, {}, b""
            if fault.error:
                if fault.when == "after":
                    await self._serve(call, environ)
                return refusal(call, environ, fault.error, fault.message, fault.status)
        return await self._serve(call, environ)

    async def _serve(self, call: Call, environ: Environ) -> Answer:
        try:
            if call.action == "ReceiveMessage":
                return await self._receive(call, environ)
            if call.service == "logs":
                await self._move_logs()
            if call.action == "SendMessage":
                environ = queues.with_trace(environ)
            return self._forward(call, environ)
        except NotImplementedError as gap:
            log.warning("The sandbox does not support %s: %s", call, gap)
            message = f"The sandbox does not support {call}."
            return refusal(call, environ, "NotImplemented", message, HTTPStatus.NOT_IMPLEMENTED)

    async def _receive(self, call: Call, environ: Environ) -> Answer:
        """Answer a receipt of messages; others are answered while it waits."""
        body = environ["wsgi.input"].getvalue()

        def answer() -> Answer:
            return self._forward(call, {**environ, "wsgi.input": io.BytesIO(body)})

        poll = queues.LongPoll.of(call, environ["PATH_INFO"], body)
        return await queues.receive(poll, self._queue_changes, answer) if poll else answer()

    async def _move_logs(self) -> None:
        """Write what the functions have logged to their log groups."""
        if self._function_logs is None:
            from leeway_sandbox.aws.logs import FunctionLogs

            headers = self._gate.pass_on()
            self._function_logs = FunctionLogs(self._cloud, self._authorization, headers)
        self._stacks.create("logs")
        if url := self._bus.deliveries.lambda_url:
            await self._function_logs.move(url)

    def _forward(self, call: Call | None, environ: Environ) -> Answer:
        with self._cloud.lock:
            return self._moto.answer(call, environ)


def _environ(request: web.BaseRequest, body: bytes) -> Environ:
    """Return the request as a WSGI environment (PEP 3333), which moto expects."""
    path, _, query = request.raw_path.partition("?")
    host, _, port = request.host.partition(":")
    environ: Environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": request.raw_path,
        "REQUEST_URI": request.raw_path,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.remote or "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE", "")
    environ.pop("HTTP_TRANSFER_ENCODING", None)  # the body is complete
    environ.pop("HTTP_CONTENT_LENGTH", None)
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ


def _make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=LONGEST_BODY
    )


async def start(front: Front, host: str, port: int) -> int:
    """Listen and return the port; port 0 means any free port."""
    server = web.Server(
        front.handle,
        request_factory=_make_request,
        access_log=None,
        keepalive_timeout=KEPT_ALIVE,
    )
    runner = web.ServerRunner(server)
    await runner.setup()
    await listen(runner, host, port, backlog=BACKLOG)
    gc.freeze()  # moto's catalogs are large and permanent: exclude them from collections
    gc.enable()
    return port_of(runner)
