"""Why a pod fits onto no node that may be launched: for each pool, what came nearest."""

from collections.abc import Sequence

from leeway.selection.labels import CAPACITY_TYPE, CAPACITY_TYPES
from leeway.selection.offers.catalog import TypeTable, bits
from leeway.selection.offers.nearest import explain
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import clashing
from leeway.selection.pods import PodSpec
from leeway.selection.pools import NodePool
from leeway.selection.quantities import printed
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


def nearest_miss(spec: PodSpec, supply: Supply, zone: str | None = None) -> str:
    """Say why no offering of any pool is for this pod.

    `zone`: where its topology terms would have put it.
    """
    if not supply.pools:
        return "there is no node pool"
    said = [
        _of_pool(spec, pool, table, supply)
        for pool, table in zip(supply.pools, supply.tables, strict=True)
    ]
    where = f" (in {zone}, where its topology terms leave it a place)" if zone else ""
    if len(said) == 1:
        return said[0] + where
    return "; ".join(f"pool {p.name}: {s}" for p, s in zip(supply.pools, said, strict=True)) + where


def _of_pool(spec: PodSpec, pool: NodePool, table: TypeTable, supply: Supply) -> str:
    taint = spec.untolerated(pool.taints)
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"it does not tolerate the taint {taint.key}{value}:{taint.effect}"
    conflicts = [pool.requirements.conflict(term) for term in spec.terms or (Requirements(),)]
    if all(conflicts):
        return " or ".join(dict.fromkeys(c for c in conflicts if c))
    met = [
        pool.requirements.intersection(term)
        for term, conflict in zip(spec.terms or (Requirements(),), conflicts, strict=True)
        if conflict is None
    ]
    found, withheld = 0, 0
    for requirements in met:
        matching, unnamed = table.matching(requirements), table.withheld(requirements)
        found |= matching & ~unnamed
        withheld |= matching & unnamed
    if withheld and not found:
        names = ", ".join(table.catalog.names[index] for index in bits(withheld))
        return f"{names} has a part of a GPU, and is launched only for pods or pools that name it"
    if found and any(supply.daemons_in_the_way(spec)) and not _open_to(spec, pool, supply):
        return f"a daemon of its nodes has the host port {_ports(spec, supply)}"
    if not found:
        return "; or ".join(_nothing(table, requirements) for requirements in met)
    return _too_small(spec, table, found, supply)


def _open_to(spec: PodSpec, pool: NodePool, supply: Supply) -> bool:
    """Whether any node of a pool lets a pod in, whatever its size."""
    position = supply.pools.index(pool)
    return bool((supply.allowed(spec) & (supply.of_pool == position)).any())


def _ports(spec: PodSpec, supply: Supply) -> str:
    taken = [port for daemon in supply.daemons_in_the_way(spec) for port in daemon.ports]
    found = {one.port for one in spec.ports if any(clashing(one, other) for other in taken)}
    return ", ".join(map(str, sorted(found)))


def _nothing(table: TypeTable, requirements: Requirements) -> str:
    """Types there may be, but none is offered as is asked."""
    described = table.described(requirements)
    capacity_type = requirements.get(CAPACITY_TYPE)
    if described and capacity_type is not None:
        asked = ", ".join(c for c in CAPACITY_TYPES if capacity_type.has(c))
        names = [table.catalog.names[index] for index in bits(described)]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"none of {shown} is offered as {asked} in {table.catalog.region} at the moment"
    return explain(table, requirements)


def _too_small(spec: PodSpec, table: TypeTable, found: int, supply: Supply) -> str:
    """The resource that fewest types have enough of."""
    daemons = Resources()
    for daemon in supply.daemons:
        daemons = daemons + daemon.requests
    types = table.types(found)
    short = {
        name: [t.allocatable.of(name) for t in types if t.allocatable.of(name) < asked]
        for name, asked in (spec.requests + daemons).items()
    }
    name = max(short, key=lambda each: len(short[each]))
    most = max(t.allocatable.of(name) for t in types)
    asked = spec.requests.of(name)
    besides = " besides daemons" if supply.daemons else ""
    if len(short[name]) == len(types):
        return (
            f"it asks for {printed(name, asked)} of {name}{besides}, and the largest of the "
            f"{len(types)} types that meet all requirements has {printed(name, most)}"
        )
    parts = [
        f"{each} {printed(each, spec.requests.of(each))} excludes {len(by)}"
        for each, by in _by_count(short)
    ]
    return f"no one of {len(types)} types has enough of everything: {', '.join(parts)}"


def _by_count(short: dict[str, list[int]]) -> Sequence[tuple[str, list[int]]]:
    return sorted(((n, by) for n, by in short.items() if by), key=lambda entry: -len(entry[1]))
