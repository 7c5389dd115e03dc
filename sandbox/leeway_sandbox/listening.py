"""Opens the ports of the sandbox's servers, and turns answers and refusals into responses."""

import errno
import os
from http import HTTPStatus
from typing import Any

from aiohttp import web

from leeway_sandbox.access import LOOPBACK
from leeway_sandbox.control import JSON, ControlApi, refusal_body
from leeway_sandbox.errors import RefusedError

_ATTEMPTS = 20  # to find a port that is free at both addresses


def refused(status: HTTPStatus, problem: str) -> web.Response:
    """Return the answer to a request that is not allowed."""
    return web.Response(status=status, body=refusal_body(problem), content_type=JSON)


async def control_response(api: ControlApi, request: web.BaseRequest) -> web.Response:
    """Answer a request to a control API."""
    body = await request.read()
    status, result = await api.answer(request.method, request.path, request.query_string, body)
    return web.Response(status=status, body=result, content_type=JSON)


async def listen(
    runner: web.BaseRunner, host: str, port: int = 0, **more: Any
) -> list[web.TCPSite]:
    """Listen at a port of this machine's loopback address and the same port of another address.

    Port 0 means a port that is free at both. `more` are arguments of `aiohttp.web.TCPSite`.

    Raises:
        RefusedError: the port is in use, or this machine does not have the address.
    """
    for attempt in range(_ATTEMPTS):
        first = web.TCPSite(runner, LOOPBACK, port, **more)
        try:
            await first.start()
        except OSError as error:
            raise _unavailable(LOOPBACK, port, error) from error
        if host == LOOPBACK:
            return [first]
        second = web.TCPSite(runner, host, port or port_of(runner), **more)
        try:
            await second.start()
        except OSError as error:
            await second.stop()
            await first.stop()
            if port or attempt == _ATTEMPTS - 1:
                raise _unavailable(host, port, error) from error
        else:
            return [first, second]
    raise AssertionError("the last attempt raises")


def _unavailable(host: str, port: int, error: OSError) -> RefusedError:
    if error.errno == errno.EADDRINUSE:
        return RefusedError(
            f"Port {port} of {host} is already in use. Stop the process that uses it, or give "
            "another port (0 is any free port)."
        )
    problem = os.strerror(error.errno) if error.errno else str(error)
    return RefusedError(f"The sandbox cannot listen at {host}, port {port}: {problem}.")


def port_of(runner: web.BaseRunner) -> int:
    """Return the port at which a runner's sites listen."""
    return int(runner.addresses[0][1])
