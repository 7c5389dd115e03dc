"""Why a pod fits onto no node that may be launched: for each pool, what came nearest."""

from collections.abc import Sequence

from leeway.selection.labels import CAPACITY_TYPE, CAPACITY_TYPES
from leeway.selection.offers.catalog import TypeTable, bits
from leeway.selection.offers.mismatches import explain
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import ports_conflict
from leeway.selection.pods import PodSpec
from leeway.selection.pools import NodePool
from leeway.selection.quantities import printed
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


def explain_unschedulable(spec: PodSpec, supply: Supply, zone: str | None = None) -> str:
    """Say why no offering of any pool is for this pod.

    `zone`: where its topology terms would have put it.
    """
    if not supply.pools:
        return "there is no node pool"
    by_pool = [
        _of_pool(spec, pool, table, supply)
        for pool, table in zip(supply.pools, supply.tables, strict=True)
    ]
    where = f" (in {zone}, where its topology terms leave it a place)" if zone else ""
    if len(by_pool) == 1:
        return by_pool[0] + where
    return (
        "; ".join(f"pool {p.name}: {s}" for p, s in zip(supply.pools, by_pool, strict=True)) + where
    )


def _of_pool(spec: PodSpec, pool: NodePool, table: TypeTable, supply: Supply) -> str:
    taint = spec.untolerated(pool.taints)
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"it does not tolerate the taint {taint.key}{value}:{taint.effect}"
    conflicts = [pool.requirements.conflict(term) for term in spec.terms or (Requirements(),)]
    if all(conflicts):
        return " or ".join(dict.fromkeys(c for c in conflicts if c))
    matching_terms = [
        pool.requirements.intersection(term)
        for term, conflict in zip(spec.terms or (Requirements(),), conflicts, strict=True)
        if conflict is None
    ]
    found, excluded = 0, 0
    for requirements in matching_terms:
        matching, unnamed = (
            table.matching(requirements),
            table.excluded_fractional_gpus(requirements),
        )
        found |= matching & ~unnamed
        excluded |= matching & unnamed
    if excluded and not found:
        names = ", ".join(table.catalog.names[index] for index in bits(excluded))
        return f"{names} has a part of a GPU, and is launched only for pods or pools that name it"
    if found and any(supply.conflicting_daemons(spec)) and not _pool_admits(spec, pool, supply):
        return f"a daemon of its nodes has the host port {_ports(spec, supply)}"
    if not found:
        return "; or ".join(_no_offering(table, requirements) for requirements in matching_terms)
    return _too_small(spec, table, found, supply)


def _pool_admits(spec: PodSpec, pool: NodePool, supply: Supply) -> bool:
    """Whether any node of a pool lets a pod in, whatever its size."""
    position = supply.pools.index(pool)
    return bool((supply.allowed(spec) & (supply.of_pool == position)).any())


def _ports(spec: PodSpec, supply: Supply) -> str:
    taken = [port for daemon in supply.conflicting_daemons(spec) for port in daemon.ports]
    found = {one.port for one in spec.ports if any(ports_conflict(one, other) for other in taken)}
    return ", ".join(map(str, sorted(found)))


def _no_offering(table: TypeTable, requirements: Requirements) -> str:
    """Types there may be, but none is offered as is asked."""
    described = table.matching_labels(requirements)
    capacity_type = requirements.get(CAPACITY_TYPE)
    if described and capacity_type is not None:
        requested = ", ".join(c for c in CAPACITY_TYPES if capacity_type.has(c))
        names = [table.catalog.names[index] for index in bits(described)]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"none of {shown} is offered as {requested} in {table.catalog.region} at the moment"
    return explain(table, requirements)


def _too_small(spec: PodSpec, table: TypeTable, found: int, supply: Supply) -> str:
    """The resource that fewest types have enough of."""
    daemons = Resources()
    for daemon in supply.daemons:
        daemons = daemons + daemon.requests
    types = table.types(found)
    lacking = {
        name: [t.allocatable.of(name) for t in types if t.allocatable.of(name) < requested]
        for name, requested in (spec.requests + daemons).items()
    }
    name = max(lacking, key=lambda each: len(lacking[each]))
    most = max(t.allocatable.of(name) for t in types)
    requested = spec.requests.of(name)
    besides = " besides daemons" if supply.daemons else ""
    if len(lacking[name]) == len(types):
        return (
            f"it asks for {printed(name, requested)} of {name}{besides}, and the largest of the "
            f"{len(types)} types that meet all requirements has {printed(name, most)}"
        )
    parts = [
        f"{each} {printed(each, spec.requests.of(each))} excludes {len(by)}"
        for each, by in _by_count(lacking)
    ]
    return f"no one of {len(types)} types has enough of everything: {', '.join(parts)}"


def _by_count(lacking: dict[str, list[int]]) -> Sequence[tuple[str, list[int]]]:
    return sorted(((n, by) for n, by in lacking.items() if by), key=lambda entry: -len(entry[1]))
