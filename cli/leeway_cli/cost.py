"""`leeway cost`: what the nodes of a cluster cost, by owner, namespace and label of pods, from what
`reconcile` has recorded in the table; and what Leeway's decisions saved."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.printable import printable

from leeway_cli.errors import BadInputError, CannotBeDoneError, NotDeployedError, aws_errors
from leeway_cli.output import Format, FormatOption, write_stderr
from leeway_cli.places import (
    AllOption,
    Place,
    ProfilesOption,
    RegionsOption,
    chosen_clusters,
    show,
)
from leeway_cli.stack import DEFAULT_STACK, Stack, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.costs import CostHour, OwnerCost, Returned, SpotPool

KEPT_DAYS = 35

SAVES_FOR = timedelta(hours=24)
"""How long a node that was given back counts as saved: nobody knows how long it would have run."""


def cost(
    cluster: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="LEEWAY_CLUSTER", help="Set the cluster."),
    ] = "",
    days: Annotated[
        int, typer.Option(min=1, max=KEPT_DAYS, help="Set how many days are summed up.")
    ] = 7,
    top: Annotated[
        int, typer.Option(min=0, help="Show at most this many rows of each table; 0: all.")
    ] = 10,
    profile: ProfilesOption = None,
    region: RegionsOption = None,
    every: AllOption = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what the nodes of a cluster cost, by pool, group, namespace and label of pods.

    Prices are those of AWS for Linux, without discounts and licences. A pod has the largest of its
    shares of a node's CPU, memory and GPUs, by its requests; what no pod requests is idle. Times
    are in UTC.
    """
    from rich.text import Text

    clusters = chosen_clusters(profile, region, cluster, stack, every=every)
    if not every:
        if not cluster:
            raise BadInputError("--cluster: expected the name of a cluster, or --all.")
        cluster_name(cluster)
    now = datetime.now(UTC)
    begin = now.replace(minute=0, second=0, microsecond=0) - timedelta(days=days)

    def read(place: Place) -> "tuple[str, CostReport]":
        found, name = find_stack(stack), place.cluster
        found.warn_if_unmanaged(name)
        return name, sum_up(list(read_hours(found, name, begin, now)), begin, now)

    show(
        clusters.read(read),
        output,
        lambda one: {"cluster": one[0], **as_data(one[1])},
        lambda one: Text(as_text(one[1], one[0], top)),
        totals=lambda read: _sums([report for _, report in read]),
    )


def _sums(reports: "Sequence[CostReport]") -> tuple[dict[str, Any], str]:
    """Return the totals of several clusters, as JSON and in words."""
    usd, hours = sum(one.usd for one in reports), sum(one.hours for one in reports)
    unpriced = sum(one.unpriced_hours for one in reports)
    data = {
        "usd": _round(usd),
        "instanceHours": _round(hours),
        "instanceHoursWithoutPrice": _round(unpriced),
        "idleUsd": _round(sum(one.idle for one in reports)),
        "spotSavedUsd": _round(sum(one.spot_saved for one in reports)),
    }
    return data, f"{usd:,.2f} USD for {hours:,.1f} instance-h"


