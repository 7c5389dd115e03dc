"""Serves the page on 127.0.0.1, to nobody who does not know its address.

The address has a token. Each other path, a wrong token and a `Host` that is not this machine get
the same answer. So neither another user of the machine, nor a page of another site, which may let
its name point to 127.0.0.1 (DNS rebinding), can read anything. Updates are server-sent events.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from hmac import compare_digest
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from leeway_cli.errors import BadInputError
from leeway_cli.output import templates
from leeway_cli.view.picture import Picture, difference

ADDRESS: Final = "127.0.0.1"

QUIET = 15.0
"""Seconds after which a viewer gets a comment, so that a closed connection is found."""

_HOSTS: Final = frozenset({ADDRESS, "localhost"})
_FILES: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page:
    """The page, which shows the last picture that was published, or plays a recording.

    When the command has ended, another user may open its port and see the token in the request of
    a page that is still open. So the page has a second secret, the proof, which it never sends, and
    shows only what begins with it. `every` is the time between two reads: the page says when none
    comes for much longer. `clock` returns epoch seconds.
    """

    def __init__(
        self,
        recording: bytes | None = None,
        every: timedelta = timedelta(seconds=5),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.token = secrets.token_urlsafe(32)
        self.proof = secrets.token_urlsafe(32)
        self.opened = asyncio.Event()
        self._recording = recording
        self._picture: Picture | None = None
        self._changed = asyncio.Event()
        self._sent: tuple[Picture, Picture, bytes] | None = None
        self._files = _files(self.proof, every, live=recording is None)

    def publish(self, picture: Picture) -> None:
        """Show a picture to all viewers."""
        self._picture = picture
        self._changed.set()
        self._changed = asyncio.Event()

    def application(self) -> web.Application:
        """Return the web application."""
        made = web.Application()
        made.on_response_prepare.append(_add_headers)
        made.router.add_get("/{token}/{name}", self._answer, allow_head=False)
        made.router.add_get("/{token}/", self._answer, allow_head=False)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        host = request.host.rpartition(":")[0] or request.host
        given = request.match_info["token"].encode()
        if host not in _HOSTS or not compare_digest(given, self.token.encode()):
            raise web.HTTPNotFound
        name = request.match_info.get("name", "")
        if name == "events" and self._recording is None:
            return await self._events(request)
        if name == "recording" and self._recording is not None:
            return web.Response(body=self._recording, content_type="application/x-ndjson")
        if name not in self._files:
            raise web.HTTPNotFound
        kind = _TYPES.get(Path(name).suffix, "text/html")
        return web.Response(text=self._files[name], content_type=kind, charset="utf-8")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the picture, and then what changes. A slow viewer gets several changes as one."""
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        self.opened.set()
        seen: Picture | None = None
        with suppress(ConnectionResetError):
            while True:
                changed, picture = self._changed, self._picture
                if picture is not None and picture is not seen:
                    await response.write(self._event(seen, picture))
                    seen = picture
                try:
                    await asyncio.wait_for(changed.wait(), QUIET)
                except TimeoutError:
                    await response.write(b": no change\n\n")
        return response

    def _event(self, seen: Picture | None, picture: Picture) -> bytes:
        """Return the event for a viewer who has seen a picture. Most have seen the same one. One
        who has seen none, as after a reload, also gets the age of the picture in seconds: the
        reader may hang, and the clock of the browser may be another one."""
        if seen is None:
            age = max(0.0, self.clock() - picture.at)
            whole = {"proof": self.proof, "age": age, **msgspec.structs.asdict(picture)}
            return b"event: picture\ndata: " + msgspec.json.encode(whole) + b"\n\n"
        if self._sent is None or self._sent[0] is not seen or self._sent[1] is not picture:
            change = msgspec.json.encode(difference(seen, picture))
            self._sent = seen, picture, b"event: change\ndata: " + change + b"\n\n"
        return self._sent[2]


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.pop("Server", None)


def _files(proof: str, every: timedelta, *, live: bool) -> dict[str, str]:
    """Return the files of the page by their names. The page itself has none."""
    found = {path.name: path.read_text(encoding="utf-8") for path in _FILES.iterdir()}
    pages = templates()
    found["report.css"] = pages.get_template("report.css").render()
    found[""] = pages.get_template("view.html.j2").render(
        live=live, proof=proof, every=every.total_seconds()
    )
    return found


type Show = Callable[[Page], Awaitable[None]]


async def serve(page: Page, port: int, announce: Callable[[str], None], show: Show) -> None:
    """Serve a page while `show` runs. `announce` gets its address; port 0 is any that is free.

    Raises:
        BadInputError: the port cannot be used.
    """
    runner = web.AppRunner(page.application(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, ADDRESS, port).start()
        except OSError as error:
            raise BadInputError(
                f"--port: expected a port of {ADDRESS} that is free, got {port}: {error.strerror}."
            ) from error
        announce(f"http://{ADDRESS}:{runner.addresses[0][1]}/{page.token}/")
        await show(page)
    finally:
        await runner.cleanup()
