"""Serves moto on HTTP, behind the control API, faults, throttling and the count of calls."""

import functools
import gc
import logging
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from cheroot.wsgi import Server
from moto.core import responses as moto_responses
from moto.core.utils import method_names_from_class
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from sandbox.aws import autoscaling, instances, prices, schedules
from sandbox.aws.calls import Answer, Call, Environ, read_body, recognise, refusal
from sandbox.aws.cloud import Cloud
from sandbox.aws.control import PREFIX, Control
from sandbox.aws.eventbridge import EventBus
from sandbox.aws.nodes import NodeLink
from sandbox.aws.throttling import Throttle

log = logging.getLogger(__name__)

StartResponse = Callable[[str, list[tuple[str, str]]], Any]

THREADS = 48  # enough that injected latency and SQS long polls leave some to serve


class Moto(DomainDispatcherApplication):
    """moto's dispatcher, remembering what moto looks up anew for every call (0.5 of 1.4 ms)."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._known: dict[str | None, Any] = {}
        remembered = functools.cache(method_names_from_class)
        moto_responses.method_names_from_class = remembered  # type: ignore[attr-defined]

    def get_backend_for_host(self, host: str | None) -> Any:
        """The moto backend that serves a host name."""
        if host not in self._known:
            self._known[host] = super().get_backend_for_host(host)
        return self._known[host]


class Front:
    """The WSGI application: every request passes here first."""

    def __init__(self, cloud: Cloud, *, throttle: bool, schedule_speed: float = 1.0):
        self._cloud = cloud
        bus = EventBus(cloud, schedule_speed)
        schedules.install(bus)
        instances.install(cloud, bus)
        nodes = NodeLink(cloud)
        autoscaling.install(cloud, bus)
        prices.install()
        self._throttle = Throttle(enabled=throttle)
        self.control = Control(cloud, bus, nodes, self._throttle)
        self._moto = Moto()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        body = read_body(environ)
        if environ["PATH_INFO"].startswith(PREFIX):
            return _send(self.control.answer(environ, body), start_response)
        call = recognise(environ, body)
        if call is None:
            return self._forward(environ, start_response)
        self.control.count(call.access_key, str(call))
        if refused := self._throttle.refuses(call):
            return _send(refusal(call, environ, *refused), start_response)
        fault = self._cloud.faults.strike(call.service, call.action)
        if fault:
            time.sleep(self._cloud.faults.delay(fault))
            if fault.error:
                if fault.when == "after":
                    self._serve(call, environ, lambda _status, _headers: None)
                answer = refusal(call, environ, fault.error, fault.message, fault.status)
                return _send(answer, start_response)
        return self._serve(call, environ, start_response)

    def _serve(
        self, call: Call, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        try:
            if call.service == "pricing":
                return _send(prices.answer(environ), start_response)
            return self._forward(environ, start_response, waits=call.action == "ReceiveMessage")
        except NotImplementedError as gap:
            log.warning("%s is not in the sandbox: %s", call, gap)
            message = f"The sandbox does not know {call}."
            return _send(
                refusal(call, environ, "NotImplemented", message, HTTPStatus.NOT_IMPLEMENTED),
                start_response,
            )

    def _forward(
        self, environ: Environ, start_response: StartResponse, *, waits: bool = False
    ) -> Iterable[bytes]:
        if waits:  # a long poll must not hold up everybody else
            return self._moto(environ, start_response)  # type: ignore[no-any-return]
        with self._cloud.lock:
            return self._moto(environ, start_response)  # type: ignore[no-any-return]


def _send(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    status, headers, body = answer
    sent = headers | {"Content-Length": str(len(body))}
    start_response(f"{status} {HTTPStatus(status).phrase}", list(sent.items()))
    return [body]


class PatientServer(Server):
    """An HTTP server that keeps every connection open that a client wants to use again."""

    keep_alive_conn_limit = 100_000

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        """Write to the log instead of standard error."""
        log.log(level, msg, exc_info=traceback)


def build_server(front: Front, host: str, port: int) -> Server:
    """A listening HTTP/1.1 server with connections that stay open; port 0 is any free port."""
    server = PatientServer(
        (host, port), front, numthreads=THREADS, request_queue_size=512, timeout=120
    )
    server.prepare()
    gc.collect()
    gc.freeze()  # moto's catalogs are large and stay: no collection need walk them
    return server
