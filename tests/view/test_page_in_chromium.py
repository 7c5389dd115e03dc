"""The page in a real browser: what it shows, how it updates, and by which keys it is used."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from leeway_cli.view.picture import Picture, Pod, difference
from leeway_cli.view.recording import First
from leeway_cli.view.server import Page, serve
from msgspec.structs import replace

from tests.view.chromium import CHROMIUM, Tab, opened
from tests.view.pictures import AT, GIB, HOSTILE, PICTURE, later, node, totals

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium: Debian's package `chromium` has it"
)

type Use = Callable[[Page, Tab], Awaitable[None]]

RETIRING, OTHER, NEW = (f"ip-10-0-0-{number}.ec2.internal" for number in (1, 2, 9))


def shown(folder: Path, use: Use, picture: Picture | None, recording: bytes | None = None) -> None:
    """Serve a page, and open it in a browser."""

    async def run() -> None:
        addresses: list[str] = []

        async def show(page: Page) -> None:
            if picture is not None:
                page.publish(picture)
            async with opened(folder / "profile") as tab:
                await tab.look(1300, still=True)
                await tab.open(addresses[0])
                await tab.until("document.querySelectorAll('.box').length === 2")
                await use(page, tab)
                assert tab.problems == []

        page = Page(recording, clock=lambda: AT)
        await serve(page, 0, addresses.append, show)

    asyncio.run(run())


def box(name: str, rest: str = "") -> str:
    return f"document.querySelector('[data-node=\"{name}\"]'){rest}"


def test_the_page_shows_the_cluster_updates_itself_and_is_used_by_keyboard(tmp_path: Path) -> None:
    async def use(page: Page, tab: Tab) -> None:
        await _it_shows_the_cluster(tab)
        await _it_is_used_by_keyboard(tab)
        await _it_updates_only_what_has_changed(page, tab)
        await _it_fits_on_a_phone_and_in_the_dark(tab)

    shown(tmp_path, use, PICTURE)


async def _it_shows_the_cluster(tab: Tab) -> None:
    text = await tab.run("document.body.innerText")
    for words in (
        "Cluster prod",
        "Without a node: shop/web-3\n3 pods, such as shop/web-3: RequestTooLarge: No type",
        "kept: PodIsBlocked",
        "now: ip-10-0-0-1",
        "PodsFitElsewhere: The pods of",
        "saves 0.1535 USD per hour, 2 pods move",
        "Read the cluster",
        "No node retires or starts.",
        "112.05 a month, or more",
    ):
        assert words in text, words
    assert text.count(HOSTILE) == 3, "text of a cluster is text"
    assert await tab.run("document.querySelectorAll('img, script:not([src])').length") == 0
    assert await tab.run("document.getElementById('total-price').textContent") == "0.3070"
    widths = await tab.run(
        f"[...{box(RETIRING, '.querySelectorAll(`.pod`)')}].map(e => e.style.width)"
    )
    assert widths == ["25%", "12.5%", "12.5%"], "pods, as wide as their share, DaemonSets last"
    tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    names = {(one["role"]["value"], one.get("name", {}).get("value")) for one in tree}
    said = f"{RETIRING}, m5.2xlarge · spot · us-east-1a, CPU 50%, memory 25%, 2 pods"
    for role, name in (
        ("button", said),
        ("heading", "Cluster prod"),
        ("region", "What happens now"),
        ("region", "Next steps"),
        ("image", "USD per hour from"),
        ("link", "Skip to the nodes"),
    ):
        assert any(one[0] == role and str(one[1]).startswith(name) for one in names), name


FOCUSED = "document.activeElement.dataset.node"


async def _it_is_used_by_keyboard(tab: Tab) -> None:
    for _ in range(9):
        await tab.press("Tab", 9)
        if await tab.run(FOCUSED):
            break
    first = await tab.run(FOCUSED)
    assert first == OTHER, "the box of the first pool"
    await tab.press("ArrowRight", 39)
    assert await tab.run(FOCUSED) == RETIRING
    await tab.press("ArrowUp", 38)
    assert await tab.run(FOCUSED) == OTHER
    await tab.press("ArrowDown", 40)
    await tab.press("Enter", 13)
    await tab.until("document.getElementById('detail').open")
    detail = await tab.run("document.getElementById('detail').innerText")
    assert RETIRING in detail
    assert "shop/web-1" in detail
    assert "4 vCPU of 8 vCPU" in detail
    assert "GPUs" not in detail
    await tab.press("Escape", 27)
    await tab.until("!document.getElementById('detail').open")
    assert await tab.run(FOCUSED) == RETIRING, "the focus is back"


async def _it_updates_only_what_has_changed(page: Page, tab: Tab) -> None:
    await tab.run(
        "window.touched = new Set(); new MutationObserver(found => found.forEach(one => "
        "touched.add((one.target.closest ?? one.target.parentElement.closest)"
        ".call(one.target.closest ? one.target : one.target.parentElement, '.box')?.dataset.node)))"
        ".observe(document.getElementById('pools'),"
        " {subtree: true, childList: true, attributes: true, characterData: true}); true"
    )
    deadline = await tab.run("Date.now() / 1000 + 118")
    retiring = node(fate="retires", next="retires in", clock_at=deadline, pods=(1, 58), leaving=1)
    moved = {**PICTURE.pods, "shop/web-2": Pod(NEW, 1000, GIB)}
    (read,) = PICTURE.log
    other = replace(read, at=AT + 1, message="Launched a node.")
    new = node(fate="starting", next="starting", clock_at=deadline - 120, ready=False)
    after = later(
        PICTURE,
        5,
        nodes={**PICTURE.nodes, RETIRING: retiring, NEW: new},
        pods=moved,
        totals=totals(nodes=3),
        log=(read, other, replace(read, at=AT + 2)),
    )
    page.publish(after)
    words = await tab.until(box(RETIRING, ".innerText"), lambda text: "retires in 1:" in text)
    assert "1 pod" in words
    await tab.until(box(RETIRING, ".innerText"), lambda text: text != words)
    assert "starting 0:" in await tab.run(box(NEW, ".innerText"))
    rows = await tab.run("[...document.querySelectorAll('#log li')].map(e => e.innerText)")
    assert ["Read the cluster" in one for one in rows] == [True, False], "the newest comes first"
    assert "2 times since " in rows[0]
    fates = await tab.run("document.getElementById('fates').innerText")
    assert fates.index(RETIRING) < fates.index(NEW), "a deadline comes first"
    assert OTHER not in await tab.run("[...touched]")
    said = await tab.until("document.getElementById('said').textContent")
    assert said == "1 node retires, 1 node was launched. 3 nodes now."
    assert await tab.run(FOCUSED) == RETIRING, "an update keeps the focus"
    assert await tab.run("document.getAnimations().length") == 0, "reduced motion"
    await _it_says_when_no_update_comes(page, tab, after)
    failed = later(after, 10, nodes=PICTURE.nodes, problem="The API server did not answer.")
    page.publish(failed)
    await tab.until("document.querySelectorAll('.box').length === 2")
    assert "did not answer" in await tab.run("document.getElementById('problem').innerText")
    page.clock = lambda: failed.at + 400
    await tab.open(await tab.run("location.href"))
    state = await tab.until(
        "document.getElementById('state')?.textContent ?? ''",
        lambda text: text.startswith("No answer"),
    )
    assert "for 0:" not in state, "a reload does not make the page younger"
    assert state.endswith(" UTC.")


async def _it_says_when_no_update_comes(page: Page, tab: Tab, before: Picture) -> None:
    state, said = (f"document.getElementById('{name}').textContent" for name in ("state", "said"))
    await tab.run(
        "window.real = performance.now.bind(performance);"
        " performance.now = () => real() + 40000; true"
    )
    assert "Shown as of" in await tab.until(state, lambda text: "No answer for 0:4" in text)
    assert await tab.run("document.body.classList.contains('stale')")
    first = await tab.run(said)
    assert first.startswith("No answer for 0:")
    await tab.run("performance.now = () => real() + 50000; true")
    await tab.until(state, lambda text: "No answer for 0:5" in text)
    assert await tab.run(said) == first, "a live region says it once"
    gap = ((before.at - 7200, 0.5), (before.at - 3600, None))
    page.publish(later(before, 5, recorded=gap))
    await tab.until(state, lambda text: text.startswith("Live. Read at"))
    assert await tab.run(said) == "The page is live again."
    assert not await tab.run("document.body.classList.contains('stale')")
    paths = "document.querySelectorAll('#price path.line').length"
    assert await tab.run(paths) == 2, "what was recorded, and after a gap what was read"
    chart = "document.querySelector('#price svg').getAttribute('aria-label')"
    assert ": 0.5000 at first, 0.3070 now." in await tab.run(chart)


async def _it_fits_on_a_phone_and_in_the_dark(tab: Tab) -> None:
    light = await tab.run("getComputedStyle(document.body).backgroundColor")
    await tab.look(400, dark=True)
    await tab.until("getComputedStyle(document.body).backgroundColor", lambda now: now != light)
    wide = "[document.documentElement, ...document.querySelectorAll('main *')]"
    too_wide = f"{wide}.filter(e => e.getBoundingClientRect().right > 401).map(e => e.outerHTML)"
    assert await tab.run("document.documentElement.scrollWidth") <= 400, await tab.run(too_wide)


def test_a_server_that_is_not_the_one_of_the_page_is_not_believed(tmp_path: Path) -> None:
    """When the command has ended, another user may open its port."""

    async def run() -> None:
        addresses: list[str] = []

        async def show(page: Page) -> None:
            page.proof = "of another"  # the HTML has the first one
            page.publish(PICTURE)
            async with opened(tmp_path / "profile") as tab:
                await tab.open(addresses[0])
                state = "document.getElementById('state')?.textContent"
                await tab.until(state, lambda text: "another program answers" in (text or ""))
                assert await tab.run("document.body.classList.contains('stale')")
                assert await tab.run("document.querySelectorAll('.box').length") == 0

        await serve(Page(), 0, addresses.append, show)

    asyncio.run(run())


def test_a_recording_is_played_and_can_be_moved(tmp_path: Path) -> None:
    second = later(PICTURE, 60, nodes={**PICTURE.nodes, NEW: node()})
    late = node(fate="retires", next="retires in", clock_at=second.at + 10)
    third = later(second, 60, nodes={NEW: late}, pods={})
    changes = [difference(PICTURE, second), difference(second, third)]
    recording = b"\n".join(map(msgspec.json.encode, (First(1, PICTURE), *changes)))

    async def use(_: Page, tab: Tab) -> None:
        nodes = "document.querySelectorAll('.box').length"
        await tab.run(
            "document.getElementById('speed').value = '60'; document.getElementById('play').click()"
        )
        await tab.until(f"{nodes} === 1")
        await tab.until("document.getElementById('play').textContent === 'Play'")
        assert "retires in 0:00" in await tab.run(box(NEW, ".innerText"))
        slider = "document.getElementById('moment')"
        assert await tab.run(f"{slider}.value") == str(int(third.at))
        for at, expected in ((second.at, 3), (PICTURE.at + 1, 2)):
            await tab.run(f"{slider}.value = {at}; {slider}.dispatchEvent(new Event('input'))")
            assert await tab.run(nodes) == expected
        assert "Recording, at" in await tab.run("document.getElementById('state').textContent")

    shown(tmp_path, use, None, recording)
