"""Packing: pods → existing nodes, nodes to launch, and unschedulable pods with reasons.

Pure: it imports neither AWS nor Kubernetes clients and has no side effects.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from leeway.selection.packing.drafting import Draft
from leeway.selection.packing.packing_run import Search
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.preferences import with_preferences_required
from leeway.selection.packing.scheduling import ORDERS
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, Pod, PodSpec, PodTerm
from leeway.selection.solver.arrays import Proceed


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of planning if a plan leaves pods without a node.

    `rounds`: how often those pods are planned again, on top of the plan. `attempts`: the maximum
    number of plans for up to `pods` pods; each plan places first the pods that the one before left
    out. `singly`: up to this many distinct pod specs are planned one after another, as
    kube-scheduler binds them. `orders`: the maximum number of orders in which pods are bound to
    existing nodes. `improvements`: rounds that make the new nodes of a small batch cheaper; a round
    takes about a millisecond for a hundred pods.
    """

    rounds: int = 3
    attempts: int = 4
    pods: int = 500
    singly: int = 40
    orders: int = len(ORDERS)
    improvements: int = 100


USUAL = Effort()


def always() -> bool:
    """Allow every improvement within the effort: the plan then depends on its input alone."""
    return True


def pack(
    pods: Sequence[Pod],
    supply: Supply,
    nodes: Sequence[ExistingNode] = (),
    effort: Effort = USUAL,
    proceed: Proceed = always,
) -> Plan:
    """Plan a node for every pod: existing nodes first, then new nodes.

    A first plan is made in any case. It is made cheaper while `proceed` returns True, within the
    `effort`: a caller with a deadline passes a function that compares it with its clock. The
    number of pods that get a node does not depend on it.

    Preferences are treated as requirements, and relaxed one after another if pods would have no
    node otherwise (see `leeway.selection.packing.preferences`).
    """
    draft = Draft(
        pods, supply, nodes, Search(ORDERS[: effort.orders], effort.improvements, proceed)
    )
    draft.plan_all()
    draft.add_unplaced(effort.rounds)
    if len(pods) <= effort.pods and _contested(draft.order_dependent, draft.specs):
        draft = _best(draft, effort)
    return draft.plan()


def _best(draft: Draft, effort: Effort) -> Draft:
    """The draft with the fewest pods without a node."""
    best = _reordered(draft, effort)
    if best.order_dependent and len(best.specs) <= effort.singly:
        best.add_sequentially()
    if best.order_dependent and len(best.specs) <= effort.singly:
        singly = best.restarted()
        singly.bind_all()
        singly.add_sequentially()
        best = min(best, singly, key=lambda each: each.unplaced_by_priority)
    return best


def _reordered(draft: Draft, effort: Effort) -> Draft:
    """The best of several drafts. Each draft places first the pods that the one before left out."""
    best, ranks = draft, dict.fromkeys(draft.specs, 0)
    for attempt in range(1, effort.attempts):
        first = _with_leaders(draft.order_dependent, draft.specs)
        behind = {rank for spec, rank in ranks.items() if spec not in first}
        if not first or not behind:
            break
        ranks |= dict.fromkeys(first, -attempt)
        draft = best.restarted()
        draft.plan_all(ranks)
        draft.add_unplaced(effort.rounds)
        best = min(best, draft, key=lambda each: each.unplaced_by_priority)
    return best


def _contested(order_dependent: Iterable[PodSpec], specs: Collection[PodSpec]) -> bool:
    """Whether topology terms relate any pod without a node to other pending pods."""
    terms = {spec: [*_terms(spec)] for spec in specs}
    return any(
        one is not other
        and (any(t.selects(other) for t in terms[one]) or any(t.selects(one) for t in terms[other]))
        for one in order_dependent
        for other in specs
    )


def _terms(spec: PodSpec) -> Iterator[PodTerm]:
    strict = with_preferences_required(spec)
    yield from (
        *strict.pod_affinity,
        *strict.pod_anti_affinity,
        *(spread.pods for spread in strict.spreads),
    )


def _with_leaders(order_dependent: Iterable[PodSpec], specs: Collection[PodSpec]) -> set[PodSpec]:
    """Add the pods that the affinity of these pods requires: they must be placed with them."""
    found = set(order_dependent)
    while True:
        terms = [term for spec in found for term in with_preferences_required(spec).pod_affinity]
        leading = {spec for spec in specs if any(term.selects(spec) for term in terms)}
        if leading <= found:
            return found
        found |= leading
