"""What Leeway would do about a notice, and why: the decisions of a retirement, none carried out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from leeway.drain.deadline import Terms, grace_that_fits, latest_moment
from leeway.drain.pods import Pod, Verdict, decide_pod
from leeway.notices import Notice
from leeway.policies import Ruling
from leeway.records import InstanceFacts
from leeway.replacement import Decision, GroupFacts, decide_replacement


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What would become of one pod. `grace` is in seconds: what it would be given."""

    pod: str
    verdict: Verdict
    reason: str
    warning: str
    critical: bool
    latest: datetime | None
    grace: int


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """What would become of one instance. `node` is empty where none was found or looked for."""

    instance: str
    cluster: str
    owner: str
    node: str
    node_reason: str
    replacement: str
    replacement_reason: str
    pods: tuple[PodPlan, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A notice, the ruling on it, and the plan for each of its instances."""

    notice: Notice
    ruling: Ruling
    instances: tuple[InstancePlan, ...]


def plan_pod(pod: Pod, terms: Terms, now: datetime) -> PodPlan:
    """Plan one pod as a drain that begins at `now` would."""
    decision = decide_pod(pod, now)
    evicted = decision.verdict is Verdict.EVICT
    grace = grace_that_fits(pod, terms, now)
    return PodPlan(
        pod=pod.key,
        verdict=decision.verdict,
        reason=decision.reason,
        warning=decision.warning,
        critical=pod.critical,
        latest=latest_moment(pod, terms) if evicted else None,
        grace=pod.grace if grace is None else grace,
    )


def plan_instance(
    notice: Notice,
    ruling: Ruling,
    instance: str,
    facts: InstanceFacts | None,
    group: GroupFacts | None,
    node: str,
    node_reason: str,
    pods: Sequence[Pod],
) -> InstancePlan:
    """Plan one instance's retirement as if its notice arrived at its own time."""
    terms = Terms(ruling.deadline, ruling.on_blocked)
    replacement = _replacement(notice, ruling, facts, group)
    return InstancePlan(
        instance=instance,
        cluster=facts.cluster if facts else "",
        owner=f"{facts.owner.kind} {facts.owner.name}".strip() if facts else "",
        node=node,
        node_reason=node_reason,
        replacement=replacement.method if replacement else "",
        replacement_reason=replacement.reason if replacement else "EC2 was not asked",
        pods=tuple(plan_pod(pod, terms, notice.time) for pod in pods),
    )


def _replacement(
    notice: Notice, ruling: Ruling, facts: InstanceFacts | None, group: GroupFacts | None
) -> Decision | None:
    if facts is None:
        return None
    return decide_replacement(notice.kind, ruling.replacement, facts.owner, group)
