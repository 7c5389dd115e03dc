"""A drain under way: what was decided, asked and answered for every pod, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from leeway.drain.deadline import Terms


class Stage(StrEnum):
    """How far a pod is. `left`, `gone` and `failed` are ends; the others are waited for.

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


ENDS = frozenset({Stage.LEFT, Stage.GONE, Stage.FAILED})

DISPLACED = "another machine has its node's name by now"

AWAY = frozenset({Stage.DETACHING, Stage.GONE})
"""The stages of a pod that is no longer on the node."""


class RemovalMethod(StrEnum):
    """How a pod is asked to go: by the Eviction API, which acts_on budgets, or by DELETE; or, where
    it is going already, to go sooner."""

    EVICT = "evict"
    DELETE = "delete"
    SHORTEN = "shorten"


@dataclass(frozen=True, slots=True)
class PodProgress:
    """One pod's part of a drain. Times are UTC, `grace` is in seconds (None: the pod's own).

    `budgets` are the names of those that blocked it, `claims` the volume claims that it uses,
    `attached` those of them that are not detached from the node yet. `kept_by` are the finalizers
    that keep the object of one that is gone.
    """

    pod: str
    uid: str
    workload: str
    stage: Stage
    reason: str
    warning: str = ""
    way: RemovalMethod | None = None
    grace: int | None = None
    attempts: int = 0
    budgets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    attached: tuple[str, ...] = ()
    kept_by: tuple[str, ...] = ()
    seen_at: datetime | None = None
    blocked_at: datetime | None = None
    next_try_at: datetime | None = None
    asked_at: datetime | None = None
    gone_at: datetime | None = None
    detached_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain of one node. `pods` is by UID, in the order in which they were first seen.

    `listed` says that the node's pods were listed before: a pod first seen later came later.
    `problem` is why they could not be listed when that was last tried. `unseen` is why the first
    list may lack pods that have died with their machine. `load_balancers` is what came of having
    them leave the node out, empty until that was tried.
    """

    listed: bool = False
    problem: str = ""
    unseen: str = ""
    load_balancers: str = ""
    pods: Mapping[str, PodProgress] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do or to wait for. What was never listed, or could not be
        listed when that was last tried, is not over."""
        return (
            self.listed
            and not self.problem
            and all(pod.stage in ENDS for pod in self.pods.values())
        )

    @property
    def drained(self) -> bool:
        """Whether every pod that had to go is gone, and none was missed."""
        failed = any(pod.stage is Stage.FAILED for pod in self.pods.values())
        return self.over and not self.unseen and not failed

    @property
    def unclean(self) -> tuple[PodProgress, ...]:
        """The pods that are gone and whose volumes were still attached at the end."""
        return tuple(pod for pod in self.at(Stage.GONE) if pod.attached)

    def at(self, *stages: Stage) -> tuple[PodProgress, ...]:
        """Return the pods that are at one of these stages."""
        return tuple(pod for pod in self.pods.values() if pod.stage in stages)

    def with_pod(self, changed: PodProgress) -> "Drain":
        """Return the drain with one pod's progress replaced."""
        return replace(self, pods={**self.pods, changed.uid: changed})


def is_expired(terms: Terms, now: datetime) -> bool:
    """Whether the deadline has come."""
    return terms.deadline is not None and now >= terms.deadline


def ended(progress: PodProgress, terms: Terms, now: datetime, reason: str = "") -> PodProgress:
    """Return a pod that has ended. Until a deadline, its volumes are waited for."""
    waits = progress.claims and terms.deadline is not None
    return replace(
        progress,
        stage=Stage.DETACHING if waits else Stage.GONE,
        reason=reason or progress.reason,
        attached=progress.claims if waits else (),
        gone_at=now,
    )


def expire(drain: Drain) -> Drain:
    """End all that has not ended, when the deadline has come and everything was asked for."""
    return replace(drain, pods={uid: _expired(pod) for uid, pod in drain.pods.items()})


def displaced(drain: Drain) -> Drain:
    """End a drain whose node's name another machine has now, and these pods with it.

    Those that were asked to go, and had not gone, have not left as they should.
    """
    return replace(drain, pods={uid: _displaced(pod) for uid, pod in drain.pods.items()})


def _displaced(progress: PodProgress) -> PodProgress:
    if progress.stage in ENDS:
        return progress
    if progress.stage is Stage.DETACHING:
        return replace(progress, stage=Stage.GONE)
    if not progress.attempts:
        return replace(progress, stage=Stage.LEFT, reason=DISPLACED)
    return replace(progress, stage=Stage.FAILED, reason=f"{DISPLACED}: {progress.reason}")


def _expired(progress: PodProgress) -> PodProgress:
    if progress.stage in ENDS:
        return progress
    if progress.stage is Stage.DETACHING:
        left = ", ".join(progress.attached)
        reason = f"{progress.reason}; at the deadline its volume of {left} was still attached"
        return replace(progress, stage=Stage.GONE, reason=reason)
    reason = f"the deadline came while it was {progress.stage}: {progress.reason}"
    return replace(progress, stage=Stage.FAILED, reason=reason)
