"""Checks a plan pod by pod. It shares no code with the decisions of packing.

It checks every rule on the whole plan, which holds in any order of pods. Spreads and affinities
that fail this check must hold in at least one order: each pod is admitted by the pods that are
bound before it, on existing nodes before new ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leeway.selection.labels import CAPACITY_TYPE, HOSTNAME, NODEPOOL, ZONE, ZONE_ID
from leeway.selection.packing.plan import Plan
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, PodTerm, Spread, Taint
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources

from bench import scheduler_simulation

NEW = "new-"
"""The prefix of the names of new nodes."""


@dataclass(frozen=True)
class Host:
    """A node with its new pods and the pods that it had."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    new: tuple[Pod, ...]
    old: tuple[PodSpec, ...] = ()

    @property
    def all(self) -> Iterator[PodSpec]:
        """All pods of the node."""
        yield from self.old
        yield from (pod.spec for pod in self.new)


def violations(
    plan: Plan,
    pods: Sequence[Pod],
    pools: Sequence[NodePool],
    nodes: Sequence[ExistingNode] = (),
    daemons: Sequence[PodSpec] = (),
) -> list[str]:
    """Return a line for every fault of a plan, none for a correct plan."""
    by_name = {pod.name: pod for pod in pods}
    hosts = [*_new_hosts(plan, by_name, daemons), *_old_hosts(plan, by_name, nodes)]
    found = [*_accounted(plan, pods), *_within_limits(plan, pools, nodes)]
    for host in hosts:
        found += _fits(host)
        for pod in host.new:
            found += _admitted(pod, host)
            found += _apart(pod, host, hosts)
        found += _ports(host)
    unsure = [line for host in hosts for pod in host.new for line in _uneven(pod, host, hosts)]
    unsure += _lonely(hosts)
    return found + (unsure if unsure and _unbindable(hosts) else [])


def _unbindable(hosts: Sequence[Host]) -> list[str]:
    def split(new: bool) -> list[tuple[scheduler_simulation.Host, Sequence[Pod]]]:
        return [
            (
                scheduler_simulation.Host(
                    h.name, h.labels, h.taints, Counter(), h.allocatable, list(h.old)
                ),
                h.new,
            )
            for h in hosts
            if h.name.startswith(NEW) == new
        ]

    return scheduler_simulation.bindable(split(False), split(True))


def _new_hosts(plan: Plan, pods: Mapping[str, Pod], daemons: Sequence[PodSpec]) -> Iterator[Host]:
    for number, node in enumerate(plan.launches):
        chosen, pool = node.cheapest, node.cheapest.pool
        reservation = chosen.offering.reservation
        labels = {
            **_required_labels(pool),
            **chosen.type.labels,
            **pool.labels,
            **(reservation.labels if reservation else {}),
            ZONE: chosen.offering.zone,
            ZONE_ID: chosen.offering.zone_id,
            CAPACITY_TYPE: chosen.offering.capacity_type,
            NODEPOOL: pool.name,
            HOSTNAME: f"{NEW}{number}",
        }
        new = tuple(pods[name] for name in node.pods)
        bare = Host(f"{NEW}{number}", labels, pool.taints, chosen.type.allocatable, new)
        here = tuple(d for d in daemons if not list(_admitted(Pod("daemon", d), bare)))
        yield Host(bare.name, labels, pool.taints, bare.allocatable, new, here)


def _required_labels(pool: NodePool) -> dict[str, str]:
    """Return the labels of which the requirements of a pool leave one value."""
    return {
        key: min(requirement.values)
        for key, requirement in pool.requirements.items()
        if not requirement.complement and len(requirement.values) == 1
    }


def _old_hosts(
    plan: Plan, pods: Mapping[str, Pod], nodes: Sequence[ExistingNode]
) -> Iterator[Host]:
    placed = {placement.node: placement.pods for placement in plan.existing}
    for node in nodes:
        new = tuple(pods[name] for name in placed.get(node.name, ()))
        labels = {HOSTNAME: node.name, **node.labels}
        yield Host(node.name, labels, node.taints, node.allocatable, new, node.present)


def _accounted(plan: Plan, pods: Sequence[Pod]) -> Iterator[str]:
    listed = Counter(name for node in plan.launches for name in node.pods)
    listed.update(name for placement in plan.existing for name in placement.pods)
    listed.update(miss.pod for miss in plan.unschedulable)
    for name in listed.keys() | {pod.name for pod in pods}:
        if listed[name] != 1:
            yield f"{name} is listed {listed[name]} times"


def _within_limits(
    plan: Plan, pools: Sequence[NodePool], nodes: Sequence[ExistingNode]
) -> Iterator[str]:
    for pool in pools:
        for name, limit in (pool.limits or {}).items():
            new = [n.cheapest.type.capacity for n in plan.launches if n.pool == pool.name]
            old = [n.capacity for n in nodes if n.pool == pool.name]
            used = sum(1 if name == "nodes" else c.of(name) for c in (*new, *old))
            if used > limit and new:
                yield f"pool {pool.name} has {used} {name}, its limit is {limit}"


def _fits(host: Host) -> Iterator[str]:
    if not host.new:
        return
    requested = Resources()
    for spec in host.all:
        requested = requested + spec.requests
    for name, amount in requested.items():
        if amount > host.allocatable.of(name):
            yield f"{host.name}: {amount} {name} requested, {host.allocatable.of(name)} allocatable"