def read_hours(stack: Stack, cluster: str, begin: datetime, end: datetime) -> Iterator["CostHour"]:
    """Read the hours from `begin` on, a day with each call; an unreadable one is a gap.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    from leeway.costs import COST
    from leeway.table import UnreadableRecord
    from leeway.wiring.clients import table

    def warn(problem: UnreadableRecord) -> None:
        write_stderr(f"warning: an hour is not readable: {problem}")

    stored = table(name=stack.table)
    first = (f"{begin:%Y-%m-%d}", f"{begin:%H}")
    for number in range((end.date() - begin.date()).days + 1):
        day = f"{begin + timedelta(days=number):%Y-%m-%d}"
        with aws_errors(stack.where):
            found = stored.list(COST, consistent=False, cluster=cluster, day=day, unreadable=warn)
        yield from (one for one in found if (one.day, one.hour) >= first)


COUNTED_FOR = timedelta(days=30)
"""The time whose interruptions are counted: the records of costs are kept for some days longer."""


def counted_spot(stack: str, cluster: str, now: datetime) -> "Mapping[str, SpotPool]":
    """Read what was counted of the Spot instances of a cluster, by type and zone, as `m5.large
    us-east-1a`; nothing without a deployment, and with a warning if they cannot be read."""
    begin = now - COUNTED_FOR
    try:
        hours = list(read_hours(find_stack(stack), cluster, begin, now))
    except NotDeployedError:
        return {}
    except CannotBeDoneError as error:
        write_stderr(f"warning: the Spot interruptions that Leeway counted are not read: {error}")
        return {}
    return sum_up(hours, begin, now).spot


@dataclass(frozen=True, slots=True)
class Saved:
    """Nodes that Leeway gave back for one cause, what they cost per hour, and together in the time
    since: 24 hours for each at most, and for a pool that hibernates the time until it is awake."""

    cause: str
    nodes: int
    usd_per_hour: float
    usd: float


@dataclass(frozen=True, slots=True)
class CostReport:
    """Sums over a time. `since` is when the records begin, None without any. `gaps` are the times
    of which nothing is counted. All amounts are in USD."""

    begin: datetime
    end: datetime
    since: datetime | None
    gaps: tuple[tuple[datetime, datetime], ...]
    owners: Mapping[str, "OwnerCost"]
    namespaces: Mapping[str, float]
    labels: Mapping[str, Mapping[str, float]]
    idle: float
    unsplit: float
    saved: tuple[Saved, ...]
    spot: Mapping[str, "SpotPool"]

    @property
    def usd(self) -> float:
        """What all nodes cost."""
        return sum(one.usd for one in self.owners.values())

    @property
    def hours(self) -> float:
        """The instance hours."""
        return sum(one.hours for one in self.owners.values())

    @property
    def unpriced_hours(self) -> float:
        """The instance hours of which no price is known."""
        return sum(one.unpriced_hours for one in self.owners.values())

    @property
    def spot_saved(self) -> float:
        """What Leeway's pools cost less than the same nodes on demand."""
        own = [one for key, one in self.owners.items() if key.startswith("leeway/")]
        return sum(one.on_demand_usd - one.usd for one in own)


def sum_up(hours: Sequence["CostHour"], begin: datetime, end: datetime) -> CostReport:
    """Sum up recorded hours, in the order of their times."""
    from leeway.costs import OwnerCost, SpotPool

    owners: dict[str, OwnerCost] = {}
    spot: dict[str, SpotPool] = {}
    namespaces: dict[str, float] = {}
    labels: dict[str, dict[str, float]] = {}
    for one in hours:
        for key, each in one.owners.items():
            owners[key] = owners.get(key, OwnerCost()) + each
        for key, pool in one.spot.items():
            spot[key] = spot.get(key, SpotPool()) + pool
        _add(namespaces, one.namespaces)
        for key, split in one.labels.items():
            _add(labels.setdefault(key, {}), split)
    covered = [interval for one in hours for interval in one.covered]
    return CostReport(
        begin=begin,
        end=end,
        since=min((first for first, _ in covered), default=None),
        gaps=tuple(_gaps(covered, end)),
        owners=owners,
        namespaces=namespaces,
        labels=labels,
        idle=sum(one.idle for one in hours),
        unsplit=sum(one.unsplit for one in hours),
        saved=tuple(_saved(hours, end)),
        spot=spot,
    )


def _add(total: dict[str, float], split: Mapping[str, float]) -> None:
    for key, usd in split.items():
        total[key] = total.get(key, 0.0) + usd


