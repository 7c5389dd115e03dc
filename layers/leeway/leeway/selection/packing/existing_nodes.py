"""The existing and planned nodes: their free resources and the pods on them."""

from collections.abc import Sequence

import numpy as np

from leeway.selection.labels import ALIASES, HOSTNAME, ZONE, normalised
from leeway.selection.packing.pod_groups import PodBatch, PodGroup, Units
from leeway.selection.packing.topology import Cap, CountedNodes, Counters, Rules
from leeway.selection.pods import ExistingNode, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Floats, Ints

NO_ZONE = ""


type Snapshot = tuple[Floats, Floats, Floats, dict[int, Floats], list[tuple[int, PodBatch]]]
"""What assignments change: `free`, `counts`, `limits`, `domain_limits` and `placed`."""


class ExistingNodes:
    """The existing nodes (N), their free resources and their pods.

    `free` (N x R): free resources. `counts` (N x C): pods of each counter. `limits` (N x C):
    maximum of each counter that the pods on the node allow. `domain_limits`: the same maximum by
    domain of a counter that is not by node (as numbered by `domains_of`). `limited`: the counters
    with a maximum on any node. `planned` (N): whether
    the node is not launched yet. `rules`: those of the pods that run on each node. `before`: the
    counts of these alone.
    """

    def __init__(
        self,
        nodes: Sequence[ExistingNode],
        resources: Sequence[str],
        counters: Counters,
        daemons: Sequence[PodSpec] = (),
        planned: int = 0,
    ) -> None:
        self.nodes = nodes
        self.planned = np.arange(len(nodes)) >= len(nodes) - planned
        self.any_planned = planned > 0
        self._resources = tuple(resources)
        self._counters = counters
        self.labels = [labels_of(node) for node in nodes]
        self.zones = [labels.get(ZONE, NO_ZONE) for labels in self.labels]
        names = sorted(set(self.zones))
        every = np.array(self.zones)
        self._zone_rows = names, [np.flatnonzero(every == name) for name in names]
        n = len(nodes)
        self.counts = np.zeros((n, len(counters)))
        self.limits = np.full((n, len(counters)), np.inf)
        self.limited: set[int] = set()
        self.domain_limits: dict[int, Floats] = {}
        self._fitting: dict[bytes, tuple[int, Floats]] = {}
        self._changed: list[int] = []  # the nodes whose free resources have changed, in order
        self._names: dict[str, list[str]] = {}
        self._admitted: dict[object, Bools] = {}
        self._counting: dict[CountedNodes, Bools] = {}
        self._domains: dict[str, Ints] = {}
        self.placed: list[tuple[int, PodBatch]] = []
        self.rules: list[tuple[Rules, ...]] = []
        self._allocatable = np.array([self.amounts(node.allocatable) for node in nodes])
        self._allocatable = self._allocatable.reshape(n, len(resources))
        self.free = self._allocatable.copy()
        for row, node in enumerate(nodes):
            if node.terminating:
                self.free[row] -= self.amounts(node.terminating)
            if daemons:
                self.free[row] -= self._pending_daemons(node, row, daemons)
        self._add_running()
        self.before = self.counts.copy()
        self._allocatable = np.maximum(self._allocatable, 1)

    def _add_running(self) -> None:
        """Add the pods that run on the nodes. Their requests and counters are summed at once."""
        counters, everywhere = self._counters, dict[int, Rules | None]()
        numbers: dict[int, int] = {}
        requests: list[Floats] = []
        rows, specs, counted = list[int](), list[int](), list[int]()
        width = len(counters)
        for row, node in enumerate(self.nodes):
            found = []
            for pod in node.present:
                known = id(pod)
                if known not in numbers:
                    numbers[known] = len(requests)
                    requests.append(self.amounts(pod.requests))
                    everywhere[known] = counters.rules_everywhere(pod)
                rules = everywhere[known] or counters.rules_on(pod, self.labels[row], node.taints)
                rows.append(row)
                specs.append(numbers[known])
                counted += [row * width + counter for counter in rules.counted]
                found.append(rules)
                if rules.caps_on_node or rules.caps_in_zone or rules.caps_by_label:
                    self._add_limits(row, rules, skews=False)
            self.rules.append(tuple(found))
        if rows:
            for resource, amounts in enumerate(np.array(requests).T):
                sums = np.bincount(rows, amounts[specs], len(self.nodes))
                self.free[:, resource] -= sums
        if counted:
            cells = np.bincount(counted, minlength=self.counts.size)
            self.counts += cells.reshape(self.counts.shape)

    def amounts(self, amounts: Resources) -> Floats:
        """Return amounts as an array: R."""
        return np.array([amounts.of(name) for name in self._resources], dtype=float)

    def _pending_daemons(self, node: ExistingNode, row: int, daemons: Sequence[PodSpec]) -> Floats:
        """The requests of DaemonSet pods that do not run on a node yet."""
        pending = np.zeros(len(self._resources))
        for daemon in daemons:
            # The DaemonSet controller ignores soft taints.
            if daemon.untolerated(node.taints) is None and self._matches(daemon, row):
                pending += self.amounts(daemon.requests)
        return np.maximum(pending - self.amounts(node.daemons), 0)

    def _matches(self, spec: PodSpec, row: int) -> bool:
        """Whether a node matches the requirements of a pod."""
        return not spec.terms or any(term.admits(self.labels[row]) for term in spec.terms)

    def _add_limits(self, row: int, rules: Rules, skews: bool) -> None:
        """Lower the limits of a node and of its domains by the anti-affinity of a pod on it.
        `skews`: also by its spread by hostname."""
        for cap in rules.caps_on_node:
            if skews or not cap.skew:
                self.limits[row, cap.counter] = min(cap.most, self.limits[row, cap.counter])
                self.limited.add(cap.counter)
        for caps in (rules.caps_in_zone, rules.caps_by_label):
            for cap in caps:
                if not cap.skew:
                    self._add_domain_limit(row, cap)

    def _add_domain_limit(self, row: int, cap: Cap) -> None:
        domains = self.domains_of(self._counters.topology(cap.counter))
        if domains[row] >= 0:
            if cap.counter not in self.domain_limits:
                self.domain_limits[cap.counter] = np.full(int(domains.max()) + 1, np.inf)
            limits = self.domain_limits[cap.counter]
            limits[domains[row]] = min(cap.most, limits[domains[row]])

    def counting(self, counted: CountedNodes) -> Bools:
        """Which nodes are counted: N."""
        if counted not in self._counting:
            self._counting[counted] = np.array(
                [counted.has(self.labels[row], node.taints) for row, node in enumerate(self.nodes)],
                dtype=bool,
            )
        return self._counting[counted]

    def domains_of(self, topology: str) -> Ints:
        """The domain of each node in a topology as a number, -1 without the label: N."""
        if topology not in self._domains:
            values = [labels.get(topology) for labels in self.labels]
            number = {value: i for i, value in enumerate(self.domain_names(topology))}
            found = [number[value] if value else -1 for value in values]
            self._domains[topology] = np.array(found, dtype=np.int64)
        return self._domains[topology]

    def domain_names(self, topology: str) -> list[str]:
        """The domains of the nodes in a topology, in the order of their numbers."""
        if topology not in self._names:
            found = {value for labels in self.labels if (value := labels.get(topology))}
            self._names[topology] = sorted(found)
        return self._names[topology]

    @property
    def running(self) -> frozenset[int]:
        """The counters that have pods on these nodes."""
        return frozenset(np.flatnonzero(self.counts.any(axis=0)).tolist())

    def admits(self, spec: PodSpec) -> Bools:
        """Which nodes match the node requirements and tolerations of a pod: N."""
        key = (spec.terms, spec.tolerations)
        if key not in self._admitted:
            self._admitted[key] = np.array(
                [
                    spec.untolerated(node.taints, soft=True) is None and self._matches(spec, row)
                    for row, node in enumerate(self.nodes)
                ],
                dtype=bool,
            )
        return self._admitted[key]

    def domains(self, spec: PodSpec) -> frozenset[str]:
        """The zones of these nodes that a pod's spreads by zone compare. A zone without room is
        compared too."""
        spreads = [spread for spread in spec.spreads if spread.pods.topology == ZONE]
        found: set[str] = set()
        for counted in {CountedNodes.of(spec, spread) for spread in spreads}:
            found |= self.zones_with(self.counting(counted))
        return frozenset(found - {NO_ZONE})

    def zones_with(self, chosen: Bools) -> set[str]:
        """The zones of some nodes (N), with `NO_ZONE` if any of them has no zone."""
        names, rows = self._zone_rows
        return {name for name, own in zip(names, rows, strict=True) if chosen[own].any()}

    def values(self, topology: str, counted: CountedNodes) -> frozenset[str]:
        """The values of a label on the counted nodes."""
        rows = np.flatnonzero(self.counting(counted))
        return frozenset(self.labels[row].get(topology, "") for row in rows) - {""}

    def room(self, batch: PodBatch, zone: str | None) -> Floats:
        """The number of units of a batch that fit on each node, apart from pods that are still
        pending: N."""
        counted, caps = batch.counted, batch.caps
        size = np.zeros(len(self._resources))
        eligible = np.ones(len(self.nodes), dtype=bool)
        for group, pods in batch.parts:
            size += pods * self.amounts(group.spec.requests)
            eligible &= self.admits(group.spec)
            for counter in group.rules.affinity_on_node:
                if not (batch.joined and counter in counted):
                    eligible &= self.counts[:, counter] > 0
        if zone is not None:
            eligible &= np.array([each == zone for each in self.zones], dtype=bool)
        room = self.fitting(size)
        for counter in (counted.keys() & self.limited) | caps.keys():
            most = np.minimum(self.limits[:, counter], caps.get(counter, np.inf))
            adds = counted.get(counter, 0)
            if adds:
                room = np.minimum(room, np.floor((most - self.counts[:, counter]) / adds))
            else:
                room = np.where(self.counts[:, counter] > caps[counter], 0, room)
        found: Floats = np.where(eligible, np.maximum(room, 0), 0)
        return found

    def fitting(self, size: Floats, rows: Ints | None = None) -> Floats:
        """How many times an amount (R) fits into the free resources of some nodes, or of each: N.
        Those of each node are known for an amount, but for the nodes that have changed since."""
        if rows is not None:
            return self._fits(size, rows)
        key = size.tobytes()
        seen, known = self._fitting.get(key, (-1, None))
        if known is None:
            known = self._fits(size, slice(None))
        elif changed := self._changed[seen:]:
            stale = np.array(changed)
            known[stale] = self._fits(size, stale)
        self._fitting[key] = len(self._changed), known
        return known.copy()

    def _fits(self, size: Floats, rows: Ints | slice) -> Floats:
        free = self.free[rows]
        found: Floats = np.full(len(free), np.inf)
        for resource in np.flatnonzero(size > 0).tolist():
            np.minimum(found, (free[:, resource] + 1e-6) / size[resource], out=found)
        return np.floor(found)

    def place(self, batch: PodBatch, zone: str | None) -> PodBatch:
        """Assign as many units as fit, to the fullest nodes first. Returns the batch of the units
        that remain."""
        if not self.nodes:
            return batch
        room = self.room(batch, zone)
        feasible = np.flatnonzero(room)
        start = 0
        for row in feasible[np.argsort(self.free_share(feasible), kind="stable")].tolist():
            if start >= len(batch.units):
                break
            units = batch.units[start : start + int(min(room[row], len(batch.units) - start))]
            start += len(units)
            rules = [group.rules for group, _ in batch.parts]
            self.put(row, batch, units, rules, skews=True)
        return batch.having(batch.units[start:])

    def free_share(self, rows: Ints) -> Floats:
        """The free shares of the nodes' resources, summed over resources."""
        free: Floats = (self.free[rows] / self._allocatable[rows]).sum(axis=1)
        return free

    def put(
        self,
        row: int,
        batch: PodBatch,
        units: Units,
        limiting: Sequence[Rules],
        skews: bool = False,
    ) -> None:
        """Assign units of a batch to a node. `limiting`: the rules of each part whose anti-affinity
        limits later pods. `skews`: also their spreads by hostname."""
        for (group, pods), rules in zip(batch.parts, limiting, strict=True):
            self.free[row] -= len(units) * pods * self.amounts(group.spec.requests)
            self._changed.append(row)
            self.counts[row, self.counted(group, row)] += len(units) * pods
            self._add_limits(row, rules, skews)
        self.placed.append((row, batch.having(units)))

    def counted(self, group: PodGroup, row: int) -> list[int]:
        """The counters that count a group's pods on a node."""
        conditional = group.rules.conditional
        return [
            counter
            for counter in group.rules.counted
            if counter not in conditional or self.counting(self._counters.nodes_of(counter))[row]
        ]

    def snapshot(self) -> Snapshot:
        """Return a copy of the state for `restore`."""
        domain_limits = {counter: limits.copy() for counter, limits in self.domain_limits.items()}
        arrays = self.free.copy(), self.counts.copy(), self.limits.copy()
        return *arrays, domain_limits, [*self.placed]

    def restore(self, snapshot: Snapshot) -> None:
        """Undo all assignments since the snapshot, which may be restored again."""
        self._fitting = {}
        self.free, self.counts, self.limits, self.domain_limits, self.placed = snapshot
        self.free, self.counts, self.limits, self.domain_limits, self.placed = self.snapshot()


def labels_of(node: ExistingNode) -> dict[str, str]:
    """Return the labels of a node by their current names, and its hostname."""
    if ALIASES.keys().isdisjoint(node.labels):
        return {HOSTNAME: node.name, **node.labels}
    labels = {normalised(key): value for key, value in node.labels.items()}
    return {HOSTNAME: node.name, **labels}
