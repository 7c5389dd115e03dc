"""Chooses the zone of pods with spreads, affinities or anti-affinities by zone.

Pods that no such term concerns keep all zones. `label_domains` chooses the values of other labels
in the same way: a value of a label is a zone there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leeway.reasons import Reason
from leeway.selection.labels import ZONE
from leeway.selection.packing.plan import TOPOLOGY_UNSATISFIABLE
from leeway.selection.packing.pod_groups import (
    PodBatch,
    PodGroup,
    Terms,
    Unplaced,
    affinity_unsatisfiable,
    bindable,
    connected,
    spread_unsatisfiable,
)
from leeway.selection.packing.topology import Cap, Rules


def _no_zone_with_pods(topology: str) -> Reason:
    return affinity_unsatisfiable(
        f"no {_domain(topology)} has both a node for the pod and the pods that its affinity selects"
    )


def _zone_excluded(topology: str) -> Reason:
    return affinity_unsatisfiable(
        f"topology spread or anti-affinity excludes the pod from the {_domain(topology)} of the "
        "pods that its affinity selects"
    )


def _domain(topology: str) -> str:
    return "zone" if topology == ZONE else f"value of {topology}"


@dataclass(frozen=True)
class Choice:
    """Zones by position: `feasible` zones have a node for a pod of the group, `domains` are those
    that its spreads compare. `zoneless`: a node without a zone has room for it."""

    feasible: tuple[bool, ...]
    domains: tuple[bool, ...]
    zoneless: bool = False

    @property
    def any(self) -> bool:
        """Whether any node is feasible."""
        return any(self.feasible) or self.zoneless


@dataclass
class ZoneCounts:
    """The number of pods of each counter in each zone, and the maximum that anti-affinity allows.
    With another `topology`, `zones` are the values of that label.

    `preferred` is the order of zones that are otherwise equal. `avoided` are the counters of pods
    that others exclude by zone.
    """

    zones: tuple[str, ...]
    preferred: Sequence[int]
    avoided: frozenset[int] = frozenset()
    topology: str = ZONE
    _counts: dict[int, list[int]] = field(default_factory=dict)
    _conditional: dict[int, list[int]] = field(default_factory=dict)
    _limits: dict[int, list[float]] = field(default_factory=dict)
    _least: dict[int, list[float]] = field(default_factory=dict)
    _excluding: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _spreads: dict[tuple[int, int], dict[Cap, tuple[bool, ...]]] = field(default_factory=dict)

    def start(self, counter: int, pods: Mapping[str, float], limits: Mapping[str, float]) -> None:
        """Set a counter's pods and its limits, by the names of zones."""
        self._counts[counter] = [int(pods.get(zone, 0)) for zone in self.zones]
        if limits:
            self._limits[counter] = [limits.get(zone, float("inf")) for zone in self.zones]
            self._least[counter] = [*self._limits[counter]]

    def counts(self, counter: int) -> list[int]:
        """The counter's pods by zone."""
        found = self._counts.get(counter)
        if found is None:
            found = self._counts[counter] = [0] * len(self.zones)
        return found

    def _certain(self, counter: int) -> list[int]:
        """The same without pods that may still use a node that is not counted."""
        counts, conditional = self.counts(counter), self._conditional.get(counter)
        return (
            [n - less for n, less in zip(counts, conditional, strict=True)]
            if conditional
            else counts
        )

    def _limit(self, counter: int) -> list[float]:
        found = self._limits.get(counter)
        if found is None:
            found = self._limits[counter] = [float("inf")] * len(self.zones)
        return found

    def add(self, rules: Rules, zone: int, pods: int = 1) -> None:
        """Count pods in a zone, and lower the limits of the zone by their anti-affinity. With fewer
        than 0 pods, they leave the zone, and their limits with the last of them."""
        rules = rules.at(zone)
        for counter in rules.counted:
            self.counts(counter)[zone] += pods
        for counter in rules.conditional:
            self._conditional.setdefault(counter, [0] * len(self.zones))[zone] += pods
        for cap in rules.caps_in_zone:
            if not cap.skew:
                by = self._excluding.setdefault((cap.counter, cap.most), [0] * len(self.zones))
                by[zone] += pods
                self._limit(cap.counter)[zone] = self._lowest(cap.counter, zone)

    def _lowest(self, counter: int, zone: int) -> float:
        """The limit of a counter in a zone by the pods that are there."""
        started = self._least.get(counter)
        least = started[zone] if started else float("inf")
        for most in (0, 1):  # an anti-affinity admits no pod of its counter, or the pod itself
            by = self._excluding.get((counter, most))
            if by and by[zone] > 0:
                return min(least, most)
        return least

    def place(self, rules: Rules, zone: int, domains: Sequence[bool]) -> None:
        """Add one pod whose spreads must stay satisfied when later pods are added."""
        self.add(rules, zone)
        for cap in rules.caps_in_zone:
            if cap.skew:
                self._spreads.setdefault((cap.counter, zone), {})[cap] = tuple(domains)

    def admits(self, rules: Rules, zone: int, domains: Sequence[bool]) -> bool:
        """Whether one more pod may use a zone, by its own rules and those of the pods in it."""
        rules = rules.at(zone)
        for counter in rules.counted:
            if self.counts(counter)[zone] + 1 > self._limit(counter)[zone]:
                return False
            for cap, counted in self._spreads.get((counter, zone), {}).items():
                if not self._within(cap, rules, zone, counted):
                    return False
        return all(self._within(cap, rules, zone, domains) for cap in rules.caps_in_zone)

    def is_satisfied(self, rules: Rules, zone: int, domains: Sequence[bool]) -> bool:
        """Whether the affinity and the spreads of a pod in a zone are satisfied."""
        rules = rules.at(zone)
        there = Rules(frozenset(), (), rules.caps_in_zone, (), ())
        skews = [cap for cap in rules.caps_in_zone if cap.skew]
        return all(self._within(cap, there, zone, domains) for cap in skews) and all(
            self.counts(counter)[zone] > (counter in rules.counted)
            or (counter in rules.counted and sum(self.counts(counter)) == 1)
            for counter in rules.affinity_in_zone
        )

    def _within(self, cap: Cap, rules: Rules, zone: int, domains: Sequence[bool]) -> bool:
        counts = self.counts(cap.counter)
        coming = counts[zone] + (cap.counter in rules.counted)
        if not cap.skew:
            return coming <= cap.most
        # In the pod's own zone, use the same count on both sides of the comparison.
        certain = [*self._certain(cap.counter)]
        certain[zone] = counts[zone]
        inside = [n for n, counted in zip(certain, domains, strict=True) if counted]
        least = min(inside, default=0) if len(inside) >= cap.min_domains else 0
        return coming - least <= cap.most

    def new_exclusions(self, rules: Rules, zone: int) -> int:
        """How many counters a pod would newly exclude from a zone, in either direction. The lowest
        number leaves the most zones open."""
        rules = rules.at(zone)
        own = sum(
            self._limit(cap.counter)[zone] > cap.most for cap in rules.caps_in_zone if not cap.skew
        )
        return own + sum(not self.counts(c)[zone] for c in rules.counted & self.avoided)

    def pod_count(self, rules: Rules, zone: int) -> int:
        """The number of similar pods in a zone. The zone with the fewest is chosen."""
        return sum(self.counts(counter)[zone] for counter in rules.at(zone).counted)


