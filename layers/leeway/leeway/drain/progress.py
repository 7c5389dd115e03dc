"""A drain in progress, as a value: the decision, the requests and the answers for every pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from leeway.drain.deadline import Terms
from leeway.drain.reasons import DEADLINE_REACHED, NODE_NAME_REUSED, VOLUME_STILL_ATTACHED
from leeway.reasons import Reason


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
    def with_attached_volumes(self) -> tuple[PodProgress, ...]:
        """The pods that are gone and whose volumes were still attached at the end."""
        return tuple(pod for pod in self.at(Stage.GONE) if pod.attached)

    def at(self, *stages: Stage) -> tuple[PodProgress, ...]:
        """Return the pods that are at one of these stages."""
        return tuple(pod for pod in self.pods.values() if pod.stage in stages)

    def with_pod(self, changed: PodProgress) -> "Drain":
        """Return the drain with one pod's progress replaced."""
        return replace(self, pods={**self.pods, changed.uid: changed})


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
    reason = progress.reason.and_then(DEADLINE_REACHED(stage=progress.stage))
    return replace(progress, stage=Stage.FAILED, reason=reason)
