"""Counts what keeps a pod from the nodes of a pool: the nearest pool has the fewest."""

from collections.abc import Iterable, Sequence

from leeway.selection.offers.catalog import InstanceType, TypeTable
from leeway.selection.offers.mismatches import explain
from leeway.selection.pods import PodSpec
from leeway.selection.pools import NodePool
from leeway.selection.quantities import printed
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


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
        return conflicts or (explain(table, wanted),)
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
