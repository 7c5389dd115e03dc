"""Spread constraints on labels other than zone and hostname: chooses the label value for each pod.

Examples: capacity type, architecture, a label of the pool. A spread may count pods without such a
spread; these are treated as placed later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.packing.pod_groups import PodGroup, Unplaced
from leeway.selection.packing.topology import SpreadRule
from leeway.selection.pods import PodSpec
from leeway.selection.reasons import TOPOLOGY_SPREAD_UNSATISFIABLE
from leeway.selection.requirements import Requirements

HANDLED_ELSEWHERE = frozenset({HOSTNAME, ZONE})
"""The topologies that the choice of zones and the filling of nodes handle."""


@dataclass
class Values:
    """The values of one label: `feasible` values with a node for a pod (the cheapest first), values
    that the spread compares, and the number of counted pods of each value."""

    feasible: Sequence[str]
    compared: frozenset[str]
    counts: dict[str, int]

    def next(self, spread: SpreadRule, counts_itself: bool) -> str | None:
        """Choose the value with the fewest pods for the next pod; None if its maxSkew would be
        exceeded."""
        known = [self.counts.get(value, 0) for value in self.compared | {*self.feasible}]
        least = min(known, default=0) if len(known) >= spread.min_domains else 0
        value = min(self.feasible, key=lambda each: self.counts.get(each, 0), default=None)
        if value is None or self.counts.get(value, 0) + counts_itself - least > spread.max_skew:
            return None
        self.counts[value] = self.counts.get(value, 0) + counts_itself
        return value


def other_topologies(spec: PodSpec) -> list[str]:
    """Return the topologies of a pod's required spreads, except zone and hostname."""
    found = (spread.pods.topology for spread in spec.spreads if spread.required)
    return [topology for topology in dict.fromkeys(found) if topology not in HANDLED_ELSEWHERE]


def pinned_to_labels(spec: PodSpec, labels: Mapping[str, str]) -> PodSpec:
    """Return the pod restricted to nodes with these labels. Its spreads compare the same nodes as
    before."""
    wanted = Requirements.from_labels(labels)
    terms = tuple(term.intersection(wanted) for term in spec.terms or (Requirements(),))
    return replace(spec, terms=terms, affinity=spec.own_terms)


def split_by_value(
    group: PodGroup, spread: SpreadRule, values: Values
) -> Iterator[PodGroup | Unplaced]:
    """Split a group by the label value that is chosen for each pod."""
    counts_itself = spread.counter in group.rules.counted
    chosen: dict[str, list[str]] = {}
    for at, pod in enumerate(group.pods):
        value = values.next(spread, counts_itself)
        if value is None:
            yield Unplaced(group, group.pods[at:], _spread_reason(spread, values))
            break
        chosen.setdefault(value, []).append(pod)
    for value, pods in chosen.items():
        spec = pinned_to_labels(group.spec, {spread.topology: value})
        yield replace(group, spec=spec, pods=tuple(pods))


def _spread_reason(spread: SpreadRule, values: Values) -> Reason:
    if not values.feasible:
        cause = "no node for the pod has this label"
    else:
        without = ", ".join(sorted(values.compared - {*values.feasible}))
        cause = "its maxSkew would be exceeded"
        if without:
            cause += f", and no node for the pod exists in {without}"
    return TOPOLOGY_SPREAD_UNSATISFIABLE(topology=spread.topology, cause=cause)
