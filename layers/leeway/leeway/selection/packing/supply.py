"""The supply of packing as arrays: the types of every pool in every zone and capacity type.

A pool with several possible values of its own labels is split into one variant per value, because a
node has one value of a label. Values that no pod mentions share one variant.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import isnan

import numpy as np

from leeway.selection.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    JOINED,
    NODEPOOL,
    RESERVED,
    WELL_KNOWN,
    ZONE,
    ZONE_ID,
)
from leeway.selection.offers.catalog import (
    Catalog,
    InstanceType,
    Offering,
    TypeTable,
    Unavailable,
    bits,
)
from leeway.selection.packing.topology import ports_conflict
from leeway.selection.pods import ExistingNode, NodePool, PodSpec
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.solver.problem import Bools, Floats, Ints

MAX_VARIANTS = 100
"""Maximum number of variants of one pool. With more, the pool is not split."""


def variants(
    pools: Sequence[NodePool], specs: Iterable[PodSpec], nodes: Sequence[ExistingNode] = ()
) -> tuple[NodePool, ...]:
    """Return the pools, each in as many variants as these pods, and the pods of these nodes, can
    distinguish, in the given order."""
    own = {key for pool in pools for key in pool.requirements if key not in WELL_KNOWN}
    several = {key for key in own if any(_has_several(pool, key) for pool in pools)}
    if not several:
        return tuple(pools)
    mentioned = _mentioned_values(several, pools, specs, nodes)
    return tuple(variant for pool in pools for variant in _variants(pool, mentioned))


def _has_several(pool: NodePool, key: str) -> bool:
    requirement = pool.requirements.get(key)
    return requirement is not None and (requirement.complement or len(requirement.values) > 1)


def _mentioned_values(
    keys: Collection[str],
    pools: Sequence[NodePool],
    specs: Iterable[PodSpec],
    nodes: Sequence[ExistingNode],
) -> Mapping[str, frozenset[str]]:
    """The values of some labels of the pools that pods mention, by label. A topology mentions all
    values that the pools list, and those of nodes."""
    found: dict[str, set[str]] = {}
    running = {id(pod): pod for node in nodes for pod in node.present}.values()
    topologies = {term.topology for pod in running for term in pod.pod_anti_affinity}
    for spec in specs:
        topologies.update(_topologies(spec))
        for term in (*spec.terms, *(w.preference for w in spec.preferred_terms)):
            for key, requirement in term.items():
                if key in keys:
                    found.setdefault(key, set()).update(requirement.values)
    for key in topologies.intersection(keys):
        values = found.setdefault(key, set())
        for requirement in (pool.requirements.of_key(key) for pool in pools):
            values.update(() if requirement.complement else requirement.values)
        values.update(node.labels[key] for node in nodes if node.labels.get(key))
    return {key: frozenset(values) for key, values in found.items()}


def _topologies(spec: PodSpec) -> Iterator[str]:
    """The topologies of all terms of a pod, required or preferred."""
    yield from (spread.pods.topology for spread in spec.spreads)
    yield from (term.topology for term in (*spec.pod_affinity, *spec.pod_anti_affinity))
    preferred = (*spec.preferred_pod_affinity, *spec.preferred_pod_anti_affinity)
    yield from (each.preference.topology for each in preferred)


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


UNKNOWN_PRICE = 1e5
"""Price in USD per hour of an offering without a known price, so that it is the last choice."""

_ANY_NODE = Requirements()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One offering of one type for one pool."""

    pool: NodePool
    type: InstanceType
    offering: Offering

    @property
    def price(self) -> float:
        """USD per hour, as packing counts it. Reserved capacity costs nothing more."""
        if self.offering.price is None:
            return 0.0 if self.offering.capacity_type == RESERVED else UNKNOWN_PRICE
        return self.offering.price

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its nodes, without the hostname."""
        single = {
            key: next(iter(requirement.values))
            for key, requirement in self.pool.requirements.items()
            if not requirement.complement and len(requirement.values) == 1
        }
        reservation = self.offering.reservation
        return {
            **single,
            **self.type.labels,
            **self.pool.labels,
            **(reservation.labels if reservation else {}),
            **JOINED,
            ZONE: self.offering.zone,
            ZONE_ID: self.offering.zone_id,
            CAPACITY_TYPE: self.offering.capacity_type,
            NODEPOOL: self.pool.name,
        }


class Supply:
    """The offerings (O) of some pools, in a fixed order. Build it once, pack many times. Static
    pools have none: pods launch none of their nodes."""

    def __init__(
        self,
        pools: Iterable[NodePool],
        catalog: Catalog,
        unavailable: Iterable[Unavailable] = (),
        daemons: Iterable[PodSpec] = (),
    ) -> None:
        self.pools = tuple(pools)
        self.daemons = tuple(daemons)
        self._catalog = catalog
        self._unavailable = tuple(unavailable)
        self.tables = [
            catalog.for_node_class(pool.node_class, self._unavailable, pool.reservations)
            for pool in self.pools
        ]
        self.candidates: list[Candidate] = []
        rows: list[tuple[int, int, int]] = []
        for number, (pool, table) in enumerate(zip(self.pools, self.tables, strict=True)):
            if pool.replicas is not None:
                continue
            for index, market, candidate in _candidates(pool, table):
                rows.append((number, index, market))
                self.candidates.append(candidate)
        self._rows = np.array(rows, dtype=np.int64).reshape(-1, 3)
        self._allowed: dict[object, Bools] = {}
        self._values: dict[str, list[str | None]] = {}
        self._capacity: dict[tuple[str, ...], Floats] = {}
        self._varied: Supply | None = None
        self._alike: dict[tuple[str, ...], Ints] = {}

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def arrays(self) -> int:
        """How many arrays it has made for pods."""
        own = len(self._allowed) + len(self._values) + len(self._capacity)
        return own + (self._varied.arrays if self._varied else 0)

    def with_variants_for(
        self, specs: Iterable[PodSpec], nodes: Sequence[ExistingNode] = ()
    ) -> "Supply":
        """Return the supply with one variant of a pool for each value of its own labels that these
        pods, or those of the nodes, distinguish. Without such values, it is this supply."""
        pools = variants(self.pools, [*specs, *self.daemons], nodes)
        if len(pools) == len(self.pools):
            return self
        if self._varied is None or self._varied.pools != pools:
            self._varied = Supply(pools, self._catalog, self._unavailable, self.daemons)
        return self._varied

    @cached_property
    def prices(self) -> Floats:
        """USD per hour: O."""
        return np.array([candidate.price for candidate in self.candidates], dtype=float)

    @cached_property
    def _in_order(self) -> Ints:
        """The offerings, cheapest first: O."""
        return np.argsort(self.prices, kind="stable")

    def by_price(self, offerings: Ints) -> Ints:
        """Return offerings (positions in ascending order), the cheapest first."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[offerings] = True
        return self._in_order[chosen[self._in_order]]

    @cached_property
    def zone_names(self) -> tuple[str, ...]:
        """The zones that have offerings."""
        return tuple(sorted({c.offering.zone for c in self.candidates}))

    @cached_property
    def zones(self) -> Ints:
        """Each offering's zone, as a position in `zone_names`: O."""
        position = {zone: i for i, zone in enumerate(self.zone_names)}
        return np.array([position[c.offering.zone] for c in self.candidates], dtype=np.int64)

    @cached_property
    def exotic(self) -> Bools:
        """Whether an offering is used only on request (bare metal, accelerators): O."""
        return np.array([c.type.exotic for c in self.candidates], dtype=bool)

    @cached_property
    def zones_alike(self) -> bool:
        """Whether all zones have the same offerings at the same prices."""
        offers = [
            (int(pool), int(type_), c.offering.capacity_type, c.price, int(zone))
            for (pool, type_, _), c, zone in zip(
                self._rows, self.candidates, self.zones, strict=True
            )
        ]
        by_zone = [
            {offer[:4] for offer in offers if offer[4] == zone}
            for zone in range(len(self.zone_names))
        ]
        return all(offered == by_zone[0] for offered in by_zone)

    @cached_property
    def twins(self) -> dict[tuple[int, int], int]:
        """Maps an offering and a zone (positions) to the same offering in that zone. A reservation
        is in one zone."""
        found: dict[tuple[int, int, object, int], int] = {}
        keys = []
        for i, ((pool, type_, _), c) in enumerate(zip(self._rows, self.candidates, strict=True)):
            key = (int(pool), int(type_), c.offering.reservation or c.offering.capacity_type)
            keys.append(key)
            found[(*key, int(self.zones[i]))] = i
        return {
            (i, zone): found[(*key, zone)]
            for i, key in enumerate(keys)
            for zone in range(len(self.zone_names))
            if (*key, zone) in found
        }

    @cached_property
    def type_names(self) -> list[str]:
        """The names of the types, each once."""
        return list(dict.fromkeys(c.type.name for c in self.candidates))

    @cached_property
    def of_type(self) -> Ints:
        """Each offering's type, as a position in `type_names`: O."""
        position = {name: i for i, name in enumerate(self.type_names)}
        return np.array([position[c.type.name] for c in self.candidates], dtype=np.int64)

    @cached_property
    def capacity_types(self) -> Ints:
        """Each offering's capacity type, as a position in `CAPACITY_TYPES`: O."""
        position = {name: i for i, name in enumerate(CAPACITY_TYPES)}
        return np.array(
            [position[c.offering.capacity_type] for c in self.candidates], dtype=np.int64
        )

    @cached_property
    def reserved(self) -> Bools:
        """Whether an offering is in a capacity reservation: O."""
        found: Bools = self.capacity_types == CAPACITY_TYPES.index(RESERVED)
        return found

    @cached_property
    def of_reservation(self) -> dict[str, list[int]]:
        """The positions of the offerings in each capacity reservation, by its id."""
        found: dict[str, list[int]] = {}
        for position in np.flatnonzero(self.reserved).tolist():
            reservation = self.candidates[position].offering.reservation
            if reservation is not None:
                found.setdefault(reservation.id, []).append(position)
        return found

    @property
    def of_pool(self) -> Ints:
        """Each offering's pool, as a position in `pools`: O."""
        return self._rows[:, 0]

    def labels(self, offering: int) -> dict[str, str]:
        """Return the labels of the nodes of an offering (a position), without the hostname."""
        return self.candidates[offering].labels

    def values(self, key: str) -> list[str | None]:
        """Return the value of a label on the nodes of each offering: O."""
        if key not in self._values:
            self._values[key] = [self.labels(at).get(key) for at in range(len(self))]
        return self._values[key]

    def capacity(self, resources: Sequence[str]) -> Floats:
        """Return what each offers to pods besides its daemons: O x R."""
        key = tuple(resources)
        if key not in self._capacity:
            amounts = {
                id(c.type): [c.type.allocatable.of(name) for name in key] for c in self.candidates
            }
            held = np.array([amounts[id(c.type)] for c in self.candidates], dtype=float)
            held = held.reshape(len(self.candidates), len(key))
            for daemon in self.daemons:
                combined = np.array([daemon.requests.of(name) for name in key], dtype=float)
                held -= self._runs_daemon(daemon)[:, None] * combined
            self._capacity[key] = np.maximum(held, 0)
        return self._capacity[key]

    def alike(self, resources: Sequence[str]) -> Ints:
        """Return a number for each offering that is equal for equal capacity: O."""
        key = tuple(resources)
        if key not in self._alike:
            self._alike[key] = np.unique(self.capacity(key), axis=0, return_inverse=True)[1].ravel()
        return self._alike[key]

    def limited(self, resources: Sequence[str]) -> Floats:
        """Return the amount that each offering adds towards the limits of its pool: O x R. "nodes"
        adds 1."""
        amounts = [
            [1 if name == "nodes" else c.type.capacity.of(name) for name in resources]
            for c in self.candidates
        ]
        return np.array(amounts, dtype=float).reshape(len(self.candidates), len(resources))

    def allowed(self, spec: PodSpec) -> Bools:
        """Return the offerings that match a pod's node requirements, tolerations and host ports:
        O."""
        key = (spec.terms, spec.tolerations, spec.ports)
        if key not in self._allowed:
            found = self._admitting(spec, daemon=False)
            for daemon in self.conflicting_daemons(spec):
                found &= ~self._runs_daemon(daemon)
            found.setflags(write=False)
            self._allowed[key] = found
        return self._allowed[key]

    def conflicting_daemons(self, spec: PodSpec) -> Iterator[PodSpec]:
        """Return the DaemonSets that use a host port which the pod requests."""
        for daemon in self.daemons:
            if any(ports_conflict(one, other) for one in spec.ports for other in daemon.ports):
                yield daemon

    def daemons_on(self, offering: int) -> tuple[PodSpec, ...]:
        """Return the DaemonSet pods on nodes of an offering (a position)."""
        return tuple(each for each in self.daemons if self._runs_daemon(each)[offering])

    def _runs_daemon(self, daemon: PodSpec) -> Bools:
        """The offerings on whose nodes a DaemonSet runs; its controller ignores soft taints: O."""
        key = (daemon.terms, daemon.tolerations)
        if key not in self._allowed:
            self._allowed[key] = self._admitting(daemon, daemon=True)
        return self._allowed[key]

    def _admitting(self, spec: PodSpec, daemon: bool) -> Bools:
        found = np.zeros(len(self.candidates), dtype=bool)
        for number, pool in enumerate(self.pools):
            if spec.untolerated(pool.taints, soft=not daemon) is None:
                for term in spec.terms or (_ANY_NODE,):
                    met = self._matching(number, term)
                    found |= met if daemon else met & ~self._excluded_fractional_gpus(number, term)
        return found

    def _excluded_fractional_gpus(self, number: int, term: Requirements) -> Bools:
        """The types that only a pod or pool that names them may use. DaemonSets run on every
        node."""
        table = self.tables[number]
        excluded = np.zeros(len(table), dtype=bool)
        combined = self.pools[number].requirements.intersection(term)
        excluded[list(bits(table.excluded_fractional_gpus(combined)))] = True
        found: Bools = excluded[self._rows[:, 1]]
        return found

    def _matching(self, number: int, term: Requirements) -> Bools:
        pool, table = self.pools[number], self.tables[number]
        if not pool.requirements.compatible(term):
            return np.zeros(len(self.candidates), dtype=bool)
        described = np.zeros(len(table), dtype=bool)
        described[list(bits(table.matching_labels(term)))] = True
        # Another pool may have more markets: each reservation that it selects is one.
        matches = np.zeros(max(len(each.markets) for each in self.tables), dtype=bool)
        matches[: len(table.markets)] = list(table.market_matches(term))
        pools, types, markets = self._rows.T
        found: Bools = described[types] & matches[markets] & (pools == number)
        return found


def _candidates(pool: NodePool, table: TypeTable) -> Iterator[tuple[int, int, Candidate]]:
    """Each offering of a pool, with the positions of its type and of its market."""
    types = table.matching(pool.requirements)
    wanted = {id(market) for market, _ in table.markets_of(pool.requirements)}
    for position, (market, available) in enumerate(table.markets):
        if id(market) not in wanted:
            continue
        for index in bits(types & available):
            price = market.prices[index]
            zone_id = table.catalog.zone_ids.get(market.zone, "")
            known = None if isnan(price) else price
            offering = Offering(
                market.zone,
                market.capacity_type,
                known,
                zone_id=zone_id,
                reservation=market.reservation,
            )
            yield index, position, Candidate(pool, table.type(index), offering)
