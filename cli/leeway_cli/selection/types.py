"""`leeway types`: lists matching instance types with labels, allocatable and prices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli.manifests.files import FilesOption, read_pools, with_overlays
from leeway_cli.output import picked, print_json, write_stderr, write_stdout
from leeway_cli.selection.sources import (
    RegionOption,
    ReservedForOption,
    SandboxOption,
    find_catalog,
    with_reservations,
)
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.costs import SpotPool
    from leeway.selection.offers.catalog import Catalog, InstanceType, Offering, TypeTable
    from leeway.selection.pods import NodePool
    from leeway.selection.requirements import Requirements


class TypesFormat(StrEnum):
    """The output formats of instance types."""

    TABLE = "table"
    JSON = "json"
    WIDE = "wide"


@dataclass(frozen=True, slots=True)
class Match:
    """A matching type with its matching offerings, the cheapest first. `free` are the nodes that
    capacity reservations have room for, by zone."""

    kind: "InstanceType"
    offerings: "tuple[Offering, ...]"
    free: Mapping[str, int] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[float, str]:
        """The sort key: the cheapest first, types without a price last."""
        prices = [o.price for o in self.offerings if o.price is not None]
        return (min(prices, default=float("inf")), self.kind.name)


def types(
    files: FilesOption = None,
    cluster: ReservedForOption = "",
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: Annotated[
        TypesFormat, typer.Option("--output", "-o", help="Set the format of the result on stdout.")
    ] = TypesFormat.TABLE,
) -> None:
    """List the instance types that the pools of manifests may launch.

    Without a manifest, lists every type of the region, as a node of AL2023 with a root volume of
    20 Gi. If several pools may launch a type, the pool with the largest weight defines its values.
    """
    manifests = read_pools(files)[0] if files else None
    catalog = find_catalog(region, stack, sandbox=sandbox)
    if manifests is None:
        matches = _all_types(catalog)
    else:
        applied = with_overlays(manifests, catalog)
        pools = with_reservations(applied, cluster, region, sandbox=sandbox)
        matches = _of_pools(catalog, pools)
    matches.sort(key=lambda match: match.rank)
    if output is TypesFormat.JSON:
        print_json({"types": [_as_data(one) for one in matches]}, rows="types")
    elif output is TypesFormat.WIDE:
        _print_table(matches, {} if sandbox else _counted(cluster, stack))
    else:
        _print_table(matches)


def _counted(cluster: str, stack: str) -> "Mapping[str, SpotPool]":
    """Read what Leeway counted of the Spot instances of a cluster; nothing without its name."""
    from leeway_cli.cost import counted_spot

    return counted_spot(stack, cluster, datetime.now(UTC)) if cluster else {}


def _all_types(catalog: "Catalog") -> list[Match]:
    from leeway.selection.offers.allocatable import NodeClass

    table = catalog.for_node_class(NodeClass())
    return [Match(kind, _cheapest_first(kind.offerings)) for kind in table.types()]


def _of_pools(catalog: "Catalog", pools: "Iterable[NodePool]") -> list[Match]:
    found: dict[str, Match] = {}
    for pool in pools:
        table = catalog.for_node_class(pool.node_class, reservations=pool.reservations)
        matching = table.matching(pool.requirements)
        for warning in _warnings(table, pool, matching):
            write_stderr(f"warning: {pool.name}: {warning}")
        for kind in table.types(matching):
            offerings = _cheapest_first(_offered(kind, pool.requirements))
            free = _free(pool, kind.name, offerings)
            found.setdefault(kind.name, Match(kind, offerings, free))
    return list(found.values())


def _free(pool: "NodePool", kind: str, offerings: "Iterable[Offering]") -> Mapping[str, int]:
    """The nodes that the reservations of a pool have room for, by zone."""
    offered = {one.reservation.id for one in offerings if one.reservation is not None}
    free: Counter[str] = Counter()
    for one in pool.reservations:
        free[one.zone] += one.free if one.id in offered and one.instance_type == kind else 0
    return +free


def _warnings(table: "TypeTable", pool: "NodePool", matching: int) -> Iterator[str]:
    from leeway.selection.offers.catalog import mismatch, unmatched

    if not matching:
        yield mismatch(table, pool.requirements)
        return
    for requirement in pool.requirements.values():
        if missed := unmatched(table, requirement):
            yield f"{requirement}: {missed}"


def _offered(kind: "InstanceType", requirements: "Requirements") -> "Iterator[Offering]":
    from leeway.selection.labels import CAPACITY_TYPE, ZONE

    zone, capacity_type = requirements.of_key(ZONE), requirements.of_key(CAPACITY_TYPE)
    for offering in kind.offerings:
        if zone.has(offering.zone) and capacity_type.has(offering.capacity_type):
            yield offering


def _cheapest_first(offerings: "Iterable[Offering]") -> "tuple[Offering, ...]":
    return tuple(
        sorted(
            offerings,
            key=lambda o: (o.price is None, o.price or 0.0, o.capacity_type, o.zone),
        )
    )


def _as_data(match: Match) -> dict[str, Any]:
    offered = ("zone", "capacity_type", "price", "available")
    return {
        "name": match.kind.name,
        "labels": dict(sorted(match.kind.labels.items())),
        "capacity": match.kind.capacity.printed(),
        "allocatable": match.kind.allocatable.printed(),
        "offerings": [
            picked(one, *offered) | ({"reservation": one.reservation.id} if one.reservation else {})
            for one in match.offerings
        ],
    }


_COLUMNS = ("TYPE", "ARCH", "CPU", "MEMORY", "PODS", "DEVICES", "ON DEMAND", "SPOT", "ZONES")
_WIDE_COLUMNS = (
    "STORAGE",
    "NETWORK",
    "NVME",
    "CPU BY",
    "HYPERVISOR",
    "CHEAPEST SPOT IN",
    "RESERVED",
    "INTERRUPTED IN 30 DAYS",
)


def _print_table(matches: Sequence[Match], spot: "Mapping[str, SpotPool] | None" = None) -> None:
    """Print the types; with wide columns if `spot` is given, what was counted by type and zone."""
    from leeway_cli.manifests.changes import aligned

    titles = [*_COLUMNS, *(_WIDE_COLUMNS if spot is not None else ())]
    rows = [[*_row(one), *(_wide_row(one, spot) if spot is not None else ())] for one in matches]
    write_stdout(aligned([titles, *rows]).removesuffix("\n"))


def _row(match: Match) -> tuple[str, ...]:
    from leeway.selection.labels import ARCH, ON_DEMAND, SPOT
    from leeway.selection.offers.machines import INTERFACES

    allocatable = match.kind.allocatable.printed()
    devices = [
        f"{n} {name}" for name, n in allocatable.items() if "/" in name and name not in INTERFACES
    ]
    return (
        match.kind.name,
        match.kind.labels.get(ARCH, ""),
        allocatable.get("cpu", "0"),
        allocatable.get("memory", "0"),
        allocatable.get("pods", "0"),
        ", ".join(devices) or "-",
        _price(match, ON_DEMAND),
        _price(match, SPOT),
        str(len({offering.zone for offering in match.offerings})),
    )


def _wide_row(match: Match, counted: "Mapping[str, SpotPool]") -> tuple[str, ...]:
    from leeway.selection.labels import INSTANCE, SPOT

    labels = match.kind.labels
    spot = [o.zone for o in match.offerings if o.capacity_type == SPOT and o.price is not None]
    return (
        match.kind.allocatable.printed().get("ephemeral-storage", "0"),
        _with_unit(labels.get(f"{INSTANCE}network-bandwidth"), "Mbps"),
        _with_unit(labels.get(f"{INSTANCE}local-nvme"), "GB"),
        labels.get(f"{INSTANCE}cpu-manufacturer", "-"),
        labels.get(f"{INSTANCE}hypervisor", "-"),
        spot[0] if spot else "-",
        ", ".join(f"{free} in {zone}" for zone, free in sorted(match.free.items())) or "-",
        _interrupted(match, counted),
    )


def _interrupted(match: Match, counted: "Mapping[str, SpotPool]") -> str:
    """Return how often EC2 interrupted the type in the zones that match, and in how many hours."""
    zones = {one.zone for one in match.offerings}
    found = [counted[key] for zone in zones if (key := f"{match.kind.name} {zone}") in counted]
    times, hours = sum(one.interruptions for one in found), sum(one.hours for one in found)
    return f"{times} in {hours:,.0f} h" if found else "-"


def _with_unit(value: str | None, unit: str) -> str:
    return f"{value} {unit}" if value else "-"


def _price(match: Match, capacity_type: str) -> str:
    offered = [o for o in match.offerings if o.capacity_type == capacity_type]
    if not offered:
        return "-"
    return "unknown" if offered[0].price is None else f"{offered[0].price:.4f}"
