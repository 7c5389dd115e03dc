"""Packing: pods → nodes that are there, nodes to launch, and pods that fit nowhere with the reason.

Pure: it knows neither AWS nor Kubernetes, and changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leeway.selection.packing.drafting import Draft
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.preferences import strictly
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, Pod, PodSpec


@dataclass(frozen=True, slots=True)
class Effort:
    """How long places are looked for where a plan leaves pods without one.

    `rounds`: how often those are looked at again, as if the rest of the plan were carried out.
    `attempts`: how many plans are made at most, each with those first that had no place in the one
    before.
    """

    rounds: int = 3
    attempts: int = 4


USUAL = Effort()


def pack(
    pods: Sequence[Pod],
    supply: Supply,
    nodes: Sequence[ExistingNode] = (),
    effort: Effort = USUAL,
) -> Plan:
    """Plan a place for every pod: on nodes that are there first, then on new ones.

    Preferences are held as if they were required, and given up one after another where pods would
    have no place otherwise (see `leeway.selection.packing.preferences`).
    """
    ranks: dict[PodSpec, int] = {}
    best = draft = _drafted(pods, supply, nodes, effort, ranks)
    for attempt in range(1, effort.attempts):
        first = _with_leaders({pod.spec for pod in pods if pod.name in draft.stuck}, pods)
        if (
            not first
            or len({ranks.get(pod.spec, 0) if pod.spec not in first else None for pod in pods}) == 1
        ):
            break
        ranks |= dict.fromkeys(first, -attempt)
        draft = _drafted(pods, supply, nodes, effort, ranks)
        best = min(best, draft, key=lambda each: each.missed_by_priority)
    return best.plan()


def _drafted(
    pods: Sequence[Pod],
    supply: Supply,
    nodes: Sequence[ExistingNode],
    effort: Effort,
    ranks: Mapping[PodSpec, int],
) -> Draft:
    """Plan for pods in an order: those of a lower rank first."""
    draft = Draft(pods, supply, nodes, ranks)
    for _ in range(effort.rounds):
        if not draft.add_missed():
            break
    return draft


def _with_leaders(specs: set[PodSpec], pods: Sequence[Pod]) -> set[PodSpec]:
    """Add those that pods have to be near: whoever comes first, the others have to follow."""
    distinct = {pod.spec for pod in pods}
    found = set(specs)
    while True:
        terms = [term for spec in found for term in strictly(spec).near]
        leading = {spec for spec in distinct if any(term.selects(spec) for term in terms)}
        if leading <= found:
            return found
        found |= leading