def _admitted(pod: Pod, host: Host) -> Iterator[str]:
    for taint in _repelled(pod.spec, host):
        yield f"{pod.name} does not tolerate {taint} of {host.name}"
    if pod.spec.terms and not any(map(_met_on(host), pod.spec.terms)):
        yield f"{pod.name} matches no affinity term on {host.name}"


def _repelled(spec: PodSpec, host: Host) -> Iterator[Taint]:
    for taint in host.taints:
        if taint.effect != "PreferNoSchedule" and not any(
            toleration.tolerates(taint) for toleration in spec.tolerations
        ):
            yield taint


def _met_on(host: Host) -> Callable[[Requirements], bool]:
    return lambda term: all(need.admits(host.labels.get(key)) for key, need in term.items())


def _lonely(hosts: Sequence[Host]) -> Iterator[str]:
    """Yield the pods whose affinity is not satisfied in the worst order: all other pods are bound
    first. A pod may be the first that matches its own term only if no other matching pod is
    bound."""
    bound = [list(host.old) for host in hosts]
    waiting = [(pod, i) for i, host in enumerate(hosts) for pod in host.new]

    def near(pod: Pod, at: int, term: PodTerm) -> bool:
        domain = hosts[at].labels.get(term.topology)
        return domain is not None and any(
            term.selects(spec)
            for host, here in zip(hosts, bound, strict=True)
            if host.labels.get(term.topology) == domain
            for spec in here
        )

    def first(pod: Pod, term: PodTerm) -> bool:
        return term.selects(pod.spec) and not any(
            term.selects(spec)
            for host, here in zip(hosts, bound, strict=True)
            if term.topology in host.labels
            for spec in here
        )

    while waiting:
        going = [
            (pod, at) for pod, at in waiting if all(near(pod, at, t) for t in pod.spec.pod_affinity)
        ]
        if not going:
            going = [
                (pod, at)
                for pod, at in waiting
                if all(near(pod, at, t) or first(pod, t) for t in pod.spec.pod_affinity)
            ][:1]
        if not going:
            break
        for pod, at in going:
            bound[at].append(pod.spec)
        names = {pod.name for pod, _ in going}
        waiting = [(pod, at) for pod, at in waiting if pod.name not in names]
    for pod, at in waiting:
        yield f"{pod.name} on {hosts[at].name} has no pod of its affinity in its domain"


def _apart(pod: Pod, host: Host, hosts: Sequence[Host]) -> Iterator[str]:
    for term in pod.spec.pod_anti_affinity:
        others = _count(term, host, hosts) - term.selects(pod.spec)
        if others > 0:
            yield f"{pod.name} on {host.name} violates its anti-affinity to {others} pods"
    for other in hosts:
        for neighbour in other.old:
            for term in neighbour.pod_anti_affinity:
                domain = host.labels.get(term.topology)
                near = domain is not None and domain == other.labels.get(term.topology)
                if near and term.selects(pod.spec):
                    yield f"{pod.name} on {host.name}: the anti-affinity of another pod excludes it"


def _uneven(pod: Pod, host: Host, hosts: Sequence[Host]) -> Iterator[str]:
    for spread in pod.spec.spreads:
        if spread.required:
            yield from _skewed(spread, pod, host, hosts)


def _skewed(spread: Spread, pod: Pod, host: Host, hosts: Sequence[Host]) -> Iterator[str]:
    counted = [each for each in hosts if _counts_in(spread, pod.spec, each)]
    least = _least(spread.pods, spread.min_domains, counted)
    skew = _count(spread.pods, host, counted) - least
    if skew > spread.max_skew:
        yield f"{pod.name} on {host.name}: skew {skew} by {spread.pods.topology}"


def _count(term: PodTerm, host: Host, hosts: Sequence[Host]) -> int:
    """Return the pods that a term selects in the domain of a host; none without a domain."""
    domain = host.labels.get(term.topology)
    if domain is None:
        return 0
    return sum(
        term.selects(spec)
        for each in hosts
        if each.labels.get(term.topology) == domain
        for spec in each.all
    )


def _counts_in(spread: Spread, spec: PodSpec, host: Host) -> bool:
    """Return whether the pods of a host count in a spread, by the node's labels and taints as far
    as the spread uses them."""
    terms = spec.own_terms
    if spread.honors_affinity and terms and not any(map(_met_on(host), terms)):
        return False
    return not (spread.honors_taints and list(_repelled(spec, host)))


def _least(term: PodTerm, min_domains: int, hosts: Sequence[Host]) -> int:
    """Return the minimum of all domains: of zones with a node, and 0 for hostnames, because an
    empty node can always join."""
    if term.topology == HOSTNAME:
        return 0
    domains = {each.labels[term.topology]: each for each in hosts if term.topology in each.labels}
    if len(domains) < min_domains:
        return 0
    return min((_count(term, each, hosts) for each in domains.values()), default=0)


def _ports(host: Host) -> Iterator[str]:
    seen = [port for spec in host.all for port in spec.ports]
    for i, one in enumerate(seen):
        for other in seen[:i]:
            clash = one.address == other.address or "" in {one.address, other.address}
            if (one.port, one.protocol) == (other.port, other.protocol) and clash:
                yield f"{host.name}: port {one.port} is used twice"
