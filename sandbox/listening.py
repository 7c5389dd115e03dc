"""How the sandbox's servers listen, and how they turn a caller away."""

from http import HTTPStatus
from typing import Any

from aiohttp import web

from sandbox.access import LOOPBACK

_ATTEMPTS = 20  # to find a port that is free at both addresses


def refused(status: HTTPStatus, reason: str) -> web.Response:
    """Return the answer to a request that may not pass."""
    return web.json_response({"error": reason}, status=status)


async def listen(
    runner: web.BaseRunner, host: str, port: int = 0, **more: Any
) -> list[web.TCPSite]:
    """Listen at a port of this machine's loopback address and the same port of another address.

    Port 0 is one that is free at both. `more` are arguments of `aiohttp.web.TCPSite`.
    """
    for attempt in range(_ATTEMPTS):
        first = web.TCPSite(runner, LOOPBACK, port, **more)
        await first.start()
        if host == LOOPBACK:
            return [first]
        second = web.TCPSite(runner, host, port or port_of(runner), **more)
        try:
            await second.start()
        except OSError:
            await second.stop()
            await first.stop()
            if port or attempt == _ATTEMPTS - 1:
                raise
        else:
            return [first, second]
    raise AssertionError("the last attempt has raised")


def port_of(runner: web.BaseRunner) -> int:
    """Return the port that a runner's sites listen at."""
    return int(runner.addresses[0][1])
