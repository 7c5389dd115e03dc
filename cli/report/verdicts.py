"""What is to be said of each pod, each node and the whole storm: pure, every verdict with a reason.

The measure is what a right drain could have done with the time there was. EC2 takes a Spot
instance two minutes after the time its notice names, so a drain may use all but the last
`MARGIN` seconds of that; a pod that needs more than it could be given is not held against anyone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from cli.report.story import (
    Claim,
    NodeTrace,
    Outcome,
    PodStory,
    PodTrace,
    Target,
    Verdict,
)

MARGIN = 5.0  # seconds before EC2 takes the instance by which a drain wants to be done
GRACE_CAP = 45.0  # a budget is honoured until deadline - min(grace, this)
PROMPT = 5.0  # an eviction that nothing held back should have been asked for within this
SLACK = 2.0  # what clocks, whole seconds of grace and a busy machine may blur


def judge_pod(pod: PodTrace, node: NodeTrace) -> Verdict:
    """What became of the pod, and whether a right drain would have done better."""
    if pod.workload.daemon:
        if pod.attempts:
            return _fault(Outcome.STAYED, "evicted, although a DaemonSet brings it straight back")
        return _fine(Outcome.STAYED, "a DaemonSet's pod: it belongs to its node")
    if pod.ended_at is None:
        return _fault(Outcome.DIED, "was still on the node when the story ended")
    if pod.how == "died-with-node":
        return _judge_death(pod, node)
    if pod.how == "forced" and pod.workload.grace > 0:
        return _fault(Outcome.DIED, "was killed outright, without the time its grace promises")
    if pod.how == "grace-period-expired":
        return _judge_kill(pod, node)
    return _judge_end(pod, node)


def _judge_death(pod: PodTrace, node: NodeTrace) -> Verdict:
    if pod.asked_at is None or pod.ended_at is None:
        return _fault(Outcome.DIED, "nobody asked it to end before its instance went")
    left = pod.ended_at - pod.asked_at
    return _fault(
        Outcome.DIED,
        f"was asked to end only {left:.1f} s before its instance went"
        + (f", {_since_notice(pod, node):.1f} s after the notice" if node.notices else ""),
    )


def _judge_kill(pod: PodTrace, node: NodeTrace) -> Verdict:
    given, own = pod.grace_given or 0.0, pod.workload.grace
    if given >= own - SLACK:
        return _fine(
            Outcome.CUT, f"did not end within its own grace of {own:.0f} s, so it was killed"
        )
    asked_at = pod.asked_at or 0.0
    could_have = _deadline(node) - asked_at
    if given < could_have - SLACK:
        return _fault(
            Outcome.CUT, f"its grace was cut to {given:.0f} s, though {could_have:.0f} s were left"
        )
    late = _since_notice(pod, node)
    if late > PROMPT and not pod.refusals and not pod.workload.critical:
        return _fault(
            Outcome.CUT, f"lost {late:.0f} s of its grace because it was asked so late to end"
        )
    return _fine(
        Outcome.CUT,
        f"its grace of {own:.0f} s was cut to the {given:.0f} s that were left, and it needed more",
    )


def _judge_end(pod: PodTrace, node: NodeTrace) -> Verdict:
    reason = ", ".join(["ended in time", *_how_it_went(pod)])
    if pod.asked_by == "delete" and pod.asked_at is not None:
        latest = _deadline(node) - min(pod.workload.grace, GRACE_CAP)
        if pod.refusals and pod.asked_at < latest - SLACK:
            early = latest - pod.asked_at
            return _fault(
                Outcome.ENDED,
                f"was deleted past its budget {early:.0f} s before its latest moment",
            )
    if not pod.owned:
        return _fine(Outcome.ENDED, f"{reason}; nothing owns it, so nothing brings it back")
    if pod.successor is None:
        return _fault(Outcome.UNPLACED, f"{reason}, but nothing came in its place")
    if pod.successor.running_at is None:
        return _fault(Outcome.UNPLACED, f"{reason}, but {pod.successor.pod} does not run")
    return _fine(Outcome.MOVED, reason)


def _how_it_went(pod: PodTrace) -> list[str]:
    went = []
    if pod.refusals and pod.asked_by == "delete":
        went.append(f"its budget never gave way ({pod.refusals} refusals): deleted at the last")
    elif pod.refusals:
        waited = (pod.asked_at or pod.attempts[-1].at) - pod.attempts[0].at
        went.append(f"its budget made it wait {waited:.1f} s ({pod.refusals} refusals)")
    given, own = pod.grace_given, pod.workload.grace
    if given is not None and given < own - SLACK:
        went.append(f"its grace of {own:.0f} s cut to the {given:.0f} s left")
    return went


def judge_node(node: NodeTrace, pods: Sequence[PodStory]) -> tuple[str, ...]:
    """What went wrong on the node itself; its pods' own faults are in their verdicts."""
    faults = []
    if not node.notices:
        faults.append("its notice was never delivered")
    if not node.cordons:
        faults.append("it was never cordoned")
    if len(node.cordons) > 1:
        faults.append(f"it was cordoned {len(node.cordons)} times")
    twice = [pod.trace.pod for pod in pods if pod.trace.evicted > 1]
    if twice:
        faults.append(f"evicted more than once: {', '.join(twice)}")
    faults += _out_of_turn(node, pods)
    if node.replacement is None:
        faults.append("nothing was launched in its place")
    elif node.replacement.ready_at is None:
        faults.append(f"its replacement {node.replacement.instance} never became Ready")
    if node.dead_at is None:
        faults.append("its instance was still there when the story ended")
    died = sum(1 for pod in pods if pod.verdict.outcome is Outcome.DIED)
    if died and any(claim.result == "drained" for claim in node.claims):
        faults.append(f"Leeway says it was drained, yet {died} of its pods died")
    return tuple(faults)


