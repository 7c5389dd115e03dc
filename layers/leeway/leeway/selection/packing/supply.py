"""The supply of packing as arrays: the types of every pool in every zone and capacity type."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan

import numpy as np

from leeway.selection.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    JOINED,
    NODEPOOL,
    RESERVED,
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
from leeway.selection.packing.pod_groups import tolerating_soft_taints
from leeway.selection.packing.topology import ports_conflict
from leeway.selection.packing.variants import missing, undecided, variants
from leeway.selection.pods import ExistingNode, NodePool, PodSpec
from leeway.selection.requirements import Requirements
from leeway.selection.solver.problem import Bools, Floats, Ints

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
        self._undecided = [undecided(pool) for pool in self.pools]
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
        counts = np.bincount(self.of_pool, minlength=len(self.pools)).tolist()
        pools = variants(self.pools, specs, nodes, self.daemons, self.pools_for, counts)
        if len(pools) == len(self.pools):
            return self
        if self._varied is None or self._varied.pools != pools:
            self._varied = None  # so that the memory of the one before is free
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

    def allowed(self, spec: PodSpec, *, any_labels: bool = False) -> Bools:
        """Return the offerings that match a pod's node requirements, tolerations and host ports: O.

        A node does not have a label of which its pool allows several values. `any_labels`: count it
        as if it had the value that the pod requires, as a node of a variant of the pool may.
        """
        any_labels = any_labels and any(self._undecided)
        key = (spec.terms, spec.tolerations, spec.ports, any_labels)
        if key not in self._allowed:
            found = self._admitting(spec, daemon=False, any_labels=any_labels)
            for daemon in self.conflicting_daemons(spec):
                found &= ~self._runs_daemon(daemon)
            found.setflags(write=False)
            self._allowed[key] = found
        return self._allowed[key]

    def pools_for(self, spec: PodSpec) -> Sequence[int]:
        """Return the pools (positions) that have an offering for one pod, apart from the values of
        labels of which they allow several."""
        names = sorted(spec.requests)
        fitting = self.allowed(tolerating_soft_taints(spec), any_labels=True).copy()
        for name, held in zip(names, self.capacity(names).T, strict=True):
            fitting &= held >= spec.requests.of(name)
        return np.flatnonzero(np.bincount(self.of_pool[fitting])).tolist()

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
            self._allowed[key] = self._admitting(daemon, daemon=True, any_labels=False)
        return self._allowed[key]

    def _admitting(self, spec: PodSpec, daemon: bool, any_labels: bool) -> Bools:
        found = np.zeros(len(self.candidates), dtype=bool)
        for number, pool in enumerate(self.pools):
            if spec.untolerated(pool.taints, soft=not daemon) is None:
                for term in spec.terms or (_ANY_NODE,):
                    if any_labels or not missing(term, self._undecided[number]):
                        met = self._matching(number, term)
                        found |= (
                            met if daemon else met & ~self._excluded_fractional_gpus(number, term)
                        )
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
