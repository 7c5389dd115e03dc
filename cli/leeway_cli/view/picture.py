"""What the page shows, and what changed in it. Pure.

A `Picture` is the whole page. A `Change` has only what differs from the picture before, so that an
update of a large cluster is small. The page, the record and its replay all use these two.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import dropwhile

import msgspec
from leeway.costs import CostHour
from leeway.disruption.snapshot import OwnNode
from leeway.printable import printable
from msgspec import UNSET, Struct, UnsetType

from leeway_cli.errors import one_line
from leeway_cli.logs import Line
from leeway_cli.nodes.reading import Seen
from leeway_cli.nodes.rows import NodeRow, totals_of

MOST_LINES = 300
"""How many lines of the log the page has."""

MOST_REASONS = 10
"""How many reasons why pods get no node the page has."""

MOST_STEPS = 30
"""How many steps of the plan the page has."""

KEPT = timedelta(hours=1)
"""For how long prices, lines of the log, and the changes of a record, are kept."""


class Pod(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A pod: its node, empty while it waits, and what it requests in millicores and bytes."""

    node: str
    cpu: int
    memory: int


NO_GPUS = (0, 0)
"""A default is left out only if a field has this very object."""


class Node(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A node. Shares are what is requested, and what the node has: CPU in millicores, memory in
    bytes. `others` are pods without an entry of their own: those of DaemonSets and static ones.
    `leaving` are pods that terminate. Times are in epoch seconds. If `clock_at` is set, the page
    adds to `next` a clock that counts to it or from it."""

    owner: str
    created_at: float
    cpu: tuple[int, int]
    memory: tuple[int, int]
    pods: tuple[int, int]
    instance: str = ""
    instance_type: str = ""
    capacity_type: str = ""
    zone: str = ""
    ready: bool = False
    gpus: tuple[int, int] = NO_GPUS
    others: int = 0
    leaving: int = 0
    price: float | None = None
    fate: str = ""
    next: str = ""
    clock_at: float | None = None


class Step(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A step of the plan. `at` is in epoch seconds, None for now. `saving` is in USD per hour."""

    at: float | None
    nodes: tuple[str, ...]
    cause: str
    code: str
    reason: str
    pods: int
    saving: float
    launches: tuple[str, ...]


class Without(Struct, frozen=True, forbid_unknown_fields=True):
    """Pods that got no node for the same reason: how many, and the names of some."""

    count: int
    some: tuple[str, ...]
    code: str
    reason: str


class LogLine(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision of a function. `at` is in epoch seconds."""

    at: float
    function: str
    level: str
    code: str
    about: str
    message: str


class Totals(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The sums. `price` and `saving` are in USD per hour; `saving` is None without a plan, and more
    may be saved if it is not `complete`."""

    nodes: int
    pods: int
    waiting: int
    cpu: float
    memory: float
    price: float
    without_price: int
    saving: float | None
    complete: bool = True


type Price = tuple[float, float | None]
"""A time in epoch seconds, and USD per hour from then on; None if it is not known."""


class Picture(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole page, as of `at` in epoch seconds. `plan` is None if there is no pool to plan for.
    `prices` are pairs of a time and USD per hour, of the last hour; `recorded` are those before,
    from the table: None begins a gap. `problem` says why the last read failed, which begins one."""

    at: float
    cluster: str
    totals: Totals
    nodes: dict[str, Node] = {}
    pods: dict[str, Pod] = {}
    plan: tuple[Step, ...] | None = None
    without: tuple[Without, ...] = ()
    log: tuple[LogLine, ...] = ()
    prices: tuple[Price, ...] = ()
    recorded: tuple[Price, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str = ""


class Change(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What differs from the picture before. A node or a pod that is None has gone. `log` and
    `prices` are added to those before."""

    at: float
    nodes: dict[str, Node | None] = {}
    pods: dict[str, Pod | None] = {}
    totals: Totals | UnsetType = UNSET
    plan: tuple[Step, ...] | UnsetType | None = UNSET
    without: tuple[Without, ...] | UnsetType = UNSET
    log: tuple[LogLine, ...] = ()
    prices: tuple[Price, ...] = ()
    recorded: tuple[Price, ...] | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET
    problem: str | UnsetType = UNSET


def picture_of(
    seen: Seen,
    before: Picture | None,
    log: Iterable[Line],
    warnings: Iterable[str],
    cluster: str,
    hours: Sequence[CostHour] = (),
) -> Picture:
    """Return the page for what a read has found. `log` are the lines since `before`, `hours` what
    the functions recorded of the last day. If the clock was set back, the time of the page waits.
    """
    capacity = seen.capacity
    at = max(capacity.snapshot.now.timestamp(), before.at if before else 0.0)
    totals = totals_of(seen.rows, seen.saving, complete=seen.complete)
    nodes = {one.name: one for one in (*capacity.snapshot.own, *(f.one for f in capacity.foreign))}
    pods = dict(_pods(nodes.values()))
    waiting = [one for one in capacity.snapshot.waiting if one.name not in pods]
    pods |= {one.name: _pod("", one.spec.requests) for one in waiting}
    steps = None if seen.course is None else seen.course.steps[:MOST_STEPS]
    price = round(totals.price, 6) if totals.price_known else None
    return Picture(
        at=at,
        cluster=cluster,
        nodes={row.name: _node(row, nodes.get(row.name)) for row in seen.rows},
        pods=pods,
        plan=None
        if steps is None
        else tuple(
            Step(
                at=None if one.allowed else one.at.timestamp(),
                nodes=one.returned.nodes,
                cause=one.returned.cause.value,
                code=one.returned.reason.code,
                reason=printable(one.returned.reason.message),
                pods=one.returned.moves,
                saving=round(one.saving, 6),
                launches=tuple(new.cheapest.type.name for new in one.launches),
            )
            for one in steps
        ),
        without=tuple(
            Without(
                count=one.count,
                some=one.some,
                code=one.reason.code,
                reason=printable(one.reason.message),
            )
            for one in seen.without_node[:MOST_REASONS]
        )
        if waiting
        else (),
        log=_latest([*(before.log if before else ()), *map(_line, log)], at),
        prices=_priced(before.prices if before else (), at, price),
        recorded=recorded_prices(hours),
        totals=Totals(
            nodes=totals.nodes,
            pods=totals.pods.requested,
            waiting=len(waiting),
            cpu=round(totals.cpu.share, 4),
            memory=round(totals.memory.share, 4),
            price=round(totals.price, 6),
            without_price=totals.without_price,
            saving=None if totals.saving is None else round(totals.saving, 6),
            complete=totals.complete,
        ),
        warnings=tuple(dict.fromkeys(printable(one.removeprefix("warning: ")) for one in warnings)),
    )


def _node(row: NodeRow, one: OwnNode | None) -> Node:
    return Node(
        owner=row.owner,
        created_at=_seconds(row.created_at),
        cpu=(row.cpu.requested, row.cpu.allocatable),
        memory=(row.memory.requested, row.memory.allocatable),
        pods=(row.pods.requested, row.pods.allocatable),
        instance=row.instance,
        instance_type=row.instance_type,
        capacity_type=row.capacity_type,
        zone=row.zone,
        ready=row.ready,
        gpus=(row.gpus.requested, row.gpus.allocatable) if row.gpus.allocatable else NO_GPUS,
        others=max(len(one.node.pods) - len(one.pods), 0) if one else 0,
        leaving=one.node.terminating.of("pods") if one else 0,
        price=None if row.price is None else round(row.price, 6),
        fate=row.fate.value,
        # The page counts by itself. A clock that were sent would change each node each second.
        next=row.next if row.clock_at is None else row.next.rpartition(" ")[0],
        clock_at=None if row.clock_at is None else _seconds(row.clock_at),
    )


def _seconds(moment: datetime) -> float:
    return round(moment.timestamp(), 3)


def _pods(nodes: Iterable[OwnNode]) -> Iterator[tuple[str, Pod]]:
    for node in nodes:
        for one in node.pods:
            yield one.pod.name, _pod(node.name, one.pod.spec.requests)


def _pod(node: str, requests: Mapping[str, int]) -> Pod:
    return Pod(node, requests.get("cpu", 0), requests.get("memory", 0))


def _line(line: Line) -> LogLine:
    return LogLine(
        at=_seconds(line.time),
        function=line.function,
        level=line.level,
        code=line.code,
        about=printable(line.subject),
        message=printable(one_line(line.message)),
    )


def _latest(lines: Sequence[LogLine], at: float) -> tuple[LogLine, ...]:
    """Return the lines of the last hour, and not too many. A late line stays as long as the one
    before it, so that a change has only what came."""
    since = at - KEPT.total_seconds()
    return tuple(dropwhile(lambda one: one.at < since, lines[-MOST_LINES:]))


def _priced(before: Sequence[Price], at: float, price: float | None) -> tuple[Price, ...]:
    """Return the prices of the last hour with one more. Of a gap only its begin is kept."""
    if price is None and (not before or before[-1][1] is None):
        return _recent(before, at)
    return _recent([*before, (at, price)], at)


def _recent(prices: Sequence[Price], at: float) -> tuple[Price, ...]:
    """Return the prices of the last hour."""
    since = at - KEPT.total_seconds()
    return tuple(one for one in prices if one[0] >= since)


def recorded_prices(hours: Iterable[CostHour]) -> tuple[Price, ...]:
    """Return the average price of each recorded hour, from the begin of what is counted. A time of
    which nothing is counted, or no price is known, has None: also that after the last hour."""
    found: list[Price] = []
    until: datetime | None = None
    for hour in hours:
        counted = sum((last - first for first, last in hour.covered), timedelta())
        if not counted:
            continue
        usd = sum(one.usd for one in hour.owners.values())
        hours_of = sum(one.hours for one in hour.owners.values())
        unpriced = sum(one.unpriced_hours for one in hour.owners.values())
        known = unpriced < hours_of or not hours_of
        price = round(usd / (counted / timedelta(hours=1)), 6) if known else None
        for first, last in hour.covered:
            if until is not None and first > until:
                found.append((_seconds(until), None))
            found.append((_seconds(first), price))
            until = last
    if until is not None:
        found.append((_seconds(until), None))
    return tuple(found)


def difference(before: Picture, after: Picture) -> Change:
    """Return what has changed between two pictures of a cluster."""
    return Change(
        at=after.at,
        nodes=_changed(before.nodes, after.nodes),
        pods=_changed(before.pods, after.pods),
        totals=UNSET if before.totals == after.totals else after.totals,
        plan=UNSET if before.plan == after.plan else after.plan,
        without=UNSET if before.without == after.without else after.without,
        log=_added(before.log, after.log),
        prices=_added(before.prices, after.prices),
        recorded=UNSET if before.recorded == after.recorded else after.recorded,
        warnings=UNSET if before.warnings == after.warnings else after.warnings,
        problem=UNSET if before.problem == after.problem else after.problem,
    )


def _changed[T](before: Mapping[str, T], after: Mapping[str, T]) -> dict[str, T | None]:
    found: dict[str, T | None] = {
        name: one for name, one in after.items() if before.get(name) != one
    }
    return found | dict.fromkeys(before.keys() - after.keys())


def _added[T](before: Sequence[T], after: Sequence[T]) -> tuple[T, ...]:
    """Return the elements at the end of a list that were not in it before. It may have lost some
    at its beginning."""
    if not before or not after:
        return tuple(after)
    for kept in range(min(len(before), len(after)), 0, -1):
        if before[-1] == after[kept - 1] and tuple(before[-kept:]) == tuple(after[:kept]):
            return tuple(after[kept:])
    return tuple(after)


def applied(before: Picture, change: Change) -> Picture:
    """Return the picture after a change."""
    return Picture(
        at=change.at,
        cluster=before.cluster,
        nodes=_merged(before.nodes, change.nodes),
        pods=_merged(before.pods, change.pods),
        totals=before.totals if change.totals is UNSET else change.totals,
        plan=before.plan if change.plan is UNSET else change.plan,
        without=before.without if change.without is UNSET else change.without,
        log=_latest([*before.log, *change.log], change.at),
        prices=_recent([*before.prices, *change.prices], change.at),
        recorded=before.recorded if change.recorded is UNSET else change.recorded,
        warnings=before.warnings if change.warnings is UNSET else change.warnings,
        problem=before.problem if change.problem is UNSET else change.problem,
    )


def _merged[T](before: Mapping[str, T], change: Mapping[str, T | None]) -> dict[str, T]:
    return {name: one for name, one in {**before, **change}.items() if one is not None}


def failed(before: Picture, problem: str, at: float) -> Picture:
    """Return the picture after a read that failed: what was seen last, and the problem."""
    at = max(at, before.at)
    prices = _priced(before.prices, at, None)
    return msgspec.structs.replace(before, at=at, prices=prices, problem=printable(problem))
