"""Treats the preferences of pods as requirements, and relaxes them one after another.

Preferred node affinity that no node satisfies is relaxed first, regardless of its weight. Then,
each kind by weight, the lightest first: pod affinity, pod anti-affinity, node affinity, spreads
with ScheduleAnyway, and finally avoiding nodes with a PreferNoSchedule taint.
"""

from dataclasses import replace
from functools import lru_cache

from leeway.selection.pods import PodSpec, Toleration, Weighted
from leeway.selection.requirements import Requirements

_TOLERATES_SOFT_TAINTS = Toleration(operator="Exists", effect="PreferNoSchedule")


def with_preferences_required(spec: PodSpec) -> PodSpec:
    """Return the pod with all its preferences as requirements."""
    if not has_preferences(spec):
        return spec
    wanted = Requirements(r for w in spec.preferred_terms for r in w.preference.values())
    terms = spec.terms
    if spec.preferred_terms:
        terms = tuple(term.intersection(wanted) for term in spec.terms or (Requirements(),))
    return replace(
        spec,
        terms=terms,
        affinity=spec.own_terms,
        pod_affinity=spec.pod_affinity + tuple(w.preference for w in spec.preferred_pod_affinity),
        pod_anti_affinity=spec.pod_anti_affinity
        + tuple(w.preference for w in spec.preferred_pod_anti_affinity),
        spreads=tuple(replace(spread, required=True) for spread in spec.spreads),
        preferred_terms=(),
        preferred_pod_affinity=(),
        preferred_pod_anti_affinity=(),
    )


def without_preferences(spec: PodSpec) -> PodSpec:
    """Return the pod without its preferences, except for soft taints."""
    return replace(
        spec,
        spreads=tuple(spread for spread in spec.spreads if spread.required),
        preferred_terms=(),
        preferred_pod_affinity=(),
        preferred_pod_anti_affinity=(),
    )


def fully_relaxed(spec: PodSpec, soft_taints: bool) -> PodSpec:
    """Return the pod as kube-scheduler's filters see it: with nothing but what it requires.

    `soft_taints`: there are nodes with a PreferNoSchedule taint.
    """
    if has_preferences(spec):
        spec = without_preferences(spec)
    if soft_taints and _TOLERATES_SOFT_TAINTS not in spec.tolerations:
        spec = replace(spec, tolerations=(*spec.tolerations, _TOLERATES_SOFT_TAINTS))
    return spec


def has_preferences(spec: PodSpec) -> bool:
    """Whether the pod has preferences other than soft taints."""
    return bool(
        spec.preferred_terms
        or spec.preferred_pod_affinity
        or spec.preferred_pod_anti_affinity
        or not all(spread.required for spread in spec.spreads)
    )


@lru_cache(maxsize=4096)
def relaxed(spec: PodSpec, soft_taints: bool) -> PodSpec | None:
    """Return the pod without its next preference, None if there is none.

    `soft_taints`: there are nodes with a PreferNoSchedule taint.
    """
    if spec.preferred_pod_affinity:
        return replace(spec, preferred_pod_affinity=_without_lightest(spec.preferred_pod_affinity))
    if spec.preferred_pod_anti_affinity:
        return replace(
            spec, preferred_pod_anti_affinity=_without_lightest(spec.preferred_pod_anti_affinity)
        )
    if spec.preferred_terms:
        return replace(spec, preferred_terms=_without_lightest(spec.preferred_terms))
    if not all(spread.required for spread in spec.spreads):
        kept = tuple(spread for spread in spec.spreads if spread.required)
        return replace(spec, spreads=kept)
    if soft_taints and _TOLERATES_SOFT_TAINTS not in spec.tolerations:
        return replace(spec, tolerations=(*spec.tolerations, _TOLERATES_SOFT_TAINTS))
    return None


def _without_lightest[T](preferences: tuple[Weighted[T], ...]) -> tuple[Weighted[T], ...]:
    lightest = min(range(len(preferences)), key=lambda i: preferences[i].weight)
    return preferences[:lightest] + preferences[lightest + 1 :]
