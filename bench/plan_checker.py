"""Checks a plan pod by pod, slowly and by the book: it shares no code with packing's decisions.

Every rule is checked on the plan as a whole, so that it holds in whatever order pods come.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from leeway.selection.labels import CAPACITY_TYPE, HOSTNAME, NODEPOOL, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.pods import ExistingNode, Pod, PodSpec, PodTerm
from leeway.selection.pools import NodePool, Taint
from leeway.selection.resources import Resources


@dataclass(frozen=True)
class Host:
    """A node, new or not, with the pods that are new on it and those that were there."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    new: tuple[Pod, ...]
    old: tuple[PodSpec, ...] = ()

    @property
    def all(self) -> Iterator[PodSpec]:
        """All its pods."""
        yield from self.old
        yield from (pod.spec for pod in self.new)


def violations(
    plan: Plan,
    pods: Sequence[Pod],
    pools: Sequence[NodePool],
    nodes: Sequence[ExistingNode] = (),
    daemons: Sequence[PodSpec] = (),
) -> list[str]:
    """Return a line for everything that is wrong with a plan; none for a right one."""
    by_name = {pod.name: pod for pod in pods}
    hosts = [*_new_hosts(plan, by_name, daemons), *_old_hosts(plan, by_name, nodes)]
    found = [*_accounted(plan, pods), *_within_limits(plan, pools, nodes)]
    for host in hosts:
        found += _fits(host)
        for pod in host.new:
            found += _admitted(pod, host)
            found += _topology(pod, host, hosts)
        found += _ports(host)
    return found


def _new_hosts(plan: Plan, pods: Mapping[str, Pod], daemons: Sequence[PodSpec]) -> Iterator[Host]:
    for number, node in enumerate(plan.launches):
        chosen, pool = node.cheapest, node.cheapest.pool
        labels = {
            **chosen.type.labels,
            **pool.labels,
            ZONE: chosen.offering.zone,
            CAPACITY_TYPE: chosen.offering.capacity_type,
            NODEPOOL: pool.name,
            HOSTNAME: f"new-{number}",
        }
        new = tuple(pods[name] for name in node.pods)
        bare = Host(f"new-{number}", labels, pool.taints, chosen.type.allocatable, new)
        here = tuple(d for d in daemons if not list(_admitted(Pod("daemon", d), bare)))
        yield Host(bare.name, labels, pool.taints, bare.allocatable, new, here)


def _old_hosts(
    plan: Plan, pods: Mapping[str, Pod], nodes: Sequence[ExistingNode]
) -> Iterator[Host]:
    placed = {placement.node: placement.pods for placement in plan.existing}
    for node in nodes:
        new = tuple(pods[name] for name in placed.get(node.name, ()))
        labels = {HOSTNAME: node.name, **node.labels}
        yield Host(node.name, labels, node.taints, node.allocatable, new, node.pods)


def _accounted(plan: Plan, pods: Sequence[Pod]) -> Iterator[str]:
    told = Counter(name for node in plan.launches for name in node.pods)
    told.update(name for placement in plan.existing for name in placement.pods)
    told.update(miss.pod for miss in plan.unschedulable)
    for name in told.keys() | {pod.name for pod in pods}:
        if told[name] != 1:
            yield f"{name} is told of {told[name]} times"


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
    asked = Resources()
    for spec in host.all:
        asked = asked + spec.requests
    for name, amount in asked.items():
        if amount > host.allocatable.of(name):
            yield f"{host.name}: {amount} {name} asked, {host.allocatable.of(name)} there"


def _admitted(pod: Pod, host: Host) -> Iterator[str]:
    for taint in host.taints:
        if taint.effect != "PreferNoSchedule" and not any(
            toleration.tolerates(taint) for toleration in pod.spec.tolerations
        ):
            yield f"{pod.name} does not tolerate {taint} of {host.name}"
    terms = pod.spec.terms
    if terms and not any(
        all(need.admits(host.labels.get(key)) for key, need in term.items()) for term in terms
    ):
        yield f"{pod.name} meets no term on {host.name}"


def _topology(pod: Pod, host: Host, hosts: Sequence[Host]) -> Iterator[str]:
    for term in pod.spec.apart:
        others = _count(term, host, hosts) - term.selects(pod.spec)
        if others:
            yield f"{pod.name} on {host.name} is to be apart from {others} pods"
    for term in pod.spec.near:
        others = _count(term, host, hosts) - term.selects(pod.spec)
        everywhere = sum(term.selects(spec) for each in hosts for spec in each.all)
        first = term.selects(pod.spec) and everywhere == 1
        if not others and not first:
            yield f"{pod.name} on {host.name} is near no pod that it has to be near"
    for spread in pod.spec.spreads:
        if spread.required:
            least = _least(spread.pods, spread.min_domains, pod, hosts)
            skew = _count(spread.pods, host, hosts) - least
            if skew > spread.max_skew:
                yield f"{pod.name} on {host.name}: skew {skew} by {spread.pods.topology}"
    for neighbour in host.old:
        for term in neighbour.apart:
            if term.topology == HOSTNAME and term.selects(pod.spec):
                yield f"{pod.name} on {host.name}: a pod there keeps apart from it"


def _count(term: PodTerm, host: Host, hosts: Sequence[Host]) -> int:
    """The pods that a term selects in the domain of a host."""
    domain = host.labels.get(term.topology)
    return sum(
        term.selects(spec)
        for each in hosts
        if each.labels.get(term.topology) == domain
        for spec in each.all
    )


def _least(term: PodTerm, min_domains: int, pod: Pod, hosts: Sequence[Host]) -> int:
    """The fewest in any domain: of zones that have a node; a node without any may always come."""
    if term.topology == HOSTNAME:
        return 0
    domains = {
        each.labels[term.topology]: each
        for each in hosts
        if term.topology in each.labels and not list(_admitted(pod, each))
    }
    if len(domains) < min_domains:
        return 0
    return min((_count(term, each, hosts) for each in domains.values()), default=0)


def _ports(host: Host) -> Iterator[str]:
    seen = [port for spec in host.all for port in spec.ports]
    for i, one in enumerate(seen):
        for other in seen[:i]:
            clash = one.address == other.address or "" in {one.address, other.address}
            if (one.port, one.protocol) == (other.port, other.protocol) and clash:
                yield f"{host.name}: port {one.port} is taken twice"
