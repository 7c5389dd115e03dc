"""Simulates kube-scheduler: binds pods one after another with its filters.

It shares no code with the decisions of packing. If pools may launch, a simple autoscaler adds the
cheapest node on which the filters admit a pending pod. Every offered zone is a domain of spreads
for it, and so is a node that can be launched, as in Karpenter. Sources: the plugins of
kube-scheduler NodeResourcesFit, NodePorts, NodeAffinity, TaintToleration, PodTopologySpread and
InterPodAffinity. Volumes that a node attaches are one of its resources here.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, NODEPOOL, ZONE, ZONE_ID
from leeway.selection.packing.supply import Candidate
from leeway.selection.pods import ExistingNode, HostPort, Pod, PodSpec, PodTerm, Spread, Taint
from leeway.selection.resources import Resources


@dataclass
class Host:
    """A node with its bound pods. `launched`: an autoscaler added it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: Counter[str]
    allocatable: Resources
    pods: list[PodSpec] = field(default_factory=list)
    launched: Candidate | None = None

    def bind(self, spec: PodSpec) -> None:
        """Bind a pod."""
        self.pods.append(spec)
        self.free.subtract(spec.requests)

    @property
    def load(self) -> float:
        """Return the requested share of CPU and memory, as in LeastAllocated of kube-scheduler."""
        parts = [
            1 - self.free[name] / whole
            for name, whole in self.allocatable.items()
            if name in {"cpu", "memory"} and whole
        ]
        return sum(parts) / max(len(parts), 1)


@dataclass(frozen=True)
class Bound:
    """The result of one order: the node of each bound pod."""

    nodes: Mapping[str, str]
    launched: tuple[Candidate, ...]

    @property
    def on_existing(self) -> int:
        """The pods on existing nodes."""
        return sum(not name.startswith("launched-") for name in self.nodes.values())


def schedule(
    pods: Sequence[Pod],
    nodes: Sequence[ExistingNode],
    candidates: Sequence[Candidate] = (),
    seed: int | None = None,
) -> Bound:
    """Bind pods, higher priorities first, in a random order by seed (None: the given order).

    A pod that fits nowhere stays pending and is tried again after others are bound.
    """
    dice = random.Random(seed)
    order = list(pods)
    if seed is not None:
        dice.shuffle(order)
    order.sort(key=lambda pod: -pod.spec.priority)
    hosts = [host_of(node) for node in nodes]
    cheapest = sorted(candidates, key=lambda each: each.price)
    bound: dict[str, str] = {}
    order = _bind_all(order, hosts, bound, dice)
    hosts += _still_to_come(cheapest)
    while True:
        added = next(filter(None, (_launched(pod, hosts, cheapest) for pod in order)), None)
        if added is None:
            launched = tuple(host.launched for host in hosts if host.launched)
            return Bound(bound, launched)
        hosts.append(added)
        order = _bind_all(order, hosts, bound, dice)


def _still_to_come(candidates: Sequence[Candidate]) -> list[Host]:
    """Return one empty node of each zone, capacity type, architecture and pool."""
    found = {
        (
            each.offering.zone,
            each.offering.capacity_type,
            each.type.labels.get(ARCH),
            frozenset(each.pool.labels.items()),
        ): each
        for each in candidates
    }
    hosts = [host_of_candidate(each, f"to-come-{at}") for at, each in enumerate(found.values())]
    return [replace(host, free=Counter(), launched=None) for host in hosts]


def reaches_worst(
    placed: int,
    pods: Sequence[Pod],
    nodes: Sequence[ExistingNode],
    candidates: Sequence[Candidate] = (),
    orders: int = 25,
) -> bool:
    """Return whether `placed` is at least the number of placed pods of the worst of some orders.
    Orders are tried until one places no more."""
    return any(
        placed >= len(schedule(pods, nodes, candidates, seed).nodes)
        for seed in (None, *range(1, orders))
    )


def _bind_all(
    waiting: list[Pod], hosts: Sequence[Host], bound: dict[str, str], dice: random.Random
) -> list[Pod]:
    """Bind all pods that fit; return the others."""
    while True:
        left = []
        for pod in waiting:
            able = [host for host in hosts if admits(host, pod.spec, hosts)]
            if able:
                host = min(able, key=lambda each: (each.load, dice.random()))
                host.bind(pod.spec)
                bound[pod.name] = host.name
            else:
                left.append(pod)
        if len(left) == len(waiting):
            return left
        waiting = left


HELPFUL = 10
"""The last orders of `bindable`: the pod that lets the most others be bound comes first."""


