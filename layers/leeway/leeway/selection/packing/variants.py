"""Splits a pool with several possible values of its own labels into one pool per value.

A node has one value of a label. Values that no pod mentions share one variant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from leeway.selection.labels import WELL_KNOWN
from leeway.selection.pods import PodSpec
from leeway.selection.pools import NodePool
from leeway.selection.requirements import Requirement, Requirements

MAX_VARIANTS = 100
"""Maximum number of variants of one pool. With more, the pool is not split."""


def variants(pools: Sequence[NodePool], specs: Iterable[PodSpec]) -> tuple[NodePool, ...]:
    """Return the pools, each in as many variants as these pods can distinguish, in the given
    order."""
    mentioned = _mentioned_values(pools, specs)
    return tuple(variant for pool in pools for variant in _variants(pool, mentioned))


def _mentioned_values(
    pools: Sequence[NodePool], specs: Iterable[PodSpec]
) -> Mapping[str, frozenset[str]]:
    """The values of the pools' own labels that pods mention, by label. A spread on a label mentions
    all of its values."""
    found: dict[str, set[str]] = {}
    for spec in specs:
        for spread in spec.spreads:
            for pool in pools:
                requirement = pool.requirements.get(spread.pods.topology)
                if requirement is not None and requirement.key not in WELL_KNOWN:
                    named = () if requirement.complement else requirement.values
                    found.setdefault(requirement.key, set()).update(named)
        for term in (*spec.terms, *(w.preference for w in spec.preferred_terms)):
            for key, requirement in term.items():
                if key not in WELL_KNOWN:
                    found.setdefault(key, set()).update(requirement.values)
    return {key: frozenset(values) for key, values in found.items()}


def _variants(pool: NodePool, mentioned: Mapping[str, frozenset[str]]) -> Sequence[NodePool]:
    choices = [
        _choices(requirement, mentioned[key])
        for key, requirement in pool.requirements.items()
        if key in mentioned
    ]
    several = [choice for choice in choices if len(choice) > 1]
    count = 1
    for choice in several:
        count *= len(choice)
    if count == 1 or count > MAX_VARIANTS:
        return [pool]
    return [_narrowed(pool, chosen) for chosen in product(*several)]


def _choices(requirement: Requirement, mentioned: frozenset[str]) -> list[Requirement]:
    """One requirement for each mentioned value, and one for all other values together."""
    named = sorted(value for value in mentioned if requirement.has(value))
    separate = [requirement.intersection(Requirement.of(requirement.key, "In", [v])) for v in named]
    if not named:
        return [requirement]
    rest = requirement.intersection(Requirement.of(requirement.key, "NotIn", named))
    return separate if rest.is_empty else [*separate, rest]


def _narrowed(pool: NodePool, chosen: Iterable[Requirement]) -> NodePool:
    narrowed = tuple(chosen)
    labels = {
        r.key: next(iter(r.values)) for r in narrowed if not r.complement and len(r.values) == 1
    }
    return replace(
        pool,
        requirements=pool.requirements.intersection(Requirements(narrowed)),
        labels={**pool.labels, **labels},
    )
