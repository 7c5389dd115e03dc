"""The plan of a notice for `leeway explain`: the decisions of a retirement, without acting."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from leeway.drain.deadline import Terms, grace_that_fits, latest_moment
from leeway.drain.decide_pod import PodAction, decide_pod
from leeway.instances.facts import InstanceFacts
from leeway.instances.groups import GroupFacts
from leeway.instances.owners import Owner, OwnerKind, owner_of
from leeway.interruption.reasons import OWNER_RETIRES_NODE, RETIREMENT_SCHEDULED
from leeway.notices import Notice
from leeway.policy.rules import VOLUNTARY, Action, ClusterPolicy, Ruling, begins_at, rule
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Node, Pod
from leeway.reasons import Reason
from leeway.replacement.decide import BY_GROUP, ReplacementDecision, decide_replacement
from leeway.retire_node.reasons import (
    BUDGET_APPLIES,
    CLUSTER_DRY_RUN,
    CORDON_PLANNED,
    EC2_NOT_READ,
    INSTANCE_ADMITTED,
    INSTANCE_NOT_FOUND,
    INSTANCE_RUNNING,
    NODE_NOT_RETIRED,
    NOTICE_IGNORED,
    NOTICE_WITHDRAWN,
    POD_FORBIDS_DISRUPTION,
    POOLS_MAY_REPLACE,
    RETIREMENT_PAUSED,
    RETIREMENT_PLANNED,
)


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
    is None if none was searched for or found; `node_reason` says why.
    """

    instance: str
    facts: InstanceFacts | None
    group: GroupFacts | None
    node: Node | None
    node_reason: str
    pods: tuple[Pod, ...] = ()
    ec2_read: bool = False

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
    reason: Reason
    ruling: Ruling
    policy_source: str
    begins_at: datetime | None
    replacement: str
    replacement_reason: Reason
    replacement_first: bool
    remarks: tuple[Reason, ...]
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
    replacement = _replacement(notice, policy, ruling, found) if drains else None
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
            replacement.reason if replacement else _why_no_replacement(found, drains)
        ),
        replacement_first=replacement.before if replacement else False,
        remarks=tuple(_remarks(notice, policy, replacement, drains, found)),
        pods=tuple(plan_pod(pod, terms, begins or notice.time) for pod in found.pods if drains),
    )


def _why_no_replacement(found: InstanceFindings, drains: bool) -> Reason:
    if not drains:
        return NODE_NOT_RETIRED()
    return INSTANCE_NOT_FOUND(instance=found.instance) if found.ec2_read else EC2_NOT_READ()


def _plan_action(
    notice: Notice,
    policy: ClusterPolicy,
    ruling: Ruling,
    found: InstanceFindings,
    begins: datetime | None,
) -> tuple[PlannedAction, Reason]:
    owner, why = found.owner, ruling.reason
    if notice.state == "running":
        return PlannedAction.UNDO, INSTANCE_RUNNING()
    if owner is not None and owner.retires_itself and not _leeway_retires(policy, owner):
        name = f"{owner.kind} {owner.name}".strip()
        return PlannedAction.LEAVE, OWNER_RETIRES_NODE(owner=name)
    if found.instance in notice.over:
        return PlannedAction.UNDO, NOTICE_WITHDRAWN()
    match ruling.action:
        case Action.IGNORE:
            return PlannedAction.IGNORE, NOTICE_IGNORED().and_then(why)
        case Action.ADMIT:
            return PlannedAction.ADMIT, INSTANCE_ADMITTED().and_then(why)
        case Action.CORDON:
            return PlannedAction.CORDON, CORDON_PLANNED().and_then(why)
        case _ if begins is not None:
            return PlannedAction.SCHEDULE, RETIREMENT_SCHEDULED(time=begins).and_then(why)
        case _:
            return PlannedAction.RETIRE, RETIREMENT_PLANNED().and_then(why)


def _leeway_retires(policy: ClusterPolicy, owner: Owner) -> bool:
    return owner.kind in policy.retires_for and owner.kind is not OwnerKind.FARGATE


def _replacement(
    notice: Notice, policy: ClusterPolicy, ruling: Ruling, found: InstanceFindings
) -> ReplacementDecision | None:
    if found.facts is None:
        return None
    owner = found.facts.owner
    return decide_replacement(
        notice.kind,
        ruling.replacement,
        owner,
        found.group,
        leeway_retires=_leeway_retires(policy, owner),
    )


def _remarks(
    notice: Notice,
    policy: ClusterPolicy,
    replacement: ReplacementDecision | None,
    drains: bool,
    found: InstanceFindings,
) -> Iterator[Reason]:
    if policy.dry_run:
        yield CLUSTER_DRY_RUN()
    if policy.groups_may_use_pools and replacement and replacement.method in BY_GROUP:
        yield POOLS_MAY_REPLACE()
    if notice.kind not in VOLUNTARY or not drains:
        return
    if policy.paused:
        yield RETIREMENT_PAUSED()
    cap = policy.churn
    minutes = int(cap.within.total_seconds() // 60)
    yield BUDGET_APPLIES(percent=cap.percent, at_least=cap.at_least, minutes=minutes)
    for pod in found.pods:
        if pod.protected_until is not None and notice.time < pod.protected_until:
            yield POD_FORBIDS_DISRUPTION(pod=pod.key, annotation=DO_NOT_DISRUPT)