def assign(
    groups: Sequence[tuple[PodGroup, Choice]], counts: ZoneCounts, by_zone: frozenset[int]
) -> tuple[list[PodBatch], list[Unplaced]]:
    """Assign zones to pods. `by_zone` are the counters of terms whose topology is the zone."""
    batches: list[PodBatch] = []
    unplaced: list[Unplaced] = []
    affine: list[tuple[PodGroup, Choice]] = []
    spreading: list[tuple[PodGroup, Choice]] = []
    needed = {counter for group, _ in groups for counter in group.rules.affinity_in_zone}
    counts.avoided |= {c.counter for g, _ in groups for c in g.rules.caps_in_zone if not c.skew}
    # Pods with the fewest zones come first, and pods without caps before pods with caps.
    for group, choice in sorted(
        groups, key=lambda g: (bool(g[0].rules.caps_in_zone), sum(g[1].feasible))
    ):
        rules = group.rules
        if rules.affinity_in_zone or (rules.counted & needed and not rules.caps_in_zone):
            affine.append((group, choice))
        elif not (rules.caps_in_zone or (rules.counted & by_zone and any(choice.feasible))):
            batches.append(PodBatch.of(group, group.pods))
        else:
            spreading.append((group, choice))
    connected_sets = list(connected(affine, lambda entry: _terms(entry[0])))
    spread = frozenset(counter for group, _ in spreading for counter in group.rules.counted)
    deferred = [each for each in connected_sets if not _self_sufficient(each, counts, spread)]
    for together in connected_sets:
        if not any(together is each for each in deferred):
            _assign_to_one_zone(together, counts, spread, batches, unplaced)
    for group, choice in spreading:
        _spread(group, choice, counts, batches, unplaced)
    for together in deferred:
        _assign_to_one_zone(together, counts, frozenset(), batches, unplaced)
    domains = {id(group): choice.domains for group, choice in groups}
    return _drop_unsatisfied(batches, domains, counts, unplaced), unplaced


def _drop_unsatisfied(
    batches: list[PodBatch],
    domains: Mapping[int, Sequence[bool]],
    counts: ZoneCounts,
    unplaced: list[Unplaced],
) -> list[PodBatch]:
    """Remove batches whose affinity is not satisfied after all zones are assigned."""
    while True:
        kept: list[PodBatch] = []
        for batch in batches:
            ((group, _),) = batch.parts
            rules, zone = group.rules, batch.zone
            if (
                zone is None
                or not rules.affinity_in_zone
                or counts.is_satisfied(rules, zone, domains[id(group)])
            ):
                kept.append(batch)
            else:
                counts.add(rules, zone, -len(batch.units))
                pods = tuple(name for unit in batch.units for name in unit)
                unplaced.append(Unplaced(group, pods, _no_zone_with_pods(counts.topology)))
        if len(kept) == len(batches):
            return kept
        batches = kept


