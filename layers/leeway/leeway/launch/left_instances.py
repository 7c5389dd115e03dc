"""Decides about launched instances whose admission never ran, died, or ended without a node, and
about those whose Node was deleted.

The admission or the retirement decides whether an instance is terminated. Here it is only started.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.admission.readiness import CLOCKS_DIFFER_BY
from leeway.admission.record import (
    Admission,
    AdmissionRequest,
    AdmissionResult,
    Launch,
    repeated_launch_request,
)
from leeway.execution.attempt import OVERDUE
from leeway.instances.observed import ObservedInstance
from leeway.instances.owners import OwnerKind
from leeway.launch import reasons
from leeway.launch.intent import JOIN_WITHIN, REPEAT_WITHIN, LaunchIntent
from leeway.reasons import Reason
from leeway.retirement.reasons import NODE_DELETED
from leeway.retirement.record import ENDED_WITHOUT_NODE_AFTER, Retirement
from leeway.selection.labels import CAPACITY_TYPE, NODEPOOL

ADMITTED_AGAIN_AFTER = timedelta(hours=1)
"""How long after an admission ended without a node it is repeated: a missing permission to
terminate the instance, for example, may have been granted."""

RETURNED_AGAIN_AFTER = timedelta(minutes=10)
"""How long after the retirement of an instance without a Node ended it is repeated: the cluster or
EC2 may not have answered."""

WATCHED_FOR = timedelta(days=29)
"""How long after its launch an instance is checked: admission records are kept for 30 days."""


@dataclass(frozen=True, slots=True)
class LeftInstance:
    """A launched instance that needs an admission (`request`), or a person (None)."""

    reason: Reason
    request: AdmissionRequest | None = None


def may_be_left(observed: ObservedInstance, now: datetime) -> bool:
    """Whether the records of an instance are to be checked. EKS tags an instance that joins, so
    most need no read."""
    age = now - observed.launched_at
    return (
        observed.facts.owner.kind is OwnerKind.LEEWAY
        and not observed.group
        and not observed.facts.joined
        and observed.state in {"pending", "running"}
        and REPEAT_WITHIN <= age < WATCHED_FOR
    )


def check_left_instance(
    observed: ObservedInstance,
    admission: Admission | None,
    intents: Collection[LaunchIntent],
    now: datetime,
) -> LeftInstance | None:
    """Check an instance that may be left; None if there is nothing to do now.

    An instance without an admission and without a launch intent that names it is only reported:
    everybody with the right to tag instances can write its tags.
    """
    instance = observed.facts.instance
    if admission is not None:
        return _of_admission(admission, now)
    intent = next((one for one in intents if one.id == observed.intent), None)
    if intent is None or not _launched(intent, observed):
        if now - observed.launched_at < JOIN_WITHIN:
            return None
        pool = observed.facts.owner.name
        return LeftInstance(reasons.LAUNCH_UNKNOWN(instance=instance, pool=pool))
    if now < intent.created_at + REPEAT_WITHIN:
        return None
    return LeftInstance(
        reasons.ADMISSION_NEVER_BEGAN(instance=instance, pool=intent.pool),
        _request(intent, observed, now),
    )


def has_joined(observed: ObservedInstance) -> bool:
    """Whether an instance that runs has joined, by the tags that only EC2 and EKS write, and is
    Leeway's, by its other tags."""
    facts = observed.facts
    own = facts.owner.kind is OwnerKind.LEEWAY and not observed.group
    return own and facts.joined and facts.from_fleet and observed.state == "running"


def have_vanished(without_node: int, joined: int) -> bool:
    """Whether so many of the joined instances have no Node that the API server may have lost its
    objects: more than half of them, and more than one."""
    return without_node > 1 and 2 * without_node > joined


def check_deleted_node(
    observed: ObservedInstance,
    admission: Admission | None,
    retirement: Retirement | None,
    now: datetime,
) -> Reason | None:
    """Check an instance that has joined and that the cluster has no Node for; None if there is
    nothing to do now. NODE_DELETED: it is to be returned. LAUNCH_UNKNOWN: no record says that
    Leeway launched it, so a person has to look at it."""
    facts = observed.facts
    instance, pool = facts.instance, facts.owner.name
    launch = admission.launch if admission is not None else None
    if admission is None or launch is None or admission.facts.cluster != facts.cluster:
        return reasons.LAUNCH_UNKNOWN(instance=instance, pool=pool)
    if (launch.pool, launch.intent) != (pool, observed.intent):
        return reasons.LAUNCH_UNKNOWN(instance=instance, pool=pool)
    if admission.is_open or (retirement is not None and _covers(retirement, now)):
        return None
    return NODE_DELETED(
        instance=instance,
        pool=pool,
        cluster=facts.cluster,
        minutes=ENDED_WITHOUT_NODE_AFTER.total_seconds() / 60,
    )


def _covers(retirement: Retirement, now: datetime) -> bool:
    ended_at = retirement.ended_at
    return retirement.is_open or (ended_at is not None and now < ended_at + RETURNED_AGAIN_AFTER)


def _of_admission(admission: Admission, now: datetime) -> LeftInstance | None:
    if admission.launch is None or admission.result is AdmissionResult.ADMITTED:
        return None
    instance = admission.instance
    if admission.is_open:
        if now <= admission.deadline + OVERDUE:
            return None
        reason = reasons.LAUNCH_ADMISSION_DIED(instance=instance)
    else:
        ended_at = admission.ended_at or admission.deadline
        if now < ended_at + ADMITTED_AGAIN_AFTER:
            return None
        reason = reasons.LAUNCHED_WITHOUT_NODE(instance=instance, pool=admission.launch.pool)
    return LeftInstance(reason, repeated_launch_request(admission, now))


def _launched(intent: LaunchIntent, observed: ObservedInstance) -> bool:
    """Whether an intent can have launched an instance whose tag names it."""
    named = {one.instance for one in intent.instances}
    facts = observed.facts
    return (
        intent.cluster == facts.cluster
        and intent.pool == facts.owner.name
        and observed.launched_at >= intent.created_at - CLOCKS_DIFFER_BY
        and (not intent.is_answered or facts.instance in named)
    )


def _request(intent: LaunchIntent, observed: ObservedInstance, now: datetime) -> AdmissionRequest:
    instance = observed.facts.instance
    return AdmissionRequest(
        id=f"left-{intent.id}",
        requested_at=now,
        deadline=max(intent.created_at + JOIN_WITHIN, now),
        reason=reasons.NODE_LAUNCHED(instance=instance, pool=intent.pool),
        launch=Launch(intent=intent.id, pool=intent.pool, at=intent.created_at),
        labels={
            **intent.labels_for_admission,
            NODEPOOL: intent.pool,
            CAPACITY_TYPE: observed.facts.capacity_type,
        },
        taints=intent.taints_for_admission,
        startup_taints=intent.startup_taints,
    )
