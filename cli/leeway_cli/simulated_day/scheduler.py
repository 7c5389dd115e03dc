"""Binds the pods of a simulated cluster as kube-scheduler does: its filters, then the least
allocated node.

It shares no code with the decisions of packing. Filters: resources, taints, node affinity, spreads
by DoNotSchedule and anti-affinity, which are the constraints that the workload has. Pods of one
owner have one spec, so a term is compared with each owner once for each node.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from leeway.selection.pods import PodSpec, PodTerm, Spread

from leeway_cli.simulated_day.machines import Machine, SimulatedPod


def bind_pending(
    pending: Iterable[SimulatedPod], machines: Sequence[Machine], minute: int
) -> list[SimulatedPod]:
    """Bind pods in the given order to Ready nodes; return those that stay pending."""
    ready = [one for one in machines if one.is_ready(minute)]
    left = []
    for pod in pending:
        spec = pod.pod.spec
        able = [one for one in ready if not one.going and _fits(spec, one)]
        if able:
            able = _filtered(spec, able, ready)
        if able:
            min(able, key=lambda one: (_load(one), one.name)).bind(pod, minute)
        else:
            left.append(pod)
    return left


def _fits(spec: PodSpec, machine: Machine) -> bool:
    return (
        spec.requests.fits(machine.free)
        and spec.untolerated(machine.offering.pool.taints) is None
        and (not spec.terms or any(term.admits(machine.labels) for term in spec.terms))
    )


def _filtered(spec: PodSpec, able: list[Machine], ready: Sequence[Machine]) -> list[Machine]:
    for spread in spec.spreads:
        able = _even(spread, spec, able, ready)
    for term in spec.pod_anti_affinity:
        able = [one for one in able if not _selected(term, one)]
    return able


def _even(
    spread: Spread, spec: PodSpec, able: list[Machine], ready: Sequence[Machine]
) -> list[Machine]:
    key = spread.pods.topology
    counts: Counter[str] = Counter()
    for one in ready:
        if not spec.terms or any(term.admits(one.labels) for term in spec.terms):
            counts[one.labels[key]] += _selected(spread.pods, one)
    most = min(counts.values()) + spread.max_skew - spread.pods.selects(spec)
    return [one for one in able if counts[one.labels[key]] <= most]


def _selected(term: PodTerm, machine: Machine) -> int:
    """How many pods of a node a term selects."""
    owners = Counter(pod.owner for pod in machine.pods.values())
    specs = {pod.owner: pod.pod.spec for pod in machine.pods.values()}
    return sum(count for owner, count in owners.items() if term.selects(specs[owner]))


def _load(machine: Machine) -> float:
    """The requested share of CPU and memory, as in NodeResourcesFit's LeastAllocated."""
    whole = machine.offering.type.allocatable
    return sum(1 - machine.free.of(name) / whole.of(name) for name in ("cpu", "memory")) / 2
