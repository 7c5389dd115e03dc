"""Classifies batches for the solver: equivalent batches form one pod class.

If there are too many classes, batches are classified by size, candidate offerings and the counters
that they both cap and add to. The other counters are checked when pods are assigned to nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched

import numpy as np

from leeway.reasons import Reason
from leeway.selection.packing.min_values import too_few_types, unmet_min_values
from leeway.selection.packing.pod_groups import PodBatch
from leeway.selection.packing.supply import Supply
from leeway.selection.solver.problem import Bools, Floats, Ints, Problem

MAX_CLASSES = 60

MAX_ONE_BY_ONE = 2000
"""Units with constraints that are packed one by one (see `leeway.selection.solver.solving`)."""

ASSUMED_PER_NODE = 2
"""Assumed number of pods with caps on other pods' counters per node, if there are too many classes
to compute it."""

MAJOR_SHARE = 0.5
"""If there are too many classes, only counters that need at least this share of the nodes of the
most demanding counter are considered."""

EXPENSIVE = 1.1
"""A zone that costs more than this multiple of the cheapest zone is classified separately."""


type _Counters = tuple[Floats, Floats, Floats, Bools]
"""The `matches`, `caps`, `max_per_node` and `strict` of a problem."""


@dataclass(frozen=True)
class PodClasses:
    """The input of the solver. `batches` are those of each class. `index` maps the problem's
    offerings to those of the supply. `allowed` has the offerings of each class (G x all offerings).
    `exact`: every solution of the problem satisfies all batches. `few`: each pod is packed
    individually."""

    problem: Problem
    batches: tuple[tuple[PodBatch, ...], ...]
    index: Ints
    allowed: Bools
    exact: bool
    few: bool = False


@dataclass(frozen=True)
class _Analyzed:
    """A batch with the facts that its packing depends on."""

    batch: PodBatch
    size: Floats
    allowed: Bools
    place: int  # the same for the same `allowed`
    counted: dict[int, int]
    caps: dict[int, int]


class Classifier:
    """Classifies batches, for one supply and one set of resources.

    `launchable`: the offerings that fit the pods of new nodes, as known so far, by what they depend
    on (see `requests`).
    """

    def __init__(self, supply: Supply, resources: Sequence[str]) -> None:
        self.supply = supply
        self.resources = tuple(resources)
        self.capacity = supply.capacity(self.resources)
        self._alike = supply.alike(self.resources)
        self._by_resource = list(np.ascontiguousarray(self.capacity.T))
        self._places: dict[bytes, int] = {}
        self._fitting: dict[object, Bools] = {}
        self._usable: dict[object, tuple[Bools, int]] = {}
        self._sizes: dict[object, Floats] = {}
        self._limited: dict[tuple[str, ...], Floats] = {}
        self._too_few: dict[object, tuple[Bools, Mapping[str, str]]] = {}
        self._demanding = [n for n, pool in enumerate(supply.pools) if pool.has_min_values]
        self.launchable: dict[object, Ints] = {}

    def allowed(self, batch: PodBatch, eligible: Bools | None = None) -> Bools:
        """The eligible offerings that one unit of a batch may use and fits: O."""
        if eligible is None:
            return self._without_limits(batch)[0]
        return self._allowed(batch, batch.zone, eligible)

    def place(self, batch: PodBatch) -> int:
        """A number that is equal for batches with the same candidate offerings."""
        return self._without_limits(batch)[1]

    def _without_limits(self, batch: PodBatch) -> tuple[Bools, int]:
        key = (batch.zone, batch.shape)
        if key not in self._usable:
            usable = self._allowed(batch, batch.zone, None)
            self._usable[key] = usable, self._place(usable)
        return self._usable[key]

    def _allowed(self, batch: PodBatch, zone: int | None, eligible: Bools | None) -> Bools:
        found = self._fits(batch, zone)
        if self._demanding:
            found = found & ~self._with_too_few(batch, zone)[0]
        return self._plain(found, eligible)

    def fitting(self, batch: PodBatch, eligible: Bools) -> Bools:
        """The eligible offerings that one unit of a batch may use and fits, also those of pools
        whose minValues they do not meet: O."""
        return self._plain(self._fits(batch, batch.zone), eligible)

    def _fits(self, batch: PodBatch, zone: int | None) -> Bools:
        key = (zone, batch.shape)
        if key not in self._fitting:
            fitting = self.holding(self.size(batch))
            for group, _ in batch.parts:
                fitting &= self.supply.allowed(group.spec)
            if zone is not None:
                fitting &= self.supply.zones == zone
            self._fitting[key] = fitting
        return self._fitting[key]

    def _plain(self, found: Bools, eligible: Bools | None) -> Bools:
        if eligible is not None:
            found = found & eligible
        plain = found & ~self.supply.exotic
        return plain if plain.any() else found

    def _with_too_few(self, batch: PodBatch, zone: int | None) -> tuple[Bools, Mapping[str, str]]:
        """The offerings of the pools of which too few types fit one unit for their minValues: no
        node of such a pool can be launched for it. And the unmet minValues by pool."""
        key = (zone, batch.shape)
        if key not in self._too_few:
            excluded, unmet = np.zeros(len(self.supply), dtype=bool), dict[str, str]()
            for number in self._demanding:
                own = self.supply.of_pool == number
                offered = np.flatnonzero(self._plain(self._fits(batch, zone), own))
                if len(offered) and (missing := unmet_min_values(self.supply, offered)):
                    excluded |= own
                    unmet[self.supply.pools[number].name] = missing
            self._too_few[key] = excluded, unmet
        return self._too_few[key]

    def too_few_types(self, batch: PodBatch) -> Reason | None:
        """Why pools that have nodes for one unit launch none for it: too few of their types fit it
        for their minValues. None if there is no such pool."""
        unmet = self._with_too_few(batch, batch.zone)[1] if self._demanding else None
        return too_few_types(unmet) if unmet else None

    def limited(self, resources: tuple[str, ...]) -> Floats:
        """Return the amount that each offering adds towards the limits of its pool: O x R."""
        if resources not in self._limited:
            self._limited[resources] = self.supply.limited(resources)
        return self._limited[resources]

    def holding(self, amounts: Floats) -> Bools:
        """The offerings with a capacity of at least these amounts (R): O."""
        found = np.ones(len(self.capacity), dtype=bool)
        for held, amount in zip(self._by_resource, amounts.tolist(), strict=True):
            found &= held >= amount
        return found

    def _place(self, allowed: Bools) -> int:
        return self._places.setdefault(allowed.tobytes(), len(self._places))

    def size(self, batch: PodBatch) -> Floats:
        """The requests of one unit: R."""
        key = batch.shape
        if key not in self._sizes:
            size = np.zeros(len(self.resources))
            for group, pods in batch.parts:
                requested = [group.spec.requests.of(name) for name in self.resources]
                size += pods * np.array(requested, dtype=float)
            self._sizes[key] = size
        return self._sizes[key]

    def classify(
        self, batches: Sequence[PodBatch], eligible: Bools, one_by_one: bool = True
    ) -> tuple[PodClasses | None, list[PodBatch]]:
        """Classify batches. Returns batches that fit no offering separately.

        Batches of different zones may share a class if all zones have the same offerings and
        prices, or if there would be too many classes; a zone that is clearly more expensive stays
        separate. A small number of units is classified exactly if it is to be packed one by one.
        """
        analyzed, unplaceable = self._analyze(batches, eligible, frozenset())
        if not analyzed:
            return None, unplaceable
        pod_classes = _sorted(analyzed, _exactly)
        if one_by_one and _are_few(analyzed):
            return self._arrays(
                pod_classes, _exact_counters(pod_classes), True, few=True
            ), unplaceable
        pinned = {batch.zone for batch in batches if batch.zone is not None}
        merged_zones = frozenset(pinned) if self.supply.zones_alike else frozenset[int]()
        if merged_zones:
            analyzed, unplaceable = self._analyze(batches, eligible, merged_zones)
            pod_classes = _sorted(analyzed, _exactly)
        if len(pod_classes) > MAX_CLASSES and pinned and not merged_zones:
            merged_zones = frozenset(pinned - self._expensive_zones(analyzed, eligible))
            analyzed, _ = self._analyze([each.batch for each in analyzed], eligible, merged_zones)
            pod_classes = _sorted(analyzed, _exactly)
        if len(pod_classes) <= MAX_CLASSES:
            return self._arrays(
                pod_classes, _exact_counters(pod_classes), not merged_zones
            ), unplaceable
        majors = _majors(analyzed)
        pod_classes = _sorted(analyzed, _roughly(majors))
        return self._arrays(pod_classes, _rough_counters(pod_classes, majors), False), unplaceable

    def _analyze(
        self, batches: Sequence[PodBatch], eligible: Bools, merged_zones: frozenset[int]
    ) -> tuple[list[_Analyzed], list[PodBatch]]:
        """Analyze batches. Returns batches that fit no offering separately. Batches of
        `merged_zones` are treated as if they could use every zone."""
        analyzed, unplaceable = [], []
        known: dict[object, tuple[Bools, int] | None] = {}
        for batch in batches:
            key = (batch.zone, batch.shape)
            if key not in known:
                known[key] = self._eligible(batch, eligible, merged_zones)
            usable = known[key]
            if usable is None:
                unplaceable.append(batch)
            else:
                size = self.size(batch)
                analyzed.append(_Analyzed(batch, size, *usable, batch.counted, batch.caps))
        return analyzed, unplaceable

    def _eligible(
        self, batch: PodBatch, eligible: Bools, merged_zones: frozenset[int]
    ) -> tuple[Bools, int] | None:
        """The eligible offerings of a batch, and their number; None if it fits none of them."""
        allowed = self._allowed(batch, batch.zone, eligible)
        if not allowed.any():
            return None
        if batch.zone in merged_zones:
            allowed = self._allowed(batch, None, eligible)
        return allowed, self._place(allowed)

    def _expensive_zones(self, analyzed: Sequence[_Analyzed], eligible: Bools) -> set[int]:
        """The zones in which nodes of any one offering for all batches cost much more than in the
        cheapest zone."""
        total = sum((len(each.batch.units) * each.size for each in analyzed), np.zeros(()))
        with np.errstate(divide="ignore", invalid="ignore"):
            nodes = np.nan_to_num(total / self.capacity, posinf=np.inf).max(axis=1)
        costs = np.where(eligible, nodes * self.supply.prices, np.inf)
        zones = range(len(self.supply.zone_names))
        least = [float(costs[self.supply.zones == zone].min(initial=np.inf)) for zone in zones]
        return {zone for zone in zones if least[zone] > EXPENSIVE * min(least)}

    def offering_by_zone(
        self, pod_classes: PodClasses, offering: int, pods: Sequence[int]
    ) -> dict[int, int]:
        """For each zone that these classes may use: the same offering in that zone, or else the
        cheapest offering of its pool that is at least as large."""
        supply = self.supply
        feasible = pod_classes.allowed[list(pods)].all(axis=0)
        feasible &= supply.of_pool == supply.of_pool[offering]
        feasible &= (self.capacity >= self.capacity[offering]).all(axis=1)
        found = {}
        for zone in range(len(supply.zone_names)):
            twin = supply.twins.get((offering, zone))
            there = np.flatnonzero(feasible & (supply.zones == zone))
            if twin is not None and feasible[twin]:
                found[zone] = twin
            elif len(there):
                found[zone] = int(there[supply.prices[there].argmin()])
        return found

    def _arrays(
        self,
        pod_classes: list[list[_Analyzed]],
        counters: _Counters,
        exact: bool,
        few: bool = False,
    ) -> PodClasses:
        matches, caps, max_per_node, strict = counters
        allowed = np.array([pod_class[0].allowed for pod_class in pod_classes])
        index = self._distinct(allowed)
        problem = Problem(
            sizes=np.array([pod_class[0].size for pod_class in pod_classes]),
            counts=np.array(
                [sum(len(s.batch.units) for s in pod_class) for pod_class in pod_classes],
                dtype=float,
            ),
            matches=matches,
            caps=caps,
            max_per_node=max_per_node,
            strict=strict,
            capacity=self.capacity[index],
            prices=self.supply.prices[index],
            allowed=allowed[:, index],
        )
        batches = tuple(tuple(s.batch for s in pod_class) for pod_class in pod_classes)
        return PodClasses(problem, batches, index, allowed, exact, few)

    def _distinct(self, allowed: Bools) -> Ints:
        """The cheapest of the offerings with equal capacity that the same classes may use."""
        feasible = self.supply.by_price(np.flatnonzero(allowed.any(axis=0)))
        rows = list({row.tobytes(): row for row in allowed}.values())
        kinds = self._alike[feasible]
        for some in batched(rows, 64, strict=False):
            marks = np.zeros((len(feasible), 8), dtype=np.uint8)
            packed = np.packbits([row[feasible] for row in some], axis=0).T
            marks[:, : packed.shape[1]] = packed
            marked = np.unique(marks.view(np.uint64).ravel(), return_inverse=True)[1]
            kinds = kinds * len(feasible) + marked
            kinds = np.unique(kinds, return_inverse=True)[1]
        _, first = np.unique(kinds, return_index=True)
        return np.sort(feasible[first])


def _are_few(analyzed: Sequence[_Analyzed]) -> bool:
    """Whether units are packed one by one: a small number, or units without constraints: they may
    use every node that has room for them, all in one zone each or all in every zone."""
    if sum(len(each.batch.units) for each in analyzed) <= MAX_ONE_BY_ONE:
        return True
    zones = {each.batch.zone for each in analyzed}
    return (zones == {None} or None not in zones) and not any(each.caps for each in analyzed)


def _sorted(
    analyzed: Sequence[_Analyzed], key: Callable[[_Analyzed], object]
) -> list[list[_Analyzed]]:
    found: dict[object, list[_Analyzed]] = {}
    for each in analyzed:
        found.setdefault(key(each), []).append(each)
    return list(found.values())


def _exactly(analyzed: _Analyzed) -> object:
    counted, caps = frozenset(analyzed.counted.items()), frozenset(analyzed.caps.items())
    return analyzed.size.tobytes(), analyzed.place, counted, caps


def _roughly(majors: frozenset[int]) -> Callable[[_Analyzed], object]:
    """Classify batches only by the counters that need the most nodes."""

    def key(analyzed: _Analyzed) -> object:
        return (
            analyzed.size.tobytes(),
            analyzed.place,
            _own_caps(analyzed, majors),
            _caps_others(analyzed, majors),
        )

    return key


def _majors(analyzed: Sequence[_Analyzed]) -> frozenset[int]:
    """The counters that need nearly as many nodes as the most demanding one."""
    apart: dict[int, float] = {}
    for each in analyzed:
        for counter, adds in each.counted.items():
            if counter in each.caps:
                share = len(each.batch.units) * adds / max(each.caps[counter], 1)
                apart[counter] = apart.get(counter, 0.0) + share
    most = max(apart.values(), default=0)
    return frozenset(counter for counter, needed in apart.items() if needed >= MAJOR_SHARE * most)


def _own_caps(analyzed: _Analyzed, majors: frozenset[int]) -> frozenset[tuple[int, int, int]]:
    """The major counters that a batch both caps and adds to: counter, pods of a unit, cap."""
    return frozenset(
        (c, n, analyzed.caps[c])
        for c, n in analyzed.counted.items()
        if c in majors and c in analyzed.caps
    )


def _caps_others(analyzed: _Analyzed, majors: frozenset[int]) -> bool:
    """Whether a batch caps any other counter."""
    return any(c not in majors or c not in analyzed.counted for c in analyzed.caps)


def _exact_counters(pod_classes: Sequence[Sequence[_Analyzed]]) -> _Counters:
    """The counters that involve several classes (G x K, twice), and the maximum per node of each
    class."""
    involved: dict[int, set[int]] = {}
    capped = {counter for pod_class in pod_classes for counter in pod_class[0].caps}
    for number, pod_class in enumerate(pod_classes):
        for counter in (pod_class[0].counted.keys() | pod_class[0].caps.keys()) & capped:
            involved.setdefault(counter, set()).add(number)
    shared = sorted(counter for counter, by in involved.items() if len(by) > 1)
    column = {counter: k for k, counter in enumerate(shared)}
    matches = np.zeros((len(pod_classes), len(shared)))
    caps = np.full((len(pod_classes), len(shared)), np.inf)
    max_per_node = np.full(len(pod_classes), np.inf)
    for number, pod_class in enumerate(pod_classes):
        for counter, adds in pod_class[0].counted.items():
            if counter in column:
                matches[number, column[counter]] = adds
        for counter, most in pod_class[0].caps.items():
            if counter in column:
                caps[number, column[counter]] = most
            elif counter in pod_class[0].counted:
                max_per_node[number] = min(
                    max_per_node[number], most // pod_class[0].counted[counter]
                )
    return matches, caps, np.maximum(max_per_node, 1), np.ones(len(shared), dtype=bool)


def _rough_counters(
    pod_classes: Sequence[Sequence[_Analyzed]], majors: frozenset[int]
) -> _Counters:
    """The same for the major counters, as if pods with caps on other counters did not share
    nodes."""
    own: dict[int, list[tuple[int, int, int]]] = {}
    max_per_node = np.full(len(pod_classes), np.inf)
    for number, pod_class in enumerate(pod_classes):
        for counter, adds, most in _own_caps(pod_class[0], majors):
            own.setdefault(counter, []).append((number, adds, most))
        if _caps_others(pod_class[0], majors):
            own.setdefault(-1, []).append((number, 1, ASSUMED_PER_NODE))
    for counter, involved in list(own.items()):
        if len(involved) == 1:
            ((number, adds, most),) = own.pop(counter)
            max_per_node[number] = min(max_per_node[number], max(1, most // adds))
    matches = np.zeros((len(pod_classes), len(own)))
    caps = np.full((len(pod_classes), len(own)), np.inf)
    for column, involved in enumerate(own.values()):
        for number, adds, most in involved:
            matches[number, column], caps[number, column] = adds, most
    return matches, caps, max_per_node, np.array([counter >= 0 for counter in own], dtype=bool)