def bindable(
    existing: Sequence[tuple[Host, Sequence[Pod]]],
    launched: Sequence[tuple[Host, Sequence[Pod]]],
    orders: int = 25 + HELPFUL,
) -> list[str]:
    """Return the pods of a plan that cannot be bound to their planned nodes, in the best of some
    orders. Existing nodes are used first, while new nodes are not there yet."""
    best: list[str] | None = None
    for seed in range(orders):
        hosts = [replace(host, pods=list(host.pods)) for host, _ in (*existing, *launched)]
        here = [(pod, at) for at, (_, pods) in enumerate(existing) for pod in pods]
        helpful = seed >= orders - HELPFUL
        left = _bind_there(here, hosts, hosts[: len(existing)], seed, helpful)
        there = [(p, len(existing) + at) for at, (_, pods) in enumerate(launched) for p in pods]
        # An empty node like each new one can join at any time.
        empty = [
            replace(host, labels={**host.labels, HOSTNAME: f"empty-{host.name}"}, pods=[])
            for host in hosts[len(existing) :]
        ]
        seen = [*hosts, *empty]
        missed = [pod.name for pod, _ in _bind_there([*left, *there], hosts, seen, seed, helpful)]
        if best is None or len(missed) < len(best):
            best = missed
        if not best:
            break
    return best or []


type _Planned = tuple[Pod, int]
"""A pod and the position of its node."""


def _bind_there(
    waiting: list[_Planned],
    hosts: Sequence[Host],
    seen: Sequence[Host],
    seed: int,
    helpful: bool = False,
) -> list[_Planned]:
    """Bind pods to given hosts if topology permits; return the others.

    Seed 0: pods with spreads first, into the emptiest domains. Odd seeds: the pod that excludes the
    fewest others first, with every second of them pods with spreads first. Other seeds: a random
    order. `helpful`: the pod first after which the most others can be bound, also those that
    wait for it.
    """
    dice = random.Random(seed)
    while able := _able(waiting, hosts, seen):
        if helpful:
            chosen = min(
                able,
                key=lambda each: (
                    _harm(each, waiting, hosts, seen),
                    not each[0].spec.spreads,
                    dice.random(),
                ),
            )
        elif seed == 0:
            chosen = min(able, key=lambda each: _crowd(each[0].spec, hosts[each[1]], seen))
        elif seed % 4 == 1:
            chosen = min(
                able,
                key=lambda each: (
                    not each[0].spec.spreads,
                    _harm(each, able, hosts, seen),
                    dice.random(),
                ),
            )
        elif seed % 2:
            chosen = min(able, key=lambda each: (_harm(each, able, hosts, seen), dice.random()))
        else:
            chosen = dice.choice(able)
        pod, at = chosen
        hosts[at].pods.append(pod.spec)
        waiting = [each for each in waiting if each[0].name != pod.name]
    return waiting


def _able(
    waiting: Iterable[_Planned], hosts: Sequence[Host], seen: Sequence[Host]
) -> list[_Planned]:
    return [
        (pod, at)
        for pod, at in waiting
        if _spread_out(pod.spec, hosts[at], seen) and _near(pod.spec, hosts[at], seen)
    ]


def _harm(
    planned: _Planned, able: Sequence[_Planned], hosts: Sequence[Host], seen: Sequence[Host]
) -> int:
    """Return how many pods could not be bound after this one."""
    pod, at = planned
    hosts[at].pods.append(pod.spec)
    left = len(_able(able, hosts, seen))
    hosts[at].pods.pop()
    return -left


def _crowd(spec: PodSpec, host: Host, hosts: Sequence[Host]) -> tuple[bool, int]:
    """Return how many pods the spreads of a pod find in its domain; pods without spreads come
    last."""
    crowd = sum(
        sum(
            _shared(spread.pods, host, each) * sum(map(spread.pods.selects, each.pods))
            for each in hosts
        )
        for spread in spec.spreads
        if spread.required
    )
    return not any(spread.required for spread in spec.spreads), crowd


def _spread_out(spec: PodSpec, host: Host, hosts: Sequence[Host]) -> bool:
    return all(_even(spread, spec, host, hosts) for spread in spec.spreads if spread.required)


def _launched(pod: Pod, hosts: Sequence[Host], cheapest: Sequence[Candidate]) -> Host | None:
    """Return the cheapest new node that would admit the pod."""
    for candidate in cheapest:
        host = host_of_candidate(candidate, f"launched-{len(hosts)}")
        if not within_limits(candidate, hosts):
            continue
        if admits(host, pod.spec, [*hosts, host]):
            return host
    return None


def within_limits(candidate: Candidate, hosts: Sequence[Host]) -> bool:
    """Return whether the candidate's pool may launch one more node."""
    own = [h.launched for h in hosts if h.launched and h.launched.pool.name == candidate.pool.name]
    return all(
        sum(1 if name == "nodes" else each.type.capacity.of(name) for each in (*own, candidate))
        <= limit
        for name, limit in (candidate.pool.limits or {}).items()
    )


