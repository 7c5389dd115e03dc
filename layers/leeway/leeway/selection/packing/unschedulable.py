"""Explains why no offering of any node pool fits a pod."""

from collections.abc import Sequence

from leeway.reasons import Reason
from leeway.selection.labels import CAPACITY_TYPE, CAPACITY_TYPES
from leeway.selection.offers.catalog import TypeTable, bits
from leeway.selection.offers.mismatches import explain
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import ports_conflict
from leeway.selection.pods import PodSpec
from leeway.selection.pools import NodePool
from leeway.selection.quantities import printed
from leeway.selection.reasons import (
    FRACTIONAL_GPU_NOT_NAMED,
    HOST_PORT_IN_USE,
    NO_INSTANCE_TYPE_MATCHES,
    NO_NODE_POOL,
    NO_NODE_POOL_MATCHES,
    NO_OFFERING_AVAILABLE,
    REQUEST_TOO_LARGE,
    REQUIREMENTS_CONFLICT,
    TAINT_NOT_TOLERATED,
)
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources

_MAX_NAMES = 8

_EXCLUDED = frozenset({TAINT_NOT_TOLERATED.name, REQUIREMENTS_CONFLICT.name})


def explain_unschedulable(spec: PodSpec, supply: Supply, zone: str | None = None) -> Reason:
    """Return why no offering of any pool fits this pod. Pools that the pod excludes, by taints or
    requirements, are named only if it excludes all pools. With several pools, the code is the one
    that they have in common, or NoNodePoolMatches.

    `zone` is the only zone that the pod's topology terms allow.
    """
    if not supply.pools:
        return NO_NODE_POOL()
    by_pool = [
        _of_pool(spec, pool, table, supply)
        for pool, table in zip(supply.pools, supply.tables, strict=True)
    ]
    by_pool = [reason for reason in by_pool if reason.code not in _EXCLUDED] or by_pool
    codes = {reason.code for reason in by_pool}
    messages = " ".join(dict.fromkeys(reason.message for reason in by_pool))
    if len(codes) == 1:
        reason = Reason(codes.pop(), messages)
    else:
        reason = NO_NODE_POOL_MATCHES(reasons=messages)
    if zone:
        return reason.and_then(f"The topology terms of the pod allow only zone {zone}.")
    return reason


def _of_pool(spec: PodSpec, pool: NodePool, table: TypeTable, supply: Supply) -> Reason:
    taint = spec.untolerated(pool.taints)
    if taint is not None:
        return TAINT_NOT_TOLERATED(pool=pool.name, taint=taint)
    terms = spec.terms or (Requirements(),)
    conflicts = [pool.requirements.conflict(term) for term in terms]
    if all(conflicts):
        conflict = "; or ".join(dict.fromkeys(text for text in conflicts if text))
        return REQUIREMENTS_CONFLICT(pool=pool.name, conflict=conflict)
    matching_terms = [
        pool.requirements.intersection(term)
        for term, conflict in zip(terms, conflicts, strict=True)
        if conflict is None
    ]
    found, fractional = 0, 0
    for requirements in matching_terms:
        matching = table.matching(requirements)
        excluded = table.excluded_fractional_gpus(requirements)
        found |= matching & ~excluded
        fractional |= matching & excluded
    if fractional and not found:
        return FRACTIONAL_GPU_NOT_NAMED(pool=pool.name, types=", ".join(_names(table, fractional)))
    if found and any(supply.conflicting_daemons(spec)) and not _pool_admits(spec, pool, supply):
        return HOST_PORT_IN_USE(pool=pool.name, ports=_ports(spec, supply))
    if not found:
        return _no_match(pool, table, matching_terms)
    return REQUEST_TOO_LARGE(pool=pool.name, cause=_too_small(spec, table, found, supply))


def _pool_admits(spec: PodSpec, pool: NodePool, supply: Supply) -> bool:
    """Whether any node of a pool admits a pod, apart from its size."""
    position = supply.pools.index(pool)
    return bool((supply.allowed(spec) & (supply.of_pool == position)).any())


def _ports(spec: PodSpec, supply: Supply) -> str:
    used = [port for daemon in supply.conflicting_daemons(spec) for port in daemon.ports]
    found = {one.port for one in spec.ports if any(ports_conflict(one, other) for other in used)}
    return ", ".join(map(str, sorted(found)))


def _names(table: TypeTable, types: int) -> list[str]:
    return [table.catalog.names[index] for index in bits(types)]


def _no_match(pool: NodePool, table: TypeTable, terms: Sequence[Requirements]) -> Reason:
    """The reason if no type has both the labels and an available offering of any of the terms."""
    for requirements in terms:
        with_labels = table.matching_labels(requirements)
        capacity_type = requirements.get(CAPACITY_TYPE)
        if with_labels and capacity_type is not None:
            names = _names(table, with_labels)
            more = len(names) - _MAX_NAMES
            return NO_OFFERING_AVAILABLE(
                pool=pool.name,
                types=", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else ""),
                capacity_types=", ".join(c for c in CAPACITY_TYPES if capacity_type.has(c)),
                region=table.catalog.region,
            )
    cause = "; or ".join(explain(table, requirements) for requirements in terms)
    return NO_INSTANCE_TYPE_MATCHES(pool=pool.name, cause=cause)


def _too_small(spec: PodSpec, table: TypeTable, found: int, supply: Supply) -> str:
    """The resource that the fewest types have enough of."""
    daemons = Resources()
    for daemon in supply.daemons:
        daemons = daemons + daemon.requests
    types = table.types(found)
    too_small = {
        name: [t.allocatable.of(name) for t in types if t.allocatable.of(name) < requested]
        for name, requested in (spec.requests + daemons).items()
    }
    name = max(too_small, key=lambda each: len(too_small[each]))
    most = max(t.allocatable.of(name) for t in types)
    requested = spec.requests.of(name)
    besides = " besides DaemonSets" if supply.daemons else ""
    if len(too_small[name]) == len(types):
        return (
            f"the pod requests {printed(name, requested)} of {name}{besides}, and the largest of "
            f"the {len(types)} types that match all requirements has {printed(name, most)}"
        )
    parts = [
        f"{each} {printed(each, spec.requests.of(each))} excludes {len(by)}"
        for each, by in _by_count(too_small)
    ]
    return f"none of the {len(types)} types has enough of every resource: {', '.join(parts)}"


def _by_count(too_small: dict[str, list[int]]) -> Sequence[tuple[str, list[int]]]:
    found = ((name, by) for name, by in too_small.items() if by)
    return sorted(found, key=lambda entry: -len(entry[1]))
