"""A headless Chromium of the system, driven by its DevTools protocol over a WebSocket.

Libraries that drive browsers bring a browser of their own, or need a driver of the same version.
Source: Chrome DevTools Protocol, domains Page, Runtime, Input, Emulation and Accessibility.
"""

import asyncio
import base64
import itertools
import json
import shutil
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")
LONGEST = 60.0  # seconds that a state of the page may take on a busy machine
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Tab:
    """A page. `problems` are errors and warnings of its console, and exceptions."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            found = message.json()
            if (number := found.get("id")) is not None:
                self._answers.pop(number).set_result(found)
            elif found["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(found["params"]["exceptionDetails"]))
            elif found["method"] == "Log.entryAdded":
                self.problems.append(found["params"]["entry"]["text"])
            elif found["method"] == "Runtime.consoleAPICalled":
                self.problems.append(json.dumps(found["params"]["args"]))

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        answer = self._answers[number]
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        found = await asyncio.wait_for(answer, LONGEST)
        assert "error" not in found, found
        return found["result"]

    async def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, holds: Callable[[Any], bool] = bool) -> Any:
        """Wait until the value of an expression is as it should be, and return it."""
        for _ in range(int(LONGEST / 0.05)):
            found = await self.run(expression)
            if holds(found):
                return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"{expression} is {found!r}")

    async def open(self, address: str) -> None:
        await self.call("Page.navigate", url=address)

    async def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = "\r" if key == "Enter" and kind == "keyDown" else ""
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text
            )

    async def look(self, width: int, *, dark: bool = False, still: bool = False) -> None:
        """Set the width of the page and what the user prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce" if still else ""},
            ],
        )

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        found = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def opened(profile: Path) -> AsyncIterator[Tab]:
    """Start the browser with an empty profile, and open a page."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, *_OPTIONS, "--remote-debugging-port=0", f"--user-data-dir={profile}"),
        "about:blank",
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            port = await _port(profile / "DevToolsActivePort", process)
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (target,) = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _port(file: Path, process: Process) -> str:
    for _ in range(int(LONGEST / 0.05)):
        assert process.returncode is None, "Chromium has ended"
        if file.exists() and (lines := file.read_text().splitlines()):
            return lines[0]
        await asyncio.sleep(0.05)
    raise AssertionError("Chromium does not answer")
