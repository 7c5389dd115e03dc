"""Evaluates the pods, the nodes and the whole storm: pure functions, each result with a reason.

The reference is a correct drain in the available time. EC2 reclaims a Spot instance two minutes
after the time in its notice. A drain may use this time except its last `MARGIN` seconds. A pod that
needs more time than that is not a fault.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import median

from leeway.reasons import counted

from leeway_cli.report.model import (
    Evaluation,
    Launch,
    LeewayEvent,
    NodeReport,
    NodeTrace,
    Outcome,
    PodReport,
    PodTrace,
    Shortage,
    StormReport,
    Target,
)

MARGIN = 5.0  # seconds between the end of a drain and the reclaim by EC2
GRACE_CAP = 45.0  # a pod is deleted past its budget at deadline - min(grace, this)
PROMPT = 5.0  # seconds within which an eviction is requested if no budget blocks it
SLACK = 2.0  # tolerance for clocks, whole seconds of grace and a busy machine


def evaluate_pod(pod: PodTrace, node: NodeTrace) -> Evaluation:
    """Return the outcome of a pod, and whether a correct drain would have had a better one."""
    if pod.workload.daemon:
        if pod.attempts:
            return _fault(
                Outcome.STAYED,
                "It was evicted, although its DaemonSet recreates it on the same node.",
            )
        return _no_fault(Outcome.STAYED, "It belongs to a DaemonSet and is not evicted.")
    if pod.ended_at is None:
        return _fault(Outcome.DIED, "It still ran on the node at the end of the observation.")
    if pod.how == "died-with-node":
        return _evaluate_death(pod, node)
    if pod.how == "forced" and pod.workload.grace > 0:
        return _fault(Outcome.DIED, "It was killed without its grace period.")
    if pod.how == "grace-period-expired":
        return _evaluate_kill(pod, node)
    return _evaluate_end(pod, node)


def _evaluate_death(pod: PodTrace, node: NodeTrace) -> Evaluation:
    if pod.requested_at is None or pod.ended_at is None:
        return _fault(Outcome.DIED, "It got no termination request before its instance ended.")
    left = pod.ended_at - pod.requested_at
    return _fault(
        Outcome.DIED,
        f"Its termination was requested only {left:.1f} s before its instance ended"
        + (f", {_since_notice(pod, node):.1f} s after the notice." if node.notices else "."),
    )


def _evaluate_kill(pod: PodTrace, node: NodeTrace) -> Evaluation:
    given, own = pod.grace_given or 0.0, pod.workload.grace
    if given >= own - SLACK:
        return _no_fault(
            Outcome.CUT,
            f"It did not end within its own grace period of {own:.0f} s and was killed.",
        )
    requested_at = pod.requested_at or 0.0
    could_have = _deadline(node) - requested_at
    if given < could_have - SLACK:
        return _fault(
            Outcome.CUT,
            f"Its grace period was reduced to {given:.0f} s, but {could_have:.0f} s were left.",
        )
    late = _since_notice(pod, node)
    if late > PROMPT and not pod.refusals and not pod.workload.critical:
        return _fault(
            Outcome.CUT,
            f"Its grace period lost {late:.0f} s, because its termination was requested late.",
        )
    return _no_fault(
        Outcome.CUT,
        f"Its grace period of {own:.0f} s was reduced to the {given:.0f} s that were left."
        " It needed more.",
    )


def _evaluate_end(pod: PodTrace, node: NodeTrace) -> Evaluation:
    reason = " ".join(["It ended in time.", *_details(pod)])
    if pod.requested_by == "delete" and pod.requested_at is not None:
        latest = _deadline(node) - min(pod.workload.grace, GRACE_CAP)
        if pod.refusals and pod.requested_at < latest - SLACK:
            early = latest - pod.requested_at
            return _fault(
                Outcome.ENDED,
                f"It was deleted past its budget {early:.0f} s before its latest time.",
            )
    if not pod.owned:
        return _no_fault(Outcome.ENDED, f"{reason} It has no owner that recreates it.")
    if pod.successor is None:
        return _fault(Outcome.NOT_RESCHEDULED, f"{reason} Its owner created no replacement.")
    if pod.successor.running_at is None:
        return _fault(
            Outcome.NOT_RESCHEDULED, f"{reason} Its replacement {pod.successor.pod} does not run."
        )
    return _no_fault(Outcome.MOVED, reason)


def _details(pod: PodTrace) -> list[str]:
    details = []
    if pod.refusals and pod.requested_by == "delete":
        details.append(
            f"Its budget blocked every eviction ({counted(pod.refusals, 'refusal')}),"
            " so it was deleted at its latest time."
        )
    elif pod.refusals:
        waited = (pod.requested_at or pod.attempts[-1].at) - pod.attempts[0].at
        refusals = counted(pod.refusals, "refusal")
        details.append(f"Its budget blocked it for {waited:.1f} s ({refusals}).")
    given, own = pod.grace_given, pod.workload.grace
    if given is not None and given < own - SLACK:
        details.append(
            f"Its grace period of {own:.0f} s was reduced to the {given:.0f} s that were left."
        )
    return details


def evaluate_node(node: NodeTrace, pods: Sequence[PodReport]) -> tuple[str, ...]:
    """Return the faults of a node. The faults of its pods are in their evaluations."""
    faults = []
    if not node.notices:
        faults.append("Its notice was not delivered.")
    if not node.cordoned_at:
        faults.append("It was not cordoned.")
    if len(node.cordoned_at) > 1:
        faults.append(f"It was cordoned {counted(len(node.cordoned_at), 'time')}.")
    twice = [pod.trace.pod for pod in pods if pod.trace.evicted > 1]
    if twice:
        faults.append(f"Evicted more than once: {', '.join(twice)}.")
    faults += _evicted_too_early(node, pods)
    if node.replacement is None:
        faults.append("No replacement was launched.")
    elif node.replacement.ready_at is None:
        faults.append(f"Its replacement {node.replacement.instance} did not become Ready.")
    if node.instance_gone_at is None:
        faults.append("Its instance still ran at the end of the observation.")
    died = sum(1 for pod in pods if pod.evaluation.outcome is Outcome.DIED)
    if died and any(event.result == "drained" for event in node.leeway_events):
        faults.append(f"Leeway reported it as drained, but {died} of its pods died.")
    return tuple(faults)


def _evicted_too_early(node: NodeTrace, pods: Sequence[PodReport]) -> list[str]:
    """Return the critical pods that were evicted before the others and before their latest time."""
    ordinary = [
        pod.trace
        for pod in pods
        if not pod.trace.workload.critical and not pod.trace.workload.daemon
    ]
    ends = [pod.ended_at for pod in ordinary]
    early = []
    for pod in (report.trace for report in pods):
        if not pod.workload.critical or pod.workload.daemon or pod.requested_at is None:
            continue
        latest = _deadline(node) - min(pod.workload.grace, GRACE_CAP)
        others_left = any(end is None or end > pod.requested_at + SLACK for end in ends)
        if others_left and pod.requested_at < latest - SLACK:
            early.append(f"The critical pod {pod.pod} was evicted before the other pods.")
    return early


def evaluate_storm(
    targets: Sequence[Target],
    *,
    cordoned: Set[str],
    evicted_on: Set[str],
    launched: Mapping[str, Sequence[str]],
    of_pools: Iterable[Launch] = (),
    used: Set[str] = frozenset(),
) -> tuple[str, ...]:
    """Return the actions on nodes without a notice, and the launches that were too many.

    `launched` are the instances of each group, `of_pools` those that Leeway launched, and `used`
    the nodes that ran other pods than those of DaemonSets.
    """
    interrupted = {target.node for target in targets}
    faults = [f"{node} was cordoned without a notice." for node in sorted(cordoned - interrupted)]
    faults += [
        f"Pods were evicted from {node} without a notice."
        for node in sorted(evicted_on - interrupted)
    ]
    lost = Counter(target.group for target in targets)
    for group, instances in sorted(launched.items()):
        if len(instances) > lost[group]:
            faults.append(
                f"{group} launched {counted(len(instances), 'instance')} for {lost[group]} that it "
                "lost."
            )
    return (*faults, *evaluate_launches(of_pools, used))


def evaluate_launches(launches: Iterable[Launch], used: Set[str]) -> tuple[str, ...]:
    """Return the instances of pools that were not needed or did not become nodes. `used` are the
    nodes that ran other pods than those of DaemonSets.

    One larger node may replace several, so that launches are not compared with lost nodes.
    """
    faults = []
    for one in launches:
        what = f"Leeway launched {one.instance} for pool {one.pool}"
        if one.ready_at is None:
            faults.append(f"{what}, and it did not become Ready.")
        elif one.node not in used:
            faults.append(f"{what}, and no pod needed it.")
    return tuple(faults)


def evaluate_unmanaged(
    *, ended_at: float | None, reclaimed_at: float | None, leeway_events: Iterable[LeewayEvent]
) -> tuple[str, ...]:
    """Return the actions on an instance of another cluster."""
    faults = []
    if ended_at is not None and (reclaimed_at is None or ended_at < reclaimed_at - 1.0):
        faults.append("It belongs to another cluster, but it was terminated.")
    if any(event.evicted or event.deleted for event in leeway_events):
        faults.append("It belongs to another cluster, but Leeway reported a drain of it.")
    return tuple(faults)


def _deadline(node: NodeTrace) -> float:
    return node.reclaim_at - MARGIN


def _since_notice(pod: PodTrace, node: NodeTrace) -> float:
    if pod.requested_at is None or node.noticed_at is None:
        return 0.0
    return pod.requested_at - node.noticed_at


def _no_fault(outcome: Outcome, reason: str) -> Evaluation:
    return Evaluation(outcome, fault=False, reason=reason)


def _fault(outcome: Outcome, reason: str) -> Evaluation:
    return Evaluation(outcome, fault=True, reason=reason)


@dataclass(frozen=True)
class Spread:
    """The median and the largest of some durations, in seconds."""

    median: float
    worst: float


@dataclass(frozen=True)
class Summary:
    """Counts and durations (seconds) of a storm; a duration without measurement is None."""

    nodes: int
    nodes_drained: int
    nodes_replaced: int
    pods: int
    pods_moved: int
    pods_ended: int
    pods_cut_short: int
    pods_lost: int
    refusals_by_budgets: int
    duplicate_notices: int
    cordoned_after_seconds: Spread | None
    replaced_after_seconds: Spread | None
    least_seconds_to_spare: float | None


def summarize(report: StormReport) -> Summary:
    """Count nodes, pods and notices, and compute durations."""
    outcomes = [pod.evaluation.outcome for pod in report.moving]
    spare = [
        node.trace.reclaim_at - node.drained_at
        for node in report.nodes
        if node.drained_at is not None and drained_in_time(node)
    ]
    return Summary(
        nodes=len(report.nodes),
        nodes_drained=sum(1 for node in report.nodes if drained_in_time(node)),
        nodes_replaced=sum(1 for node in report.nodes if ready_at(node) is not None),
        pods=len(outcomes),
        pods_moved=outcomes.count(Outcome.MOVED),
        pods_ended=outcomes.count(Outcome.ENDED),
        pods_cut_short=outcomes.count(Outcome.CUT),
        pods_lost=outcomes.count(Outcome.DIED) + outcomes.count(Outcome.NOT_RESCHEDULED),
        refusals_by_budgets=sum(pod.trace.refusals for pod in report.moving),
        duplicate_notices=sum(max(0, len(node.trace.notices) - 1) for node in report.nodes),
        cordoned_after_seconds=_spread(to_cordon(node) for node in report.nodes),
        replaced_after_seconds=_spread(to_ready(node) for node in report.nodes),
        least_seconds_to_spare=min(spare, default=None),
    )


def drained_in_time(node: NodeReport) -> bool:
    """Return whether every pod that had to move ended before the instance did."""
    left = [pod for pod in node.moving if pod.evaluation.outcome is Outcome.DIED]
    return bool(node.trace.cordoned_at) and not left


def to_cordon(node: NodeReport) -> float | None:
    """Return the seconds from the first delivery of the notice to the cordon."""
    if not node.trace.cordoned_at or node.trace.noticed_at is None:
        return None
    return node.trace.cordoned_at[0] - node.trace.noticed_at


def ready_at(node: NodeReport) -> float | None:
    """Return when the replacement was Ready."""
    return node.trace.replacement.ready_at if node.trace.replacement else None


def to_ready(node: NodeReport) -> float | None:
    """Return the seconds from the first delivery of the notice until the replacement was Ready."""
    ready = ready_at(node)
    if ready is None or node.trace.noticed_at is None:
        return None
    return ready - node.trace.noticed_at


def missing_for(pod: PodTrace) -> float | None:
    """Return the seconds between a pod's end and its replacement's start; 0 if they overlap."""
    if pod.successor is None or pod.successor.running_at is None or pod.ended_at is None:
        return None
    return max(0.0, pod.successor.running_at - pod.ended_at)


def owner_of(target: Target) -> str:
    """Return who owns a node: a group, or Leeway's pool."""
    return target.group or f"Leeway, pool {target.pool}"


def shortage_text(shortage: Shortage) -> str:
    """Return a shortage in one sentence."""
    kinds, zones = len(shortage.instance_types), len(shortage.zones)
    market = "Spot" if shortage.capacity_type == "spot" else "On-demand"
    types = shortage.instance_types[0] if kinds == 1 else counted(kinds, "instance type")
    places = shortage.zones[0] if zones == 1 else counted(zones, "zone")
    return (
        f"{market} capacity was short for pool {shortage.pool}: {types} in {places}"
        f" ({shortage.code})."
    )


def launch_texts(launches: Iterable[Launch]) -> list[str]:
    """Return what Leeway launched, one sentence for each pool, capacity type and instance type."""
    found = Counter(
        (one.pool, one.capacity_type, one.instance_type, one.fallback) for one in launches
    )
    return [
        f"Leeway launched {number} {capacity_type} {instance_type} for pool {pool}"
        + (", instead of Spot." if fallback else ".")
        for (pool, capacity_type, instance_type, fallback), number in found.items()
    ]


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), max(known)) if known else None