def _gaps(
    covered: Iterable[tuple[datetime, datetime]], end: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the times between intervals, and the time since the last one if it is overdue."""
    from leeway.costs import LONGEST_LOOK

    until: datetime | None = None
    for first, last in sorted(covered):
        if until is not None and first > until:
            yield until, first
        until = last if until is None else max(until, last)
    if until is not None and end - until > LONGEST_LOOK:
        yield until, end


def _saved(hours: Iterable["CostHour"], end: datetime) -> Iterator[Saved]:
    from leeway.hibernation import HIBERNATION

    by_cause: dict[str, list[tuple[Returned, timedelta]]] = {}
    hibernated = 0.0
    for one in hours:
        if one.hibernated:
            hibernated += one.hibernated
            by_cause.setdefault(HIBERNATION, [])
        for cause, returned in one.returned.items():
            since = min(max(timedelta(0), end - one.through), SAVES_FOR)
            by_cause.setdefault(cause, []).append((returned, since))
    for cause, found in sorted(by_cause.items()):
        yield Saved(
            cause,
            sum(each.nodes for each, _ in found),
            sum(each.usd_per_hour for each, _ in found),
            hibernated
            if cause == HIBERNATION
            else sum(each.usd_per_hour * since.total_seconds() / 3600 for each, since in found),
        )


def as_data(report: CostReport) -> dict[str, Any]:
    """Render as JSON: USD, and instance hours."""
    return {
        "from": report.begin.isoformat(),
        "to": report.end.isoformat(),
        "recordedSince": None if report.since is None else report.since.isoformat(),
        "gaps": [
            {"from": first.isoformat(), "to": last.isoformat()} for first, last in report.gaps
        ],
        "usd": _round(report.usd),
        "instanceHours": _round(report.hours),
        "instanceHoursWithoutPrice": _round(report.unpriced_hours),
        "owners": [
            {
                **_owner(key),
                "usd": _round(one.usd),
                "onDemandUsd": _round(one.on_demand_usd),
                "instanceHours": _round(one.hours),
            }
            for key, one in _by_usd(report.owners)
        ],
        "namespaces": _rows(report.namespaces, "namespace"),
        "labels": [
            {"key": key, "values": _rows(split, "value")}
            for key, split in sorted(report.labels.items())
        ],
        "idleUsd": _round(report.idle),
        "notSplitUsd": _round(report.unsplit),
        "saved": {
            "spotUsd": _round(report.spot_saved),
            "returned": [
                {
                    "cause": one.cause,
                    "nodes": one.nodes,
                    "usdPerHour": _round(one.usd_per_hour),
                    "usd": _round(one.usd),
                }
                for one in report.saved
            ],
        },
        "spot": [
            {
                **_pool(key),
                "instanceHours": _round(one.hours),
                "interruptions": one.interruptions,
            }
            for key, one in _by_interruptions(report.spot)
        ],
    }


def _owner(key: str) -> dict[str, Any]:
    from leeway.costs import OTHER

    kind, _, name = key.partition("/")
    return {"kind": "other" if key == OTHER else kind, "name": name or None}


def _pool(key: str) -> dict[str, Any]:
    """Render a type and zone; the rest that is not kept apart has none."""
    kind, _, zone = key.partition(" ")
    return {"instanceType": kind if zone else None, "zone": zone or None}


def _by_interruptions(spot: Mapping[str, "SpotPool"]) -> list[tuple[str, "SpotPool"]]:
    return sorted(spot.items(), key=lambda one: (-one[1].interruptions, -one[1].hours, one[0]))


def _rows(split: Mapping[str, float], name: str) -> list[dict[str, Any]]:
    """Render a split; the rest that is not kept apart, and pods without the label, have no name."""
    from leeway.costs import OTHER

    return [
        {name: None if key in {OTHER, ""} else key, "other": key == OTHER, "usd": _round(usd)}
        for key, usd in sorted(split.items(), key=lambda one: (-one[1], one[0]))
    ]


def _by_usd(owners: Mapping[str, "OwnerCost"]) -> list[tuple[str, "OwnerCost"]]:
    return sorted(owners.items(), key=lambda one: (-one[1].usd, one[0]))


def _round(amount: float) -> float:
    return round(amount, 6)


def as_text(report: CostReport, cluster: str, top: int) -> str:
    """Render as tables."""
    from leeway.reasons import counted

    period = f"{report.begin:%Y-%m-%d %H:%M} to {report.end:%Y-%m-%d %H:%M}"
    if report.since is None:
        return (
            f"Nothing is recorded of cluster {cluster} from {period}. reconcile records costs every"
            " five minutes: see `leeway logs reconcile`."
        )
    spent = f"{report.usd:,.2f} USD for {report.hours:,.1f} instance-h"
    lines = [f"The nodes of cluster {cluster} cost {spent}, from {period}."]
    if report.since - report.begin > timedelta(hours=1):
        lines.append(f"Costs are recorded since {report.since:%Y-%m-%d %H:%M}.")
    if report.gaps:
        missing = sum((last - first for first, last in report.gaps), timedelta())
        named = ", ".join(
            f"{first:%m-%d %H:%M} to {last:%m-%d %H:%M}" for first, last in _top(report.gaps, 5)
        )
        more = len(report.gaps) - 5
        lines.append(
            f"Not counted: {missing.total_seconds() / 3600:.1f} h in "
            f"{counted(len(report.gaps), 'gap')}, in which reconcile recorded nothing: {named}"
            f"{f' and {more} more' if more > 0 else ''}."
        )
    if report.unpriced_hours:
        lines.append(
            f"Not counted: {report.unpriced_hours:,.1f} h without a known price of the type."
        )
    owners = [
        [printable(_title(key)), f"{one.hours:,.1f}", *_money(one.usd, report.usd)]
        for key, one in _top(_by_usd(report.owners), top)
    ]
    lines += _table(["OWNER", "HOURS", "USD", "SHARE"], owners, len(report.owners))
    rest = [("(idle)", report.idle), ("(not known)", report.unsplit)]
    labels = ((f"LABEL {key}", split) for key, split in sorted(report.labels.items()))
    for title, split in (("NAMESPACE", report.namespaces), *labels):
        ordered = sorted(split.items(), key=lambda one: (-one[1], one[0]))
        rows = [
            [printable(name), *_money(usd, report.usd)]
            for name, usd in (
                *((_named(key), usd) for key, usd in _top(ordered, top)),
                *((name, usd) for name, usd in rest if usd),
            )
        ]
        lines += _table(
            [title, "USD", "SHARE"], rows, len(split) + len(rows) - len(_top(ordered, top))
        )
    if report.spot:
        pools = [
            [_named(key), f"{one.hours:,.1f}", f"{one.interruptions:,}"]
            for key, one in _top(_by_interruptions(report.spot), top)
        ]
        lines += _table(["SPOT", "HOURS", "INTERRUPTIONS"], pools, len(report.spot))
    lines += ["", *_savings(report)]
    return "\n".join(lines)


def _savings(report: CostReport) -> Iterator[str]:
    from leeway.disruption.explain import MONTH_HOURS
    from leeway.hibernation import HIBERNATION
    from leeway.reasons import counted

    if hours := sum(one.hours for one in report.spot.values()):
        times = sum(one.interruptions for one in report.spot.values())
        yield (
            f"EC2 interrupted {counted(times, 'Spot instance')} in {hours:,.1f} instance-h, "
            f"{times / hours * MONTH_HOURS:.2f} a month for each instance."
        )
    if report.spot_saved > 0:
        saved = f"{report.spot_saved:,.2f} USD against on-demand"
        yield f"Spot instances of Leeway's pools saved {saved}."
    for one in report.saved:
        if one.cause == HIBERNATION:
            yield (
                f"{one.cause}: Leeway gave back {counted(one.nodes, 'node')}, and their pools "
                f"saved {one.usd:,.2f} USD while they hibernated."
            )
            continue
        yield (
            f"{one.cause}: Leeway gave back {counted(one.nodes, 'node')}, which saved "
            f"{one.usd_per_hour:,.4f} USD per hour, {one.usd:,.2f} USD in the 24 hours after each."
        )


def _title(key: str) -> str:
    from leeway.costs import OTHER
    from leeway.disruption.explain import title_of
    from leeway.instances.facts import Owner, OwnerKind

    kind, _, name = key.partition("/")
    return "(others)" if key == OTHER else title_of(Owner(OwnerKind(kind), name))


def _named(key: str) -> str:
    from leeway.costs import OTHER

    return {OTHER: "(others)", "": "(without)"}.get(key, key)


def _money(usd: float, total: float) -> list[str]:
    return [f"{usd:,.2f}", f"{usd / total:.0%}" if total else "-"]


def _top[T](rows: Sequence[T], top: int) -> Sequence[T]:
    return rows[:top] if top else rows


def _table(titles: list[str], rows: list[list[str]], number: int) -> list[str]:
    from leeway_cli.manifests.changes import aligned

    more = number - len(rows)
    shown = ["", aligned([titles, *rows]).rstrip("\n")]
    return [*shown, f"and {more} more: --top 0 shows all"] if more > 0 else shown