def _self_sufficient(
    together: Sequence[tuple[PodGroup, Choice]], counts: ZoneCounts, spread: frozenset[int]
) -> bool:
    """Whether the affinity of connected groups can be met by these groups or by running pods.
    `spread` are the counters of pods that are assigned later."""
    rules = [group.rules for group, _ in together]
    counted = {counter for each in rules for counter in each.counted}
    leading = {counter for each in rules for counter in each.counted - set(each.affinity_in_zone)}
    wanted = {counter for each in rules for counter in each.affinity_in_zone}
    return all(c in leading or c in counted - spread or any(counts.counts(c)) for c in wanted)


def _spread(
    group: PodGroup,
    choice: Choice,
    counts: ZoneCounts,
    batches: list[PodBatch],
    unplaced: list[Unplaced],
) -> None:
    """Assign pods one by one to the zone with the fewest similar pods."""
    rules, placed = group.rules, [0] * len(counts.zones)
    zones = [zone for zone in counts.preferred if choice.feasible[zone]]
    for _ in group.pods:
        ranked = sorted(
            zones, key=lambda z: (counts.new_exclusions(rules, z), counts.pod_count(rules, z))
        )
        zone = next((z for z in ranked if counts.admits(rules, z, choice.domains)), None)
        if zone is None:
            break
        counts.place(rules, zone, choice.domains)
        placed[zone] += 1
    start = 0
    for zone, pods in enumerate(placed):
        if pods:
            batches.append(PodBatch.of(group, group.pods[start : start + pods], zone))
            start += pods
    if start < len(group.pods):
        unplaced.append(Unplaced(group, group.pods[start:], _spread_reason(group, choice, counts)))


def _spread_reason(group: PodGroup, choice: Choice, counts: ZoneCounts) -> Reason:
    unable = [
        name
        for name, feasible, domain in zip(
            counts.zones, choice.feasible, choice.domains, strict=True
        )
        if domain and not feasible
    ]
    if not any(choice.feasible):
        return TOPOLOGY_UNSATISFIABLE(
            why="No zone has a node for the pod: neither an existing node nor an offering of a "
            "node pool"
        )
    if any(cap.skew for cap in group.rules.caps_in_zone):
        without = f", and no node for the pod exists in {', '.join(unable)}" if unable else ""
        cause = f"its maxSkew would be exceeded{without}"
        return spread_unsatisfiable(counts.topology, cause)
    domain = _domain(counts.topology)
    return TOPOLOGY_UNSATISFIABLE(
        why=f"Pod anti-affinity excludes the pod from every {domain} that it may use"
    )


def _assign_to_one_zone(
    together: Sequence[tuple[PodGroup, Choice]],
    counts: ZoneCounts,
    spread: frozenset[int],
    batches: list[PodBatch],
    unplaced: list[Unplaced],
) -> None:
    """Assign connected groups to the zone that can hold most of their pods. `spread` are the
    counters of pods that are assigned later."""
    chosen, chosen_groups = 0, list[PodGroup]()
    for zone in counts.preferred:
        feasible = [
            group
            for group, choice in together
            if choice.feasible[zone] and counts.admits(group.rules, zone, choice.domains)
        ]
        among = set(map(id, feasible))
        out = [group.rules for group, _ in together if id(group) not in among]
        others = spread.union(*(rules.counted for rules in out if not rules.affinity_in_zone))
        required = {c for group in feasible for c in group.rules.affinity_in_zone}
        present = {c for c in required if any(counts.counts(c))}
        there = {c for c in present if counts.counts(c)[zone]}
        feasible = bindable(feasible, _terms, there, others | present)
        if _size(feasible) > _size(chosen_groups):
            chosen, chosen_groups = zone, feasible
    staying = {id(group) for group in chosen_groups}
    for group, choice in sorted(together, key=lambda each: bool(each[0].rules.affinity_in_zone)):
        kept = 0
        if id(group) not in staying and not group.rules.affinity_in_zone:
            # Only others would have liked it there.
            _spread(group, choice, counts, batches, unplaced)
            continue
        if id(group) in staying:
            kept = _fill_zone(group, choice, chosen, counts)
            batches += [PodBatch.of(group, group.pods[:kept], chosen)] if kept else []
        if kept < len(group.pods):
            reason = _zone_excluded if id(group) in staying else _no_zone_with_pods
            unplaced.append(Unplaced(group, group.pods[kept:], reason(counts.topology)))


def _fill_zone(group: PodGroup, choice: Choice, zone: int, counts: ZoneCounts) -> int:
    kept = 0
    while kept < len(group.pods) and counts.admits(group.rules, zone, choice.domains):
        counts.place(group.rules, zone, choice.domains)
        kept += 1
    return kept


def _terms(group: PodGroup) -> Terms:
    return group.rules.counted, group.rules.affinity_in_zone


def _size(groups: Iterable[PodGroup]) -> int:
    return sum(len(group.pods) for group in groups)
