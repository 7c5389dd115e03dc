"""One pod of a drain: the decision about it, its latest moment, and the API server's answers."""

import math
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Controller, Pod, Response
from leeway.reasons import Reason, clause, counted
from leeway.retirement.reasons import (
    BUDGET_BLOCKS,
    EVICTION_DENIED,
    EVICTION_FAILED,
    POD_COMES_BACK,
    POD_DOES_NOT_END,
    POD_EVICTED,
    POD_GONE,
    POD_STAYS,
    POD_TERMINATING,
    POD_TO_EVICT,
    SEVERAL_BUDGETS,
)

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
DAEMONSET = "DaemonSet"


class PodAction(StrEnum):
    """What the drain does with a pod."""

    LEAVE = "leave"
    EVICT = "evict"
    AWAIT = "await"
    RETURNED = "returned"


class Refusal(StrEnum):
    """Why `kubectl drain` refuses a pod; the values are the flags that allow it."""

    DAEMONSET = "--ignore-daemonsets"
    EMPTY_DIR = "--delete-emptydir-data"
    UNMANAGED = "--force"


@dataclass(frozen=True, slots=True)
class PodDecision:
    """A pod, what the drain does with it, and why.

    `warning` is the loss that the eviction causes, in words; `refusals` are why `kubectl drain`
    would refuse the pod, in its order.
    """

    pod: Pod
    action: PodAction
    reason: Reason
    warning: str = ""
    refusals: tuple[Refusal, ...] = ()


SKIP_DELETED_FOR = timedelta(minutes=5)
"""A drain does not wait for a pod whose deletion was due longer ago than this: it cannot make the
pod end sooner."""


def decide_pod(
    pod: Pod,
    now: datetime,
    returned: bool = False,
    skip_deleted_for: timedelta | None = SKIP_DELETED_FOR,
    persists: bool = False,
) -> PodDecision:
    """Decide what a drain does with one pod of its node.

    `returned` says that the pod appeared after the cordon, and that the drain has evicted a pod of
    its workload before. `persists` says that several pods of the workload did so, and that the
    drain evicted them. Source: `kubectl drain`'s filters.
    """
    if pod.mirror:
        return PodDecision(
            pod,
            PodAction.LEAVE,
            POD_STAYS("it is a static pod, which the kubelet runs until the machine stops"),
        )
    if pod.controller is not None and pod.controller.kind == DAEMONSET:
        return _decide_daemon(pod, pod.controller, now, skip_deleted_for)
    warning, refusals = _loss(pod)
    if pod.deletion is not None:
        decision = _decide_terminating(pod, pod.deletion, now, skip_deleted_for)
        return replace(decision, refusals=refusals)
    if pod.phase in FINISHED_PHASES:
        return PodDecision(
            pod,
            PodAction.EVICT,
            POD_TO_EVICT(f"It has finished ({pod.phase}), and no budget protects it."),
        )
    if returned and pod.cordon_toleration is not None:
        reason = POD_COMES_BACK(f"its toleration {pod.cordon_toleration} ignores the cordon")
        return PodDecision(pod, PodAction.RETURNED, reason, refusals=refusals)
    if persists:
        reason = POD_COMES_BACK(
            f"pods of {pod.workload} came back repeatedly, because their spec names this node"
        )
        return PodDecision(pod, PodAction.RETURNED, reason, refusals=refusals)
    reason = POD_TO_EVICT("Then it runs on another node.")
    if pod.critical:
        reason = POD_TO_EVICT(
            f"It comes after the ordinary pods, because its priority class is {pod.priority_class}."
        )
    return PodDecision(pod, PodAction.EVICT, reason, warning, refusals)


def keeps_node_in_use(pod: Pod, now: datetime) -> bool:
    """Return whether a node with this pod is not empty: it does not count if it has finished, or
    if it is static, deleted long ago, or of a DaemonSet."""
    of_daemonset = pod.controller is not None and pod.controller.kind == DAEMONSET
    leaves = decide_pod(pod, now).action is PodAction.LEAVE
    return not (of_daemonset or leaves or pod.phase in FINISHED_PHASES)


