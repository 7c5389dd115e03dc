"""The plan of a notice for `leeway explain`: the decisions of a retirement, without acting."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.durations import render_duration
from leeway.instances.facts import GroupFacts, InstanceFacts, Owner, owner_of
from leeway.interruption.receive_notice import OWNER_RETIRES_NODE, RETIREMENT_SCHEDULED
from leeway.notices import Notice
from leeway.policy.rules import (
    SAFETY_MARGIN,
    SPOT_WARNING,
    VOLUNTARY,
    Action,
    ClusterPolicy,
    Ruling,
    begins_at,
    rule,
)
from leeway.ports.kubernetes_objects import PROTECTS_POD, Node, Pod
from leeway.reasons import Reason, counted
from leeway.retirement.decide_replacement import BY_GROUP, ReplacementDecision, decide_replacement
from leeway.retirement.decide_surge import SURGING
from leeway.retirement.pods import PodAction, Terms, decide_pod, grace_that_fits, latest_moment
from leeway.retirement.record import INTERRUPTIONS


@dataclass(frozen=True, slots=True)
class PodPlan:
    """The plan for one pod. `grace` is the grace period that it would get, in seconds."""

    pod: str
    action: PodAction
    reason: Reason
    warning: str
    critical: bool
    latest: datetime | None
    grace: int


class PlannedAction(StrEnum):
    """What Leeway does with one instance after a notice."""

    IGNORE = "ignore"
    LEAVE = "leave-to-owner"
    UNDO = "undo"
    ADMIT = "admit"
    SCHEDULE = "schedule"
    CORDON = "cordon"
    RETIRE = "retire"


DRAINS = frozenset({PlannedAction.SCHEDULE, PlannedAction.RETIRE})
"""The actions that evict pods, now or later."""


@dataclass(frozen=True, slots=True)
class InstanceFindings:
    """What was read about one instance.

    `facts` and `group` are None if EC2 was not read (`ec2_read`) or knows no such instance. `node`
    is None if none was searched for or found; `node_reason` says why. `surges` says of pods that
    budgets keep whether their workloads get one more pod first. `delays` are the deregistration
    delays of the target groups that have the instance, by their names; `targets_unread` is why they
    are not known.
    """

    instance: str
    facts: InstanceFacts | None
    group: GroupFacts | None
    node: Node | None
    node_reason: str
    pods: tuple[Pod, ...] = ()
    ec2_read: bool = False
    surges: tuple[str, ...] = ()
    delays: Mapping[str, timedelta] = field(default_factory=dict)
    targets_unread: str = ""

    @property
    def owner(self) -> Owner | None:
        """The owner by the instance's tags, or else by its node's labels."""
        if self.facts is not None:
            return self.facts.owner
        return owner_of({}, self.node.labels) if self.node else None


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """The plan for one instance.

    `node` is empty if none was found or searched for. `begins_at` is when a retirement begins that
    does not begin at once. `remarks` are conditions of the plan: pauses, budgets, annotations.
    """

    instance: str
    cluster: str
    owner: str
    node: str
    node_reason: str
    action: PlannedAction
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
    """A notice, the ruling on it by the default policy, and the plan for each of its instances."""

    notice: Notice
    ruling: Ruling
    instances: tuple[InstancePlan, ...]


def plan_pod(pod: Pod, terms: Terms, now: datetime) -> PodPlan:
    """Plan one pod for a drain that begins at `now`."""
    decision = decide_pod(pod, now)
    evicted = decision.action is PodAction.EVICT
    grace = grace_that_fits(pod, terms, now)
    return PodPlan(
        pod=pod.key,
        action=decision.action,
        reason=decision.reason,
        warning=decision.warning,
        critical=pod.critical,
        latest=latest_moment(pod, terms) if evicted else None,
        grace=pod.grace if grace is None else grace,
    )


def plan_instance(
    notice: Notice, policy: ClusterPolicy, policy_source: str, found: InstanceFindings
) -> InstancePlan:
    """Plan one instance, as if the notice arrived at its own time."""
    rules = policy.notices[notice.kind]
    begins = begins_at(notice, rules)
    if begins is not None and begins <= notice.time:
        begins = None
    # The time of a retirement that is announced weeks ahead counts from when it begins.
    ruling = rule(replace(notice, time=begins or notice.time), rules)
    action, reason = _plan_action(notice, policy, ruling, found, begins)
    terms = Terms(ruling.deadline, ruling.on_blocked)
    drains = action in DRAINS
    replacement = _replacement(notice, ruling, found) if drains else None
    owner = found.owner
    return InstancePlan(
        instance=found.instance,
        cluster=found.facts.cluster if found.facts else "",
        owner=f"{owner.kind} {owner.name}".strip() if owner else "",
        node=found.node.name if found.node else "",
        node_reason=found.node_reason,
        action=action,
        reason=reason,
        ruling=ruling,
        policy_source=policy_source,
        begins_at=begins,
        replacement=replacement.method if replacement else "",
        replacement_reason=(
            str(replacement.reason) if replacement else _why_no_replacement(found, drains)
        ),
        replacement_first=replacement.before if replacement else False,
        remarks=tuple(_remarks(notice, policy, replacement, drains, found, ruling.deadline)),
        pods=tuple(plan_pod(pod, terms, begins or notice.time) for pod in found.pods if drains),
    )


def _why_no_replacement(found: InstanceFindings, drains: bool) -> str:
    if not drains:
        return "The node is not retired."
    if found.ec2_read:
        return f"EC2 knows no instance {found.instance}, so its replacement is unknown."
    return "EC2 was not read, so the replacement of the instance is unknown."


def _plan_action(
    notice: Notice,
    policy: ClusterPolicy,
    ruling: Ruling,
    found: InstanceFindings,
    begins: datetime | None,
) -> tuple[PlannedAction, str]:
    owner, why = found.owner, ruling.reason
    if notice.state == "running":
        marks = (
            "The instance is running: the marks of an earlier retirement are removed from its node."
        )
        return PlannedAction.UNDO, marks
    if owner is not None and not policy.retires_nodes_of(owner):
        name = f"{owner.kind} {owner.name}".strip()
        return PlannedAction.LEAVE, str(OWNER_RETIRES_NODE(owner=name))
    if found.instance in notice.over:
        over = "The announced change is cancelled or completed: the retirement is undone."
        return PlannedAction.UNDO, over
    match ruling.action:
        case Action.IGNORE:
            return PlannedAction.IGNORE, f"The notice is ignored. {why}"
        case Action.ADMIT:
            ready = "its launch hook is completed when its node is Ready"
            return PlannedAction.ADMIT, f"The instance is admitted: {ready}. {why}"
        case Action.CORDON:
            return PlannedAction.CORDON, f"The node is cordoned and not drained. {why}"
        case _ if begins is not None:
            return PlannedAction.SCHEDULE, f"{RETIREMENT_SCHEDULED(time=begins)} {why}"
        case _:
            return PlannedAction.RETIRE, f"The instance is retired. {why}"


def _replacement(
    notice: Notice, ruling: Ruling, found: InstanceFindings
) -> ReplacementDecision | None:
    if found.facts is None:
        return None
    return decide_replacement(notice.kind, ruling.replacement, found.facts.owner, found.group)


def _remarks(
    notice: Notice,
    policy: ClusterPolicy,
    replacement: ReplacementDecision | None,
    drains: bool,
    found: InstanceFindings,
    deadline: datetime | None,
) -> Iterator[str]:
    if policy.dry_run:
        yield "The cluster is on dry run: Leeway reports this plan and does not apply it."
    if policy.groups_may_use_pools and replacement and replacement.method in BY_GROUP:
        yield (
            "If EC2 has no capacity for the group in any zone, Leeway's pools launch nodes for the "
            "pods instead."
        )
    if drains and policy.waits_for_targets:
        yield from _load_balancers(notice, found, deadline)
    if notice.kind not in VOLUNTARY or not drains:
        return
    if policy.paused:
        yield "The cluster is paused: the retirement waits until it is resumed."
    cap = policy.churn
    minutes = int(cap.within.total_seconds() // 60)
    yield (
        f"The retirement waits for the disruption budget: at most {cap.percent} % of the nodes "
        f"(at least {cap.at_least}) are retired voluntarily within "
        f"{counted(minutes, 'minute')}."
    )
    if notice.kind in SURGING:
        yield from found.surges
    for pod in found.pods:
        if pod.protected_until is not None and notice.time < pod.protected_until:
            yield f"Pod {pod.key} has the annotation {PROTECTS_POD}: the retirement waits for it."


def _load_balancers(
    notice: Notice, found: InstanceFindings, deadline: datetime | None
) -> Iterator[str]:
    """Say how long load balancers keep their connections to the instance, and what ends them."""
    if found.targets_unread:
        yield f"The targets of load balancers are not known: {found.targets_unread}"
    if not found.delays:
        return
    longest = max(found.delays.values())
    one = len(found.delays) == 1
    keep = (
        f"Target {'group' if one else 'groups'} {', '.join(sorted(found.delays))} "
        f"{'has' if one else 'have'} the instance, and {'keeps' if one else 'keep'} connections to "
        f"it for {render_duration(longest)} at most after it is deregistered"
    )
    if notice.kind in INTERRUPTIONS:
        has = deadline + SAFETY_MARGIN - notice.time if deadline else SPOT_WARNING
        lacks = [
            f"{name} lacks at least {render_duration(delay - has)}"
            for name, delay in sorted(found.delays.items())
            if delay > has
        ]
        ends = f"EC2 ends it {render_duration(has)} after the notice"
        yield f"{keep}: {', so '.join([ends, ' and '.join(lacks)] if lacks else [ends])}."
        return
    until = f", but not beyond {deadline:%Y-%m-%d %H:%M:%S} UTC" if deadline else ""
    yield f"{keep}: after the drain, Leeway waits for that{until}."
