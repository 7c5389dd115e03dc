"""Measures the page with 500 nodes and 10,000 pods, and takes screenshots of it.

`python -m tests.view.measure FOLDER` writes the screenshots there.
"""

import asyncio
import random
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from leeway_cli.view.picture import Node, Picture, Pod, difference
from leeway_cli.view.server import Page, serve

from tests.view.chromium import Tab, opened
from tests.view.pictures import GIB, PICTURE, later, node, totals

NODES, PODS = 500, 10_000
CHANGED, MOVED = 20, 100
"""How many nodes change, and how many pods move, at each update."""

UPDATES = 20
OWNERS = ("Auto Scaling group spot", "managed node group system", "pool batch", "pool web")


def large(nodes: int = NODES, pods: int = PODS) -> Picture:
    """Return a picture of a large cluster, some nodes of which retire, start and are given back."""
    now = time.time()
    names = [f"ip-10-0-{one // 250}-{one % 250}.ec2.internal" for one in range(nodes)]
    return Picture(
        at=now,
        cluster="prod",
        totals=totals(nodes=nodes, pods=pods, price=nodes * 0.1535),
        nodes={name: _node(number, now) for number, name in enumerate(names)},
        pods={
            f"shop/web-7f6c{one:05}-abcde": Pod(names[one % nodes], 100 + one % 7 * 40, GIB // 4)
            for one in range(pods)
        },
        plan=PICTURE.plan,
        log=PICTURE.log * 40,
        prices=tuple((now - 3600 + minute * 60, nodes * 0.15 + minute % 7) for minute in range(60)),
    )


def _node(number: int, now: float) -> Node:
    owner, pods = OWNERS[number % len(OWNERS)], (PODS // NODES + 3, 58)
    match number % 40:
        case 3:
            return node(
                owner, pods=pods, fate="retires", next="retires in", clock_at=now + 40 + number % 60
            )
        case 5:
            return node(
                owner, pods=pods, fate="starting", next="starting", clock_at=now - 9, ready=False
            )
        case 7 | 23:
            return node(owner, pods=pods, fate="goes", next="goes at 14:05: Underutilized")
        case rest if rest % 5 == 0:
            return node(owner, pods=pods, fate="kept", next="kept: PodIsBlocked")
        case _:
            return node(owner, pods=pods)


def updated(picture: Picture, rng: random.Random) -> Picture:
    """Return the picture five seconds later: some nodes have changed, some pods have moved."""
    names = [*picture.nodes]
    changed = {name: node(cpu=(rng.randrange(8000), 8000)) for name in rng.sample(names, CHANGED)}
    moved = {
        name: Pod(rng.choice(names), 250, GIB // 4) for name in rng.sample([*picture.pods], MOVED)
    }
    return later(
        picture,
        5,
        nodes={**picture.nodes, **changed},
        pods={**picture.pods, **moved},
        prices=(*picture.prices, (picture.at + 5, picture.totals.price)),
    )


async def _costs(tab: Tab) -> dict[str, float]:
    found = (await tab.call("Performance.getMetrics"))["metrics"]
    return {one["name"]: one["value"] for one in found}


async def _measure(page: Page, tab: Tab, picture: Picture) -> None:
    rng = random.Random(1)  # noqa: S311 - repeatable on purpose
    sizes, seconds = [], []
    before = await _costs(tab)
    for _ in range(UPDATES):
        after = updated(picture, rng)
        began = time.thread_time()
        sizes.append(len(msgspec.json.encode(difference(picture, after))))
        seconds.append(time.thread_time() - began)
        page.publish(after)
        picture = after
        await tab.until(f"performance.getEntriesByName('show').length > {len(sizes)}")
    now = await _costs(tab)
    print(f"the whole page: {len(msgspec.json.encode(picture)):,} bytes")
    print(f"an update: {round(statistics.mean(sizes)):,} bytes")
    print(f"the server: {statistics.median(seconds) * 1000:.1f} ms of CPU for an update")
    for name in ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration", "TaskDuration"):
        print(f"Chromium, {name}: {(now[name] - before[name]) / UPDATES * 1000:.1f} ms of CPU")


async def _screenshots(tab: Tab, folder: Path) -> None:
    for width in (1300, 400):
        for dark in (False, True):
            await tab.look(width, dark=dark, still=True)
            name = f"{width}-{'dark' if dark else 'light'}.png"
            await tab.screenshot(folder / name, whole=False)


async def main(folder: Path) -> None:
    """Measure, and write screenshots to a folder."""
    addresses: list[str] = []

    async def show(page: Page) -> None:
        picture = large()
        page.publish(picture)
        with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            async with opened(Path(profile)) as tab:
                await tab.look(1300)
                await tab.call("Performance.enable", timeDomain="threadTicks")
                await tab.open(addresses[0])
                await tab.until(f"document.querySelectorAll('.box').length === {NODES}")
                await _measure(page, tab, picture)
                await _screenshots(tab, folder)

    await serve(Page(), 0, addresses.append, show)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
