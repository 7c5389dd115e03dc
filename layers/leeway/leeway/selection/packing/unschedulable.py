"""Explains why no offering of any node pool fits a pod, and counts what keeps a pod from the nodes
of a pool: the nearest pool has the fewest.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from leeway.reasons import Reason, some
from leeway.selection.labels import CAPACITY_TYPE, CAPACITY_TYPES
from leeway.selection.offers.catalog import InstanceType, TypeTable, bits, mismatch
from leeway.selection.packing.plan import (
    NO_NODE_POOL,
    NO_NODE_POOL_MATCHES,
    NO_OFFERING_AVAILABLE,
    REQUEST_TOO_LARGE,
)
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import ports_conflict
from leeway.selection.packing.variants import MAX_OFFERINGS, MAX_VARIANTS, missing, undecided
from leeway.selection.pods import NodePool, PodSpec
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources, printed


def unmet_requirements(
    spec: PodSpec, pool: NodePool, table: TypeTable, daemons: Sequence[PodSpec] = ()
) -> tuple[str, ...]:
    """Return what a pod needs and no node of a pool has, one text each. Empty if the pool has
    nodes for the pod; its limits and the pod's topology terms may still exclude them.

    Of several terms of node affinity, the nearest counts. Of the instance types that match, the one
    counts that lacks the fewest resources. `daemons` are the pods that each node has besides.
    """
    taints = tuple(
        f"the pod does not tolerate the taint {taint}"
        for taint in pool.taints
        if spec.untolerated((taint,)) is not None
    )
    terms = spec.terms or (Requirements(),)
    of_terms = (_of_term(spec, pool, table, daemons, term) for term in terms)
    return (*taints, *min(of_terms, key=len))


def _of_term(
    spec: PodSpec,
    pool: NodePool,
    table: TypeTable,
    daemons: Sequence[PodSpec],
    term: Requirements,
) -> tuple[str, ...]:
    each = (pool.requirements.conflict(Requirements([one])) for one in term.values())
    conflicts = tuple(conflict for conflict in each if conflict is not None)
    wanted = pool.requirements if conflicts else pool.requirements.intersection(term)
    found = table.matching(wanted) & ~table.excluded_fractional_gpus(wanted)
    if not found:
        return conflicts or (mismatch(table, wanted),)
    admitted = [one.requests for one in daemons if one.untolerated(pool.taints) is None]
    return (*conflicts, *_lacking(spec.requests, admitted, table.types(found)))


def _lacking(
    requests: Resources, daemons: Iterable[Resources], types: Sequence[InstanceType]
) -> tuple[str, ...]:
    """The resources that the nearest type has too little of."""
    needed = sum(daemons, start=requests)
    besides = " with the DaemonSets of a node" if needed != requests else ""

    def lacks(kind: InstanceType) -> list[str]:
        return [name for name, amount in needed.items() if kind.allocatable.of(name) < amount]

    def shortfall(kind: InstanceType) -> float:
        return sum(1 - kind.allocatable.of(name) / needed.of(name) for name in lacks(kind))

    nearest = min(types, key=lambda kind: (len(lacks(kind)), shortfall(kind)))
    return tuple(
        f"the pod needs {printed(name, needed.of(name))} of {name}{besides}, "
        f"and {nearest.name} has {printed(name, nearest.allocatable.of(name))}"
        for name in lacks(nearest)
    )


_MAX_NAMES = 8


def _either(causes: Iterable[str]) -> str:
    """Join the causes of alternative terms; of many, the first ones."""
    found = list(dict.fromkeys(causes))
    more = len(found) - _MAX_NAMES
    return "; or ".join(found[:_MAX_NAMES]) + (f"; or {more} more causes" if more > 0 else "")


class Explanations:
    """Why no offering of a supply fits a pod. Pods with equal requests and requirements share an
    answer; pods with equal requirements share the types that match them.

    `varied` is the supply with the variants of its pools that the plan has.
    """

    def __init__(self, supply: Supply, varied: Supply) -> None:
        self._supply, self._varied = supply, varied
        self._known: dict[object, Reason] = {}
        self._matching: dict[object, int | Reason] = {}
        self._ascending: dict[tuple[int, int, str], list[int]] = {}

    def explain(self, spec: PodSpec, zone: str | None = None) -> Reason:
        """Return why no offering of any pool fits this pod. Pools that the pod excludes, by taints
        or requirements, are named only if it excludes all pools. With several pools, the code is
        the one that they have in common, or NoNodePoolMatches.

        `zone` is the only zone that the pod's topology terms allow.
        """
        key = (spec.requests, spec.terms, spec.tolerations, spec.ports)
        if key not in self._known:
            self._known[key] = self._explained(spec)
        reason = self._known[key]
        if zone and self._supply.pools:
            return reason.and_then(f"The topology terms of the pod allow only zone {zone}.")
        return reason

    def _explained(self, spec: PodSpec) -> Reason:
        pools = [n for n, pool in enumerate(self._supply.pools) if pool.replicas is None]
        if not pools:
            return NO_NODE_POOL()
        admitting = [n for n in pools if _excluding(spec, self._supply.pools[n]) is None]
        by_pool = [self._of_pool(spec, number) for number in admitting or pools]
        codes = {reason.code for reason in by_pool}
        messages = " ".join(dict.fromkeys(reason.message for reason in by_pool))
        if len(codes) == 1:
            return Reason(codes.pop(), messages)
        return NO_NODE_POOL_MATCHES(why=f"No node pool can launch a node for the pod. {messages}")

    def _of_pool(self, spec: PodSpec, number: int) -> Reason:
        supply = self._supply
        pool, table = supply.pools[number], supply.tables[number]
        key = (number, spec.terms, spec.tolerations)
        if key not in self._matching:
            self._matching[key] = _matching(spec, pool, table)
        found = self._matching[key]
        if isinstance(found, Reason):
            return found
        if any(supply.conflicting_daemons(spec)) and not _pool_admits(spec, pool, supply):
            ports = _ports(spec, supply)
            return NO_NODE_POOL_MATCHES(
                why=f"A DaemonSet uses the host port {ports} on every node of node pool {pool.name}"
            )
        labels = dict.fromkeys(key for term in spec.terms for key in missing(term, undecided(pool)))
        if labels and number in supply.pools_for(spec) and not self._has_variant(spec, pool):
            return NO_NODE_POOL_MATCHES(
                why=f"Node pool {pool.name} allows several values of {some(labels)}, and no node "
                f"of this plan has one for the pod: a plan adds at most {MAX_VARIANTS} variants of "
                f"node pools with {MAX_OFFERINGS:,} offerings, one for each value, and other pods "
                "come first. A later plan has one for the pod when these pods run"
            )
        amounts = {
            name: self._amounts(number, found, name) for name in spec.requests + self._daemons
        }
        return REQUEST_TOO_LARGE(pool=pool.name, cause=_too_small(spec, amounts, self._daemons))

    def _has_variant(self, spec: PodSpec, pool: NodePool) -> bool:
        """Whether a variant of a pool has the labels that a pod requires, apart from its size."""
        admitting = set(self._varied.of_pool[self._varied.allowed(spec)].tolist())
        return any(self._varied.pools[number].name == pool.name for number in admitting)

    @cached_property
    def _daemons(self) -> Resources:
        """The requests of all DaemonSets."""
        return sum((daemon.requests for daemon in self._supply.daemons), Resources())

    def _amounts(self, number: int, found: int, name: str) -> list[int]:
        """The allocatable amounts of a resource of some types of a pool, in ascending order."""
        key = (number, found, name)
        if key not in self._ascending:
            types = self._supply.tables[number].types(found)
            self._ascending[key] = sorted(t.allocatable.of(name) for t in types)
        return self._ascending[key]


def _excluding(spec: PodSpec, pool: NodePool) -> Reason | None:
    """The taint or the requirements by which a pod excludes a pool; None if it does not."""
    taint = spec.untolerated(pool.taints)
    if taint is not None:
        return NO_NODE_POOL_MATCHES(
            why=f"The pod does not tolerate the taint {taint} of node pool {pool.name}"
        )
    conflicts = [pool.requirements.conflict(term) for term in spec.terms or (Requirements(),)]
    if not all(conflicts):
        return None
    conflict = _either(text for text in conflicts if text)
    return NO_NODE_POOL_MATCHES(
        why=f"The pod does not match the requirements of node pool {pool.name}: {conflict}"
    )


def _matching(spec: PodSpec, pool: NodePool, table: TypeTable) -> int | Reason:
    """The types of a pool that match the requirements of a pod, or why there are none."""
    if (excluding := _excluding(spec, pool)) is not None:
        return excluding
    matching_terms = [
        pool.requirements.intersection(term)
        for term in spec.terms or (Requirements(),)
        if pool.requirements.conflict(term) is None
    ]
    found, fractional = 0, 0
    for requirements in matching_terms:
        matching = table.matching(requirements)
        excluded = table.excluded_fractional_gpus(requirements)
        found |= matching & ~excluded
        fractional |= matching & excluded
    if found:
        return found
    if fractional:
        types = ", ".join(_names(table, fractional))
        return NO_NODE_POOL_MATCHES(
            why=f"Node pool {pool.name}: {types} has a fraction of a GPU. Such a type is launched "
            "only if the pod or the pool names its instance type or instance family"
        )
    return _no_match(pool, table, matching_terms)


def _pool_admits(spec: PodSpec, pool: NodePool, supply: Supply) -> bool:
    """Whether any node of a pool admits a pod, apart from its size."""
    position = supply.pools.index(pool)
    admitted = supply.allowed(spec, any_labels=True)
    return bool((admitted & (supply.of_pool == position)).any())


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
            return NO_OFFERING_AVAILABLE(
                pool=pool.name,
                types=some(_names(table, with_labels), _MAX_NAMES),
                capacity_types=", ".join(c for c in CAPACITY_TYPES if capacity_type.has(c)),
                region=table.catalog.region,
            )
    cause = _either(mismatch(table, requirements) for requirements in terms)
    return NO_NODE_POOL_MATCHES(
        why="No instance type matches the requirements of the pod and of node pool "
        f"{pool.name}: {cause}"
    )


def _too_small(spec: PodSpec, amounts: Mapping[str, Sequence[int]], daemons: Resources) -> str:
    """The resource that the fewest types have enough of. `amounts`: the allocatable amounts of the
    types, in ascending order, of each resource."""
    needed = spec.requests + daemons
    too_small = {name: bisect_left(each, needed.of(name)) for name, each in amounts.items()}
    name = max(too_small, key=lambda each: too_small[each])
    types, requested = len(amounts[name]), spec.requests.of(name)
    besides = " besides DaemonSets" if daemons else ""
    if too_small[name] == types:
        return (
            f"the pod requests {printed(name, requested)} of {name}{besides}, and the largest of "
            f"the {types} types that match all requirements has {printed(name, amounts[name][-1])}"
        )
    parts = [
        f"{each} {printed(each, spec.requests.of(each))} excludes {count}"
        for each, count in sorted(too_small.items(), key=lambda entry: -entry[1])
        if count
    ]
    return f"none of the {types} types has enough of every resource: {', '.join(parts)}"
