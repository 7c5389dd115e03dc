"""Chooses label values for pods with spreads, affinities or anti-affinities by other labels than
zone and hostname: capacity type, architecture, instance type, a label of the pool.

The values of such a label, on existing nodes and on nodes that pools can launch, are domains as the
zones are, and are chosen in the same way: the pods are then restricted to the chosen value. A
spread may count pods without such terms; these are treated as placed later, and keep all values.
Source: the topologies of Karpenter, whose domains are the labels of pools, types and nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from leeway.selection.packing.existing_nodes import ExistingNodes
from leeway.selection.packing.plan import TOPOLOGY_UNSATISFIABLE
from leeway.selection.packing.pod_classes import Classifier
from leeway.selection.packing.pod_groups import (
    ChosenValue,
    PodBatch,
    PodGroup,
    Terms,
    Unplaced,
    connected,
    fully_relaxed,
    pinned,
    spread_unsatisfiable,
)
from leeway.selection.packing.topology import CountedNodes, Counters, Rules
from leeway.selection.packing.zones import Choice, ZoneCounts, assign
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.solver.problem import Ints

_NO_SUCH_LABEL = "no node for the pod has this label"


class LabelDomains:
    """The values of labels in one packing run, with the pods of each counter there."""

    def __init__(self, counters: Counters, classifier: Classifier, existing: ExistingNodes) -> None:
        self._counters = counters
        self._classifier = classifier
        self._existing = existing
        self._counts: dict[str, ZoneCounts] = {}
        self._positions: dict[str, Ints] = {}
        self._excluding: set[int] = set()

    def offered(self, group: PodGroup, label: str) -> frozenset[str]:
        """The values of a label on nodes that can be launched for one pod of a group."""
        names = self._of(label).zones
        return frozenset(names[at] for at in self._offered(group, label))

    def choose(
        self, groups: Sequence[PodGroup], rank: Callable[[PodGroup], int]
    ) -> tuple[Sequence[PodGroup], list[Unplaced]]:
        """Restrict pods to the values that are chosen for them. Groups are split by value; those of
        a lower rank choose first."""
        unplaced: list[Unplaced] = []
        for label in self._counters.labels:
            concerned, watched = self._concerned(groups, label)
            if not concerned:
                continue
            among = set(map(id, concerned))
            kept = [group for group in groups if id(group) not in among]
            able, free, unable = self._with_values(concerned, label, watched)
            kept += free
            for _, some in groupby(sorted(able, key=rank), rank):
                found, left = self._assigned(list(some), label, watched)
                kept += found
                unable += left
            for entry in unable:
                self.remove(entry.group, len(entry.pods))
            unplaced += unable
            groups = kept
        return groups, unplaced

    def add(self, rules: Rules, labels: Mapping[str, str], pods: int) -> None:
        """Count pods that were bound to a node with these labels."""
        for label, counts in self._counts.items():
            if labels.get(label) in counts.zones:
                at = counts.zones.index(labels[label])
                counts.add(self._counters.within(rules, label), at, pods)

    def placed(self, group: PodGroup) -> None:
        """Keep the pods of later groups off the values that the anti-affinity of these placed pods
        excludes. Their preferences exclude nothing from later pods."""
        if group.rules.caps_by_label:
            rules = self._counters.rules(fully_relaxed(group.declared, soft_taints=False))
            self._excluding.update(cap.counter for cap in rules.caps_by_label if not cap.skew)

    def remove(self, group: PodGroup, pods: int) -> None:
        """Count pods no longer that have no place on nodes with the chosen values."""
        for one in group.chosen:
            rules = self._counters.within(group.rules, one.label)
            self._counts[one.label].add(rules, one.value, -pods)

    def are_satisfied(self, group: PodGroup) -> bool:
        """Whether the affinities and the spreads of placed pods are satisfied."""
        return all(
            self._counts[one.label].is_satisfied(
                self._counters.within(group.rules, one.label), one.value, one.compared
            )
            for one in group.chosen
        )

    def _concerned(
        self, groups: Sequence[PodGroup], label: str
    ) -> tuple[list[PodGroup], frozenset[int]]:
        """The groups with terms by a label, those that such affinities and anti-affinities of other
        pods select, and those that have to share a node with one of them; and the counters of these
        affinities and anti-affinities. Anti-affinity of running and placed pods counts too."""
        topology = self._counters.topology
        before = self._excluding.union(self._existing.domain_limits)
        watched = {counter for counter in before if topology(counter) == label}
        own: set[int] = set()
        for group in groups:
            caps = [c for c in group.rules.caps_by_label if topology(c.counter) == label]
            near = [c for c in group.rules.affinity_by_label if topology(c) == label]
            watched.update(near, (cap.counter for cap in caps if not cap.skew))
            if caps or near:
                own.add(id(group))
        found = {id(g) for g in groups if id(g) in own or g.rules.counted & watched}
        required = {c for group in groups for c in group.rules.affinity_on_node}
        linked = (g for g in groups if g.rules.affinity_on_node or g.rules.counted & required)
        for together in connected(linked if found and required else (), _on_node):
            if any(id(group) in found for group in together):
                found.update(map(id, together))
        return [group for group in groups if id(group) in found], frozenset(watched)

    def _with_values(
        self, groups: Sequence[PodGroup], label: str, watched: frozenset[int]
    ) -> tuple[list[PodGroup], list[PodGroup], list[Unplaced]]:
        """Return the groups that choose a value, those that need none, and those that need one
        though no node that can be launched for them has the label."""
        able, free, unable = list[PodGroup](), list[PodGroup](), list[Unplaced]()
        for group in groups:
            rules = self._counters.within(group.rules, label)
            if len(self._offered(group, label)):
                able.append(group)
            elif not (self._is_launched(group) or self._existing.admits(group.spec).any()):
                free.append(group)  # no node at all fits it: that is the reason to give
            elif any(cap.skew for cap in rules.caps_in_zone):
                reason = spread_unsatisfiable(label, _NO_SUCH_LABEL)
                unable.append(Unplaced(group, group.pods, reason))
            elif rules.caps_in_zone or len(rules.affinity_in_zone) > len(
                group.rules.affinity_on_node
            ):
                reason = TOPOLOGY_UNSATISFIABLE(
                    why="The affinity or anti-affinity of the pod with the topologyKey "
                    f"{label} cannot be met: {_NO_SUCH_LABEL}"
                )
                unable.append(Unplaced(group, group.pods, reason))
            else:
                excluded = group.rules.counted & watched
                free.append(_without(label, group) if excluded else group)
        return able, free, unable

    def _assigned(
        self, groups: Sequence[PodGroup], label: str, watched: frozenset[int]
    ) -> tuple[list[PodGroup], list[Unplaced]]:
        counts = self._of(label)
        choices = {id(group): self._choice(group, label) for group in groups}
        views = [
            replace(group, rules=self._counters.within(group.rules, label)) for group in groups
        ]
        original = dict(zip(map(id, views), groups, strict=True))
        entries = [(view, choices[id(original[id(view)])]) for view in views]
        batches, unplaced = assign(entries, counts, watched)
        found, left = list[PodGroup](), list[Unplaced]()
        for batch in batches:
            ((view, _),) = batch.parts
            group, names = original[id(view)], tuple(name for (name,) in batch.units)
            if batch.zone is None:
                found.append(replace(group, pods=names))
                continue
            spec = pinned(group.spec, Requirements.from_labels({label: counts.zones[batch.zone]}))
            compared = choices[id(group)].domains
            chosen = (*group.chosen, ChosenValue(label, batch.zone, compared))
            found.append(replace(group, spec=spec, pods=names, chosen=chosen))
        for entry in unplaced:
            group, rules = original[id(entry.group)], entry.group.rules
            free = _without(label, replace(group, pods=entry.pods))
            if rules.caps_in_zone or rules.affinity_in_zone or not self._is_launched(free):
                left.append(replace(entry, group=group))
            else:
                found.append(free)  # others exclude it from every value
        return found, left

    def _is_launched(self, group: PodGroup) -> bool:
        """Whether any node can be launched for a pod."""
        return bool(self._classifier.allowed(PodBatch.of(group, group.pods[:1])).any())

    def _choice(self, group: PodGroup, label: str) -> Choice:
        """The values of nodes that can be launched for a pod: existing nodes had no room. Its
        spreads compare them, and those of existing nodes."""
        names, offered = self._of(label).zones, set(self._offered(group, label).tolist())
        feasible = tuple(at in offered for at in range(len(names)))
        spreads = (each for each in group.spec.spreads if each.pods.topology == label)
        compared = {CountedNodes.compared(group.spec, each) for each in spreads}
        there = frozenset[str]().union(*(self._existing.values(label, each) for each in compared))
        return Choice(
            feasible,
            tuple(able or name in there for able, name in zip(feasible, names, strict=True)),
        )

    def _offered(self, group: PodGroup, label: str) -> Ints:
        """The positions of the values on nodes that can be launched for one pod of a group."""
        self._of(label)
        allowed = self._classifier.allowed(PodBatch.of(group, group.pods[:1]))
        found = np.unique(self._positions[label][allowed])
        return found[found >= 0]

    def _of(self, label: str) -> ZoneCounts:
        """The counts of a label: at first of the pods on existing nodes."""
        if label not in self._counts:
            values = self._values(label)
            counts = ZoneCounts(values, range(len(values)), topology=label)
            rows = self._existing.domains_of(label)
            names = self._existing.domain_names(label)
            for counter in range(len(self._counters)):
                there = np.bincount(
                    rows[rows >= 0], self._existing.counts[rows >= 0, counter], len(names)
                )
                limits = self._existing.domain_limits.get(counter)
                if self._counters.topology(counter) != label:
                    limits = None
                counts.start(
                    counter,
                    dict(zip(names, there.tolist(), strict=True)),
                    {} if limits is None else dict(zip(names, limits.tolist(), strict=True)),
                )
            self._counts[label] = counts
        return self._counts[label]

    def _values(self, label: str) -> tuple[str, ...]:
        """The values of a label: those that can be launched, the cheapest first, then others."""
        supply = self._classifier.supply
        offered = supply.values(label)
        cheapest = np.argsort(supply.prices, kind="stable").tolist()
        names = dict.fromkeys(value for at in cheapest if (value := offered[at]))
        position = {name: at for at, name in enumerate(names)}
        positions = [position[value] if value else -1 for value in offered]
        self._positions[label] = np.array(positions, dtype=np.int64)
        return tuple(dict.fromkeys([*names, *self._existing.domain_names(label)]))


def _on_node(group: PodGroup) -> Terms:
    return group.rules.counted, group.rules.affinity_on_node


def _without(label: str, group: PodGroup) -> PodGroup:
    """Restrict a group to nodes without a label."""
    absent = Requirements([Requirement(label, absent=True)])
    return replace(group, spec=pinned(group.spec, absent))