def overdue_deletion(pod: Pod, now: datetime, skip_deleted_for: timedelta | None) -> Reason | None:
    """Return why the drain does not wait for a terminating pod any longer; None if it waits."""
    if pod.deletion is None or skip_deleted_for is None or now - pod.deletion <= skip_deleted_for:
        return None
    minutes = int((now - pod.deletion).total_seconds() // 60)
    reason = POD_DOES_NOT_END(
        f"Its deletion was due {counted(minutes, 'minute')} ago: the drain does not wait for it."
    )
    return reason.and_then(kept_by_finalizers(pod)) if pod.kept_by else reason


def kept_by_finalizers(pod: Pod) -> Reason:
    """Return the reason that names the finalizers of a pod that has ended."""
    return POD_DOES_NOT_END(
        f"It has ended, but its finalizers keep the object: {', '.join(pod.kept_by)}."
    )


def _decide_daemon(
    pod: Pod, controller: Controller, now: datetime, skip_deleted_for: timedelta | None
) -> PodDecision:
    name = f"DaemonSet {pod.namespace}/{controller.name}"
    finished = pod.phase in FINISHED_PHASES
    if controller.exists is not False:
        refusals = () if finished else (Refusal.DAEMONSET,)
        reason = POD_STAYS(f"{name} would create it again on this node")
        if controller.exists is None and controller.problem:
            reason = POD_STAYS(f"Leeway cannot read whether {name} exists: {controller.problem}")
        return PodDecision(pod, PodAction.LEAVE, reason, refusals=refusals)
    refusals = () if finished else (Refusal.UNMANAGED,)
    if pod.deletion is not None:
        decision = _decide_terminating(pod, pod.deletion, now, skip_deleted_for)
        return replace(decision, refusals=refusals)
    detail = f" ({controller.problem})" if controller.problem else ""
    reason = POD_TO_EVICT(
        f"It belongs to {name}, which does not exist{detail}: nothing creates it again."
    )
    return PodDecision(pod, PodAction.EVICT, reason, refusals=refusals)


def _decide_terminating(
    pod: Pod, deletion: datetime, now: datetime, skip_deleted_for: timedelta | None
) -> PodDecision:
    if overdue := overdue_deletion(pod, now, skip_deleted_for):
        return PodDecision(pod, PodAction.LEAVE, overdue)
    return PodDecision(
        pod,
        PodAction.AWAIT,
        POD_TERMINATING(f"Its grace period ends at {deletion:%H:%M:%S}."),
    )


def _loss(pod: Pod) -> tuple[str, tuple[Refusal, ...]]:
    """Return what an eviction loses, in words, and why `kubectl drain` would refuse it."""
    if pod.phase in FINISHED_PHASES:
        return "", ()
    losses: dict[Refusal, str] = {}
    if pod.empty_dir:
        losses[Refusal.EMPTY_DIR] = "its emptyDir data is lost"
    if pod.controller is None:
        losses[Refusal.UNMANAGED] = "no controller creates it again"
    return "; ".join(losses.values()), tuple(losses)


GRACE_CAP = timedelta(seconds=45)
"""The most of a pod's grace period that is reserved before the deadline while a budget blocks the
pod."""

DETACH_TIME = timedelta(seconds=20)
"""The time that is reserved besides for a pod with volumes. They are detached after the pod has
ended; a volume that is not detached in time delays the pod's successor by minutes."""

REQUEST_TIME = timedelta(seconds=2)
"""The time that is reserved for every pod, also without a grace period, for the request itself."""

SHORTEST_GRACE = 1
"""Seconds. Zero would be a forced deletion, which skips the kubelet's SIGTERM."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The rules of a drain. Without a deadline, no grace period is shortened and no budget is
    bypassed.

    `grace` is a grace period in seconds that replaces every pod's own, None for the pods' own.
    `bypass_budgets` deletes pods at once instead of evicting them. The drain does not wait for a
    pod whose deletion was due longer ago than `skip_deleted_for` (None: it waits for every pod).
    A pod that appears during the drain and has one of these `refused` refusals stays, and the
    drain fails.

    A drain with a deadline waits until the volumes of its pods are detached; with
    `waits_for_volumes`, so does a drain without one. With `keeps_protected`, it evicts a pod whose
    annotation forbids disruption at its latest moment only, as Karpenter does.

    `held` are the UIDs of pods that wait for an additional pod of their workload, until their
    latest moment. `covered` are those that are deleted: the additional pod serves, and their budget
    allows no eviction at any size.
    """

    deadline: datetime | None = None
    on_blocked: OnBlocked = OnBlocked.WAIT
    grace: int | None = None
    bypass_budgets: bool = False
    skip_deleted_for: timedelta | None = SKIP_DELETED_FOR
    refused: frozenset[Refusal] = frozenset()
    waits_for_volumes: bool = False
    keeps_protected: bool = False
    held: frozenset[str] = frozenset()
    covered: frozenset[str] = frozenset()

    def keeps(self, pod: Pod, now: datetime) -> bool:
        """Whether an annotation keeps a pod for now: it is not evicted before its latest moment."""
        protected = pod.protected_until is not None and now < pod.protected_until
        return self.keeps_protected and protected and not self.bypass_budgets


def latest_moment(pod: Pod, terms: Terms) -> datetime | None:
    """Return when a blocked pod must be removed to end in time; None without a deadline."""
    if terms.deadline is None:
        return None
    # Kubernetes accepts grace periods of millions of years, which timedelta does not.
    reserved = timedelta(seconds=min(_grace(pod, terms), GRACE_CAP.total_seconds()))
    return terms.deadline - max(reserved, REQUEST_TIME) - _detach_time(pod)


def grace_that_fits(pod: Pod, terms: Terms, now: datetime) -> int | None:
    """Return the grace period in seconds to request, None for the pod's own.

    A grace period that ends after the deadline is shortened to the time that is left, so that the
    kubelet ends the pod, and its volumes are detached, before EC2 ends the instance, or the
    retirement does at its deadline. To decide whether it is shortened, a part of a second counts as
    a whole second, so that a request some milliseconds after the latest moment shortens nothing.
    """
    if terms.deadline is None:
        return terms.grace
    own = _grace(pod, terms)
    left = (terms.deadline - _detach_time(pod) - now).total_seconds()
    if own <= math.ceil(left):
        return terms.grace
    return min(own, max(math.floor(left), SHORTEST_GRACE))


def _detach_time(pod: Pod) -> timedelta:
    return DETACH_TIME if pod.claims else timedelta(0)


def _grace(pod: Pod, terms: Terms) -> int:
    return pod.grace if terms.grace is None else terms.grace


class Meaning(StrEnum):
    """The kinds of answer that a drain handles differently."""

    ACCEPTED = "accepted"
    GONE = "gone"
    BLOCKED = "blocked"
    TERMINATING = "terminating"
    THROTTLED = "throttled"
    NOT_EVICTABLE = "not-evictable"
    DENIED = "denied"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class Answer:
    """A classified answer. `budgets` are the names of the PodDisruptionBudgets that block the
    eviction; `retry_after` are the seconds after which the request may be repeated."""

    meaning: Meaning
    reason: Reason
    retry_after: int | None = None
    budgets: tuple[str, ...] = ()


_BUDGET = re.compile(r"disruption budget (\S+) ")

_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
"""A part of kube-apiserver's message for a pod that several budgets select."""

_LONGEST_MESSAGE = 200
"""Characters of an unexpected answer that a reason contains."""


def read_answer(response: Response) -> Answer:
    """Classify the answer to `pods/eviction` or to a pod's DELETE.

    Source: recorded answers of kube-apiserver; Kubernetes documentation, "API-initiated eviction".
    """
    causes = dict(response.causes)
    message = clause(response.message)
    match response.status:
        case 200 | 201 | 202:
            return Answer(Meaning.ACCEPTED, POD_EVICTED())
        case 404:
            return Answer(Meaning.GONE, POD_GONE(""))
        case 409 if "precondition" in response.message:
            return Answer(Meaning.GONE, POD_GONE(" Another pod has its name now."))
        case 429 if "DisruptionBudget" in causes:
            cause = causes["DisruptionBudget"]
            reason = BUDGET_BLOCKS(answer=clause(cause))
            return Answer(Meaning.BLOCKED, reason, budgets=tuple(_BUDGET.findall(cause)))
        case 429:
            return Answer(
                Meaning.THROTTLED,
                EVICTION_FAILED("the API server throttles it"),
                response.retry_after,
            )
        case 403 if "NamespaceTerminating" in causes:
            cause = clause(causes["NamespaceTerminating"])
            return Answer(
                Meaning.TERMINATING,
                POD_TERMINATING(f"Its namespace is being deleted: {cause}."),
            )
        case 400 | 403 | 405 | 422:
            return Answer(Meaning.DENIED, EVICTION_DENIED(answer=message))
        case 500 if _SEVERAL_BUDGETS in response.message:
            return Answer(Meaning.NOT_EVICTABLE, SEVERAL_BUDGETS(budgets="names not read yet"))
        case 0:
            reason = EVICTION_FAILED(f"{message or 'the connection was lost'}")
            return Answer(Meaning.TRANSIENT, reason, response.retry_after)
        case status:
            reason = EVICTION_FAILED(f"{f'{status}: {message}'[:_LONGEST_MESSAGE]}")
            return Answer(Meaning.TRANSIENT, reason, response.retry_after)
