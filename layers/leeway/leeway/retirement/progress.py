"""A drain in progress, as a value: the decision, the requests and the answers for every pod."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import PROTECTS_POD, Pod
from leeway.reasons import Reason
from leeway.retirement.pods import (
    Answer,
    Meaning,
    PodAction,
    Terms,
    decide_pod,
    kept_by_finalizers,
    overdue_deletion,
)
from leeway.retirement.reasons import (
    NEEDS_OPTION,
    NODE_NAME_REUSED,
    POD_IS_KEPT,
    POD_TERMINATING,
    SEVERAL_BUDGETS,
    VOLUME_STILL_ATTACHED,
)


class Stage(StrEnum):
    """The stage of a pod. `left`, `gone` and `failed` are final; the drain waits for the others.

    `detaching` is a pod that is gone and whose volumes are still attached to the node.
    """

    LEFT = "left"
    PENDING = "pending"
    BLOCKED = "blocked"
    TERMINATING = "terminating"
    RETURNED = "returned"
    DETACHING = "detaching"
    GONE = "gone"
    FAILED = "failed"


FINAL_STAGES = frozenset({Stage.LEFT, Stage.GONE, Stage.FAILED})

OFF_NODE = frozenset({Stage.DETACHING, Stage.GONE})
"""The stages of a pod that is no longer on the node."""


class RemovalMethod(StrEnum):
    """How a drain removes a pod: by the Eviction API, which respects budgets, by DELETE, or, if the
    pod is terminating already, by a shorter grace period."""

    EVICT = "evict"
    DELETE = "delete"
    SHORTEN = "shorten"


@dataclass(frozen=True, slots=True)
class PodProgress:
    """The progress of one pod. Times are UTC, `grace` is in seconds (None: the pod's own).

    `budgets` are the names of the budgets that blocked the pod, `claims` the volume claims that it
    uses, `attached` the claims whose volumes are not detached from the node yet. `kept_by` are the
    finalizers that keep the object of a pod that has ended. `requested_at` is when the API server
    accepted the eviction or the deletion.
    """

    pod: str
    uid: str
    workload: str
    stage: Stage
    reason: Reason
    warning: str = ""
    method: RemovalMethod | None = None
    grace: int | None = None
    attempts: int = 0
    budgets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    attached: tuple[str, ...] = ()
    kept_by: tuple[str, ...] = ()
    seen_at: datetime | None = None
    blocked_at: datetime | None = None
    next_try_at: datetime | None = None
    requested_at: datetime | None = None
    gone_at: datetime | None = None
    detached_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """The drain of one node. `pods` is by UID, in the order in which the pods were first seen.

    `listed` says that the node's pods were listed before: a pod that is new in a later list
    appeared during the drain. `problem` is why the last list failed. `listed_late` is why the first
    list may lack pods that ended with their machine. `load_balancers` is the result of excluding
    the node from load balancers, None until that was tried.
    """

    listed: bool = False
    problem: Reason | None = None
    listed_late: Reason | None = None
    load_balancers: Reason | None = None
    pods: Mapping[str, PodProgress] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether no request is left to make and no pod left to wait for. A drain whose pods were
        never listed, or whose last list failed, is not over."""
        return (
            self.listed
            and not self.problem
            and all(pod.stage in FINAL_STAGES for pod in self.pods.values())
        )

    @property
    def drained(self) -> bool:
        """Whether every pod that had to be removed is gone, and the first list was complete."""
        failed = any(pod.stage is Stage.FAILED for pod in self.pods.values())
        return self.over and not self.listed_late and not failed

    @property
    def displaced(self) -> bool:
        """Whether another machine got the name of the node."""
        return any(pod.reason.code == NODE_NAME_REUSED.name for pod in self.pods.values())

    @property
    def with_attached_volumes(self) -> tuple[PodProgress, ...]:
        """The pods that are gone and whose volumes were still attached at the end."""
        return tuple(pod for pod in self.at(Stage.GONE) if pod.attached)

    def at(self, *stages: Stage) -> tuple[PodProgress, ...]:
        """Return the pods that are at one of these stages."""
        return tuple(pod for pod in self.pods.values() if pod.stage in stages)

    def with_pod(self, changed: PodProgress) -> "Drain":
        """Return the drain with one pod's progress replaced."""
        return replace(self, pods={**self.pods, changed.uid: changed})


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A request that is due now: the method, the grace period, and the reason that the pod has once
    the API server accepts it."""

    pod: Pod
    method: RemovalMethod
    grace: int | None
    reason: Reason


def is_expired(terms: Terms, now: datetime) -> bool:
    """Whether the deadline has passed."""
    return terms.deadline is not None and now >= terms.deadline


def ended(
    progress: PodProgress, terms: Terms, now: datetime, reason: Reason | None = None
) -> PodProgress:
    """Return a pod that has ended. The drain may wait for its volumes."""
    waits = progress.claims and (terms.deadline is not None or terms.waits_for_volumes)
    return replace(
        progress,
        stage=Stage.DETACHING if waits else Stage.GONE,
        reason=reason or progress.reason,
        attached=progress.claims if waits else (),
        gone_at=now,
    )


def expire(drain: Drain) -> Drain:
    """End the drain of every pod, at the deadline and after the last requests."""
    return replace(drain, pods={uid: _expired(pod) for uid, pod in drain.pods.items()})


def displaced(drain: Drain) -> Drain:
    """End a drain, because another machine has the name of its node.

    A pod that the drain tried to remove and that was not gone counts as failed.
    """
    return replace(drain, pods={uid: _displaced(pod) for uid, pod in drain.pods.items()})


def _displaced(progress: PodProgress) -> PodProgress:
    if progress.stage in FINAL_STAGES:
        return progress
    if progress.stage is Stage.DETACHING:
        return replace(progress, stage=Stage.GONE)
    if not progress.attempts:
        return replace(progress, stage=Stage.LEFT, reason=NODE_NAME_REUSED())
    reason = NODE_NAME_REUSED().and_then(progress.reason)
    return replace(progress, stage=Stage.FAILED, reason=reason)


def _expired(progress: PodProgress) -> PodProgress:
    if progress.stage in FINAL_STAGES:
        return progress
    if progress.stage is Stage.DETACHING:
        attached = VOLUME_STILL_ATTACHED(claims=", ".join(progress.attached))
        return replace(progress, stage=Stage.GONE, reason=attached.and_then(progress.reason))
    # The code stays that of the cause, such as a budget, by which operators search.
    reason = progress.reason.and_then(f"The deadline came while the pod was {progress.stage}.")
    return replace(progress, stage=Stage.FAILED, reason=reason)


_STAGES = {
    PodAction.LEAVE: Stage.LEFT,
    PodAction.EVICT: Stage.PENDING,
    PodAction.AWAIT: Stage.TERMINATING,
    PodAction.RETURNED: Stage.RETURNED,
}


MOST_BINDING_RACES, BINDING_RACE_WINDOW = 2, timedelta(seconds=5)
"""The scheduler may still bind this many pods of a workload to a node, for this long after the
first list, because it did not yet see the cordon. The scheduler did not bind later pods that do not
tolerate the cordon."""


def observe(
    drain: Drain,
    pods: Sequence[Pod],
    terms: Terms,
    now: datetime,
    awaited: Collection[str] = (),
) -> Drain:
    """Update a drain from a complete list of the node's pods.

    `awaited` are the UIDs of the pods whose eviction or deletion is not answered yet. The list may
    show the effect before the answer arrives: the pods terminate, and others replace them.
    """
    listed = {pod.uid for pod in pods}
    terminating = {pod.uid for pod in pods if pod.deletion is not None}
    seen = dict(drain.pods)
    for uid, known in drain.pods.items():
        final = known.stage in FINAL_STAGES or known.stage is Stage.DETACHING
        if uid not in listed and not final:
            seen[uid] = ended(known, terms, now)
    removed_workloads = {
        known.workload
        for uid, known in drain.pods.items()
        if _was_removed(known) or (uid in awaited and (uid in terminating or uid not in listed))
    }
    for pod in pods:
        known_pod = seen.get(pod.uid)
        if known_pod is None:
            returned = drain.listed and pod.workload in removed_workloads
            seen[pod.uid] = _new_pod(pod, drain, terms, now, returned)
        else:
            seen[pod.uid] = _known_pod(known_pod, pod, terms, now)
    return replace(drain, listed=True, problem=None, pods=seen)


def observe_volumes(
    drain: Drain, pods: Sequence[Pod], attached: Collection[str], now: datetime
) -> Drain:
    """Update a drain from the claims whose volumes are attached to the node.

    The drain does not wait for a volume that a pod uses which stays: nothing detaches it.
    """
    staying = {
        claim for pod in pods if drain.pods[pod.uid].stage is Stage.LEFT for claim in pod.claims
    }
    seen = dict(drain.pods)
    for uid, progress in drain.pods.items():
        if progress.stage is not Stage.DETACHING:
            continue
        left = tuple(c for c in progress.claims if c in attached and c not in staying)
        if left:
            seen[uid] = replace(progress, attached=left)
        else:
            seen[uid] = replace(progress, stage=Stage.GONE, attached=(), detached_at=now)
    return replace(drain, pods=seen)


def without_volumes(drain: Drain, why: Reason) -> Drain:
    """Stop waiting for volumes, because the API server refuses to list what is attached."""
    seen = {
        uid: replace(pod, stage=Stage.GONE, reason=pod.reason.and_then(why))
        if pod.stage is Stage.DETACHING
        else pod
        for uid, pod in drain.pods.items()
    }
    return replace(drain, pods=seen)


def _new_pod(pod: Pod, drain: Drain, terms: Terms, now: datetime, returned: bool) -> PodProgress:
    persists = returned and _bypasses_scheduler(pod.workload, drain, now)
    decision = decide_pod(pod, now, returned, terms.skip_deleted_for, persists)
    stage, reason = _STAGES[decision.action], decision.reason
    if stage is Stage.RETURNED and _returned_before(pod, drain):
        stage = Stage.LEFT
    if stage is Stage.PENDING and terms.keeps(pod, now):
        stage, reason = Stage.BLOCKED, POD_IS_KEPT(annotation=PROTECTS_POD)
    if lacking := [one.value for one in decision.refusals if one in terms.refused]:
        stage, reason = Stage.FAILED, NEEDS_OPTION(options=" and ".join(lacking))
    seen = PodProgress(
        pod.key,
        pod.uid,
        pod.workload,
        stage,
        reason,
        warning=decision.warning,
        claims=pod.claims,
        seen_at=now,
    )
    return _ended_with_finalizers(seen, pod, terms, now) if _has_ended(pod, terms) else seen


def _has_ended(pod: Pod, terms: Terms) -> bool:
    """Whether only finalizers keep the pod's object. `kubectl drain` waits for the object; a drain
    with a deadline waits for as long as the pod needs its machine."""
    return bool(pod.kept_by) and terms.deadline is not None


def _ended_with_finalizers(
    known: PodProgress, pod: Pod, terms: Terms, now: datetime
) -> PodProgress:
    if known.stage in FINAL_STAGES | OFF_NODE:
        return known
    kept_by = replace(known, kept_by=pod.kept_by)
    return ended(kept_by, terms, now, known.reason.and_then(kept_by_finalizers(pod)))


def _known_pod(known: PodProgress, pod: Pod, terms: Terms, now: datetime) -> PodProgress:
    if _has_ended(pod, terms):
        return _ended_with_finalizers(known, pod, terms, now)
    if known.stage in OFF_NODE:
        # The answer was misread, or the list is older than the answer: retry after a pause.
        due = now + retry_delay(pod.uid, known.attempts, terms)
        return replace(known, stage=Stage.PENDING, attached=(), gone_at=None, next_try_at=due)
    if pod.deletion is not None and known.stage in {Stage.PENDING, Stage.BLOCKED}:
        known = replace(
            known,
            stage=Stage.TERMINATING,
            reason=POD_TERMINATING("Another client evicted or deleted it."),
        )
    if pod.kept_by and known.stage is Stage.TERMINATING:
        finalizers = kept_by_finalizers(pod)
        if finalizers.message not in known.reason.message:
            known = replace(known, reason=known.reason.and_then(finalizers))
    if known.stage is Stage.TERMINATING and (
        overdue := overdue_deletion(pod, now, terms.skip_deleted_for)
    ):
        return replace(known, stage=Stage.LEFT, reason=overdue)
    return known


def _bypasses_scheduler(workload: str, drain: Drain, now: datetime) -> bool:
    """Whether the drain removed so many pods of a workload which appeared after the first list that
    further ones can only be there because their spec names the node."""
    first = min((known.seen_at for known in drain.pods.values() if known.seen_at), default=now)
    removed = sum(
        known.workload == workload and known.seen_at != first and _was_removed(known)
        for known in drain.pods.values()
    )
    return removed >= MOST_BINDING_RACES and now - first >= BINDING_RACE_WINDOW


def _was_removed(known: PodProgress) -> bool:
    """Whether this drain removed the pod. A shortened grace period does not count: another client
    had deleted the pod before."""
    return known.requested_at is not None and known.method is not RemovalMethod.SHORTEN


def _returned_before(pod: Pod, drain: Drain) -> bool:
    """Whether the drain removed a returned pod of this workload before; a third time is no use."""
    return any(
        known.workload == pod.workload
        and known.method is RemovalMethod.DELETE
        and known.requested_at is not None
        for known in drain.pods.values()
    )


FIRST_RETRY_DELAY = timedelta(seconds=1)
LONGEST_RETRY_DELAY = timedelta(seconds=5)
"""Between two tries of one pod's eviction; five seconds is also `kubectl drain`'s pause."""


def record_answer(
    drain: Drain, request: PodRequest, answer: Answer, terms: Terms, now: datetime
) -> Drain:
    """Update a drain from the answer to a request, which arrived at `now`."""
    known = drain.pods[request.pod.uid]
    if (
        request.method is RemovalMethod.EVICT
        and known.method is RemovalMethod.DELETE
        and known.requested_at is not None
    ):
        return drain  # the eviction hung, and its answer arrived after the pod was deleted
    attempts = known.attempts + 1
    tried = replace(known, attempts=attempts, method=request.method, grace=request.grace)
    delay = retry_delay(request.pod.uid, attempts, terms)
    match answer.meaning:
        case Meaning.ACCEPTED:
            changed = _accepted(tried, request, now)
        case Meaning.GONE:
            changed = ended(tried, terms, now, answer.reason)
        case Meaning.TERMINATING if request.pod.deletion is not None:
            changed = replace(tried, stage=Stage.TERMINATING, reason=answer.reason)
        case Meaning.BLOCKED | Meaning.NOT_EVICTABLE if known.stage is Stage.TERMINATING:
            return drain  # the pod was deleted while the eviction hung
        case Meaning.NOT_EVICTABLE if terms.deadline is None and terms.on_blocked is OnBlocked.FAIL:
            # As `kubectl drain` does: no retry can succeed while there are two budgets.
            changed = replace(tried, stage=Stage.FAILED, reason=answer.reason)
        case Meaning.BLOCKED | Meaning.NOT_EVICTABLE:
            changed = replace(
                tried,
                stage=Stage.BLOCKED,
                reason=answer.reason,
                budgets=answer.budgets or known.budgets,
                blocked_at=known.blocked_at or now,
                next_try_at=now + delay,
            )
        case Meaning.DENIED if terms.deadline is None:
            changed = replace(tried, stage=Stage.FAILED, reason=answer.reason)
        case _:
            if answer.retry_after is not None:
                delay = timedelta(seconds=answer.retry_after)
            changed = replace(tried, reason=answer.reason, next_try_at=now + delay)
    return drain.with_pod(changed)


def record_budgets(drain: Drain, uid: str, budgets: tuple[str, ...]) -> Drain:
    """Add the names of the budgets of a pod that several budgets select."""
    reason = SEVERAL_BUDGETS(budgets=", ".join(budgets))
    return drain.with_pod(replace(drain.pods[uid], reason=reason, budgets=budgets))


def _accepted(tried: PodProgress, request: PodRequest, now: datetime) -> PodProgress:
    own, granted, reason = request.pod.grace, request.grace, request.reason
    if granted is not None and granted < own:
        reason = reason.and_then(
            f"The grace period of the pod is shortened from {own} s to {granted} s by the deadline."
        )
    return replace(
        tried, stage=Stage.TERMINATING, reason=reason, requested_at=now, next_try_at=None
    )


def retry_delay(uid: str, attempts: int, terms: Terms) -> timedelta:
    """Return the pause after a failed try: longer after each try, and with jitter."""
    if terms.deadline is None:
        return LONGEST_RETRY_DELAY
    steady = min(FIRST_RETRY_DELAY * 1.5 ** min(attempts - 1, 8), LONGEST_RETRY_DELAY)
    # The jitter comes from the pod's UID and try, so that a replayed step pauses as before.
    fraction = (zlib.crc32(f"{uid}/{attempts}".encode()) % 1000) / 1000
    return steady * (0.75 + 0.25 * fraction)