def _out_of_turn(node: NodeTrace, pods: Sequence[PodStory]) -> list[str]:
    """Critical pods outlive the ordinary ones, unless their own latest moment comes first."""
    ordinary = [
        pod.trace
        for pod in pods
        if not pod.trace.workload.critical and not pod.trace.workload.daemon
    ]
    ends = [pod.ended_at for pod in ordinary]
    early = []
    for pod in (story.trace for story in pods):
        if not pod.workload.critical or pod.workload.daemon or pod.asked_at is None:
            continue
        latest = _deadline(node) - min(pod.workload.grace, GRACE_CAP)
        others_left = any(end is None or end > pod.asked_at + SLACK for end in ends)
        if others_left and pod.asked_at < latest - SLACK:
            early.append(f"{pod.pod} is critical, yet was evicted before the ordinary pods")
    return early


def judge_storm(
    targets: Sequence[Target],
    *,
    cordoned: Set[str],
    evicted_on: Set[str],
    launched: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """What was done to nodes that nobody gave notice of, and what was bought too often."""
    ours = {target.node for target in targets}
    faults = [f"{node} was cordoned without a notice" for node in sorted(cordoned - ours)]
    faults += [
        f"pods were evicted from {node} without a notice" for node in sorted(evicted_on - ours)
    ]
    lost = Counter(target.group for target in targets)
    for group, instances in sorted(launched.items()):
        if len(instances) > lost[group]:
            faults.append(f"{group} launched {len(instances)} instances for {lost[group]} lost")
    return tuple(faults)


def judge_stranger(
    *, ended_at: float | None, taken_at: float | None, claims: Iterable[Claim]
) -> tuple[str, ...]:
    """Whether an instance of somebody else's cluster was left alone."""
    faults = []
    if ended_at is not None and (taken_at is None or ended_at < taken_at - 1.0):
        faults.append("belongs to another cluster, yet it was terminated")
    if any(claim.evicted or claim.deleted for claim in claims):
        faults.append("belongs to another cluster, yet Leeway says it drained it")
    return tuple(faults)


def _deadline(node: NodeTrace) -> float:
    return node.takes_at - MARGIN


def _since_notice(pod: PodTrace, node: NodeTrace) -> float:
    if pod.asked_at is None or node.noticed_at is None:
        return 0.0
    return pod.asked_at - node.noticed_at


def _fine(outcome: Outcome, reason: str) -> Verdict:
    return Verdict(outcome, fault=False, reason=reason)


def _fault(outcome: Outcome, reason: str) -> Verdict:
    return Verdict(outcome, fault=True, reason=reason)
