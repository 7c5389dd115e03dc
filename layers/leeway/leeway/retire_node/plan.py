"""What Leeway would do about a notice, and why: the decisions of a retirement, none carried out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from leeway.drain.deadline import Terms, grace_that_fits, latest_moment
from leeway.drain.decide_pod import PodAction, decide_pod
from leeway.instances.facts import InstanceFacts
from leeway.instances.groups import GroupFacts
from leeway.instances.owners import Owner, OwnerKind, owner_of
from leeway.notices import Notice
from leeway.policy.rules import VOLUNTARY, Action, ClusterPolicy, Ruling, begins_at, rule
from leeway.ports.kubernetes_objects import Node, Pod
from leeway.replacement.decide import Decision, decide_replacement


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What would become of one pod. `grace` is in seconds: what it would be given."""

    pod: str
    verdict: PodAction
    reason: str
    warning: str
    critical: bool
    latest: datetime | None
    grace: int


class PlannedAction(StrEnum):
    """What a notice leads to for one instance."""

    IGNORE = "ignore"
    LEAVE = "leave-to-owner"
    UNDO = "undo"
    ADMIT = "admit"
    SCHEDULE = "schedule"
    CORDON = "cordon"
    RETIRE = "retire"


DRAINS = frozenset({PlannedAction.SCHEDULE, PlannedAction.RETIRE})
"""The courses on which pods are asked to go, now or later."""


@dataclass(frozen=True, slots=True)
class InstanceFindings:
    """What was found out about one instance. `facts` and `group` are None where EC2 was not `asked`
    or knows no such instance, `node` where none was looked for or found, as `node_reason` says."""

    instance: str
    facts: InstanceFacts | None
    group: GroupFacts | None
    node: Node | None
    node_reason: str
    pods: tuple[Pod, ...] = ()
    asked: bool = False

    @property
    def owner(self) -> Owner | None:
        """Who owns it, by its tags, or else by its node's labels."""
        if self.facts is not None:
            return self.facts.owner
        return owner_of({}, self.node.labels) if self.node else None


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """What would become of one instance.

    `node` is empty where none was found or looked for. `begins_at` is when a retirement begins that
    does not begin at once. `remarks` are what else holds for it: pauses, caps, protections.
    """

    instance: str
    cluster: str
    owner: str
    node: str
    node_reason: str
    course: PlannedAction
    reason: str
    ruling: Ruling
    policy_source: str
    begins_at: datetime | None
    replacement: str
    replacement_reason: str
    replacement_first: bool
    remarks: tuple[str, ...]
    pods: tuple[PodPlan, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A notice, the ruling on it by the policy that holds where no cluster's own does, and the plan
    for each of its instances."""

    notice: Notice
    ruling: Ruling
    instances: tuple[InstancePlan, ...]


def plan_pod(pod: Pod, terms: Terms, now: datetime) -> PodPlan:
    """Plan one pod as a drain that begins at `now` would."""
    decision = decide_pod(pod, now)
    evicted = decision.verdict is PodAction.EVICT
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
    notice: Notice, policy: ClusterPolicy, policy_source: str, seen: InstanceFindings
) -> InstancePlan:
    """Plan what becomes of one instance, as if its notice arrived at its own time."""
    here = policy.notices[notice.kind]
    begins = begins_at(notice, here)
    if begins is not None and begins <= notice.time:
        begins = None
    # What is asked for weeks ahead counts from when it begins.
    ruling = rule(replace(notice, time=begins or notice.time), here)
    course, reason = _course(notice, policy, ruling, seen.owner, seen.instance, begins)
    terms = Terms(ruling.deadline, ruling.on_blocked)
    replacement = _replacement(notice, policy, ruling, seen) if course in DRAINS else None
    unasked = "EC2 knows no such instance" if seen.asked else "EC2 was not asked"
    why_no_replacement = unasked if course in DRAINS else "the node is not retired"
    owner = seen.owner
    return InstancePlan(
        instance=seen.instance,
        cluster=seen.facts.cluster if seen.facts else "",
        owner=f"{owner.kind} {owner.name}".strip() if owner else "",
        node=seen.node.name if seen.node else "",
        node_reason=seen.node_reason,
        course=course,
        reason=reason,
        ruling=ruling,
        policy_source=policy_source,
        begins_at=begins,
        replacement=replacement.method if replacement else "",
        replacement_reason=replacement.reason if replacement else why_no_replacement,
        replacement_first=replacement.before if replacement else False,
        remarks=tuple(_remarks(notice, policy, course, seen)),
        pods=tuple(
            plan_pod(pod, terms, begins or notice.time) for pod in seen.pods if course in DRAINS
        ),
    )


def _course(
    notice: Notice,
    policy: ClusterPolicy,
    ruling: Ruling,
    owner: Owner | None,
    instance: str,
    begins: datetime | None,
) -> tuple[PlannedAction, str]:
    if notice.state == "running":
        undone = "what a retirement put on its node is taken off, if one did"
        return PlannedAction.UNDO, f"an instance that is running is not on its way out: {undone}"
    if owner is not None and owner.retires_itself and not _is_taken(policy, owner):
        return PlannedAction.LEAVE, f"{owner.kind} {owner.name}".strip() + " sees to its own nodes"
    if instance in notice.over:
        return PlannedAction.UNDO, "what was announced is called off or done"
    match ruling.action:
        case Action.IGNORE:
            return PlannedAction.IGNORE, ruling.reason
        case Action.ADMIT:
            return (
                PlannedAction.ADMIT,
                f"{ruling.reason}: its hook is completed when its node is Ready",
            )
        case Action.CORDON:
            return PlannedAction.CORDON, ruling.reason
        case _ if begins is not None:
            return PlannedAction.SCHEDULE, f"{ruling.reason}, ahead of what is announced"
        case _:
            return PlannedAction.RETIRE, ruling.reason


def _is_taken(policy: ClusterPolicy, owner: Owner) -> bool:
    return owner.kind in policy.retires_for and owner.kind is not OwnerKind.FARGATE


def _replacement(
    notice: Notice, policy: ClusterPolicy, ruling: Ruling, seen: InstanceFindings
) -> Decision | None:
    if seen.facts is None:
        return None
    owner = seen.facts.owner
    return decide_replacement(
        notice.kind, ruling.replacement, owner, seen.group, taken=_is_taken(policy, owner)
    )


def _remarks(
    notice: Notice, policy: ClusterPolicy, course: PlannedAction, seen: InstanceFindings
) -> Iterator[str]:
    if policy.dry_run:
        yield "the cluster is on dry run: all of this is only reported"
    if notice.kind not in VOLUNTARY or course not in DRAINS:
        return
    if policy.paused:
        yield "the cluster is paused: this waits until it is resumed"
    cap = policy.churn
    minutes = int(cap.within.total_seconds() // 60)
    yield (
        f"it waits for its turn: at most {cap.percent} % of the nodes (at least {cap.at_least}) "
        f"leave of choice in {minutes} minutes"
    )
    for pod in seen.pods:
        if pod.protected_until is not None and notice.time < pod.protected_until:
            yield f"pod {pod.key} asks not to be disrupted: this waits for it"
