"""Who gets the page, and who does not."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from leeway_cli.view.picture import Change, Picture
from leeway_cli.view.server import Page, serve

from tests.view.pictures import PICTURE, later

type Use = Callable[[Page, aiohttp.ClientSession, str], Awaitable[None]]


def served(use: Use, recording: bytes | None = None) -> None:
    """Serve a page, and use its address."""

    async def run() -> None:
        addresses: list[str] = []

        async def show(page: Page) -> None:
            async with aiohttp.ClientSession() as session:
                await use(page, session, addresses[0])

        page = Page(recording, clock=lambda: PICTURE.at)
        await serve(page, 0, addresses.append, show)

    asyncio.run(run())


async def status(session: aiohttp.ClientSession, url: str, **headers: str) -> int:
    async with session.get(url, headers=headers) as answer:
        if answer.status != 200:
            assert (await answer.text()).startswith("404"), "each refusal says the same"
        return answer.status


def test_only_the_address_with_the_token_gets_in() -> None:
    async def use(page: Page, session: aiohttp.ClientSession, address: str) -> None:
        root = address.removesuffix(f"{page.token}/")
        assert await status(session, address) == 200
        assert await status(session, f"{address}view.js") == 200
        for wrong in ("", "view.js", "events", "x/", "x/view.js", "x/events", f"{page.token}x/"):
            assert await status(session, root + wrong) == 404, wrong
        for file in ("picture.py", "../server.py", "..%2fserver.py", "recording", "none"):
            assert await status(session, address + file) == 404, file
        async with session.post(address) as answer:
            assert answer.status == 405

    served(use)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:80", 200),
        ("localhost:9000", 200),  # as ssh -L forwards it
        ("localhost", 200),
        ("evil.example", 404),
        ("evil.example:8080", 404),
        ("127.0.0.1.evil.example:8080", 404),
        ("", 404),
    ],
)
def test_another_name_of_the_host_gets_nothing(host: str, expected: int) -> None:
    """A page of another site may let its name point to 127.0.0.1."""

    async def use(_: Page, session: aiohttp.ClientSession, address: str) -> None:
        assert await status(session, address, Host=host) == expected

    served(use)


def test_each_answer_forbids_frames_inline_scripts_referrers_and_other_origins() -> None:
    async def use(_: Page, session: aiohttp.ClientSession, address: str) -> None:
        for url in (address, f"{address}view.css", f"{address}none", f"{address}events"):
            async with session.get(url, headers={"Origin": "https://evil.example"}) as answer:
                found = answer.headers
                policy = found["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self';" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert found["Referrer-Policy"] == "no-referrer"
                assert found["Cache-Control"] == "no-store"
                assert found["X-Content-Type-Options"] == "nosniff"
                assert "Access-Control-Allow-Origin" not in found
                assert "Server" not in found
                answer.close()

    served(use)


async def event(answer: aiohttp.ClientResponse) -> tuple[str, dict[str, object]]:
    kind = (await answer.content.readline()).decode().strip().removeprefix("event: ")
    data = await answer.content.readline()
    await answer.content.readline()
    return kind, json.loads(data.removeprefix(b"data: "))


def test_a_viewer_gets_the_picture_and_then_what_changes() -> None:
    async def use(page: Page, session: aiohttp.ClientSession, address: str) -> None:
        page.publish(PICTURE)
        async with session.get(f"{address}events") as first, session.get(f"{address}events") as two:
            for viewer in (first, two):
                kind, found = await event(viewer)
                assert (kind, found["cluster"]) == ("picture", "prod")
                assert found["proof"] == page.proof
                assert found["age"] == 0
            page.publish(later(PICTURE, 5, pods={}))
            for viewer in (first, two):
                kind, found = await event(viewer)
                assert kind == "change"
                assert found == {"at": PICTURE.at + 5, "pods": dict.fromkeys(PICTURE.pods)}
        assert page.opened.is_set()
        page.clock = lambda: PICTURE.at + 65
        async with session.get(f"{address}events") as late:
            _, found = await event(late)
            assert found["age"] == 60
        async with session.get(address) as answer:
            assert f'data-proof="{page.proof}"' in await answer.text()

    served(use)


def test_a_viewer_who_is_slow_gets_several_changes_as_one() -> None:
    async def use(page: Page, session: aiohttp.ClientSession, address: str) -> None:
        page.publish(PICTURE)
        async with session.get(f"{address}events") as viewer:
            await event(viewer)
            for second, problem in enumerate(("one", "two", "three")):
                page.publish(later(PICTURE, second, problem=problem))
            _, found = await event(viewer)
            assert found["problem"] == "three"

    served(use)


def test_a_recording_is_served_instead_of_events() -> None:
    async def use(_: Page, session: aiohttp.ClientSession, address: str) -> None:
        async with session.get(f"{address}recording") as answer:
            assert await answer.read() == b"{}\n"
        assert await status(session, f"{address}events") == 404

    served(use, b"{}\n")


def test_the_page_knows_each_field_of_a_picture_and_of_a_change() -> None:
    assert {*Picture.__struct_fields__} - {"cluster"} == {*Change.__struct_fields__}