def host_of(node: ExistingNode) -> Host:
    """Return the host of an existing node."""
    labels = {HOSTNAME: node.name, **node.labels}
    free = Counter(dict(node.allocatable))
    free.subtract(node.terminating)
    host = Host(node.name, labels, node.taints, free, node.allocatable)
    for spec in node.present:
        host.bind(spec)
    return host


def host_of_candidate(candidate: Candidate, name: str) -> Host:
    """Return the host of a node that an autoscaler would add."""
    labels = {
        **candidate.type.labels,
        **candidate.pool.labels,
        ZONE: candidate.offering.zone,
        ZONE_ID: candidate.offering.zone_id,
        CAPACITY_TYPE: candidate.offering.capacity_type,
        NODEPOOL: candidate.pool.name,
        HOSTNAME: name,
    }
    allocatable = candidate.type.allocatable
    free = Counter(dict(allocatable))
    return Host(name, labels, candidate.pool.taints, free, allocatable, launched=candidate)


def admits(host: Host, spec: PodSpec, hosts: Sequence[Host]) -> bool:
    """Return whether the filters of kube-scheduler admit a pod on a node.

    As in Karpenter, no node is launched for an anti-affinity by a label that it lacks.
    """
    apart = {term.topology for term in spec.pod_anti_affinity}
    if host.launched is not None and not apart <= host.labels.keys():
        return False
    return (
        not any(_repelling(spec, host.taints))
        and _selected(spec.terms, spec, host)
        and all(n <= host.free[name] for name, n in spec.requests.items() if n > 0)
        and not _port_taken(spec, host)
        and _spread_out(spec, host, hosts)
        and _near(spec, host, hosts)
        and _apart(spec, host, hosts)
    )


def _repelling(spec: PodSpec, taints: Iterable[Taint]) -> Iterator[Taint]:
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(
            each.tolerates(taint) for each in spec.tolerations
        ):
            yield taint


def _selected(terms: Iterable[object], spec: PodSpec, host: Host) -> bool:
    found = list(spec.terms if terms is spec.terms else spec.own_terms)
    return not found or any(
        all(need.admits(host.labels.get(key)) for key, need in term.items()) for term in found
    )


def _port_taken(spec: PodSpec, host: Host) -> bool:
    def clash(one: HostPort, other: HostPort) -> bool:
        same = (one.port, one.protocol) == (other.port, other.protocol)
        return same and (one.address == other.address or "" in {one.address, other.address})

    return any(clash(a, b) for pod in host.pods for a in pod.ports for b in spec.ports)


def _even(spread: Spread, spec: PodSpec, host: Host, hosts: Sequence[Host]) -> bool:
    key = spread.pods.topology
    if key not in host.labels:
        return False
    keys = {each.pods.topology for each in spec.spreads if each.required}
    counts: Counter[str] = Counter()
    for each in hosts:
        if not keys <= each.labels.keys():
            continue
        if spread.honors_affinity and not _selected(spec.own_terms, spec, each):
            continue
        if spread.honors_taints and any(_repelling(spec, each.taints)):
            continue
        counts[each.labels[key]] += sum(map(spread.pods.selects, each.pods))
    least = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
    there = counts.get(host.labels[key], 0)
    return there + spread.pods.selects(spec) - least <= spread.max_skew


def _near(spec: PodSpec, host: Host, hosts: Sequence[Host]) -> bool:
    if not spec.pod_affinity:
        return True
    if any(term.topology not in host.labels for term in spec.pod_affinity):
        return False
    # Only pods that all terms select count for each of them.
    found = [
        each
        for each in hosts
        for pod in each.pods
        if all(term.selects(pod) for term in spec.pod_affinity)
    ]
    if all(any(_shared(term, host, each) for each in found) for term in spec.pod_affinity):
        return True
    nowhere = not any(term.topology in each.labels for term in spec.pod_affinity for each in found)
    return nowhere and all(term.selects(spec) for term in spec.pod_affinity)


def _apart(spec: PodSpec, host: Host, hosts: Sequence[Host]) -> bool:
    for each in hosts:
        for pod in each.pods:
            if any(_shared(t, host, each) and t.selects(pod) for t in spec.pod_anti_affinity):
                return False
            if any(_shared(t, host, each) and t.selects(spec) for t in pod.pod_anti_affinity):
                return False
    return True


def _shared(term: PodTerm, one: Host, other: Host) -> bool:
    value = one.labels.get(term.topology)
    return value is not None and value == other.labels.get(term.topology)
