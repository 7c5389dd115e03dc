"""The latest moment of a pod, and the grace period that still fits before the deadline."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.drain.decide_pod import SKIP_DELETED_FOR, Refusal
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Pod

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
    `waits_for_volumes`, so does a drain without one.
    """

    deadline: datetime | None = None
    on_blocked: OnBlocked = OnBlocked.WAIT
    grace: int | None = None
    bypass_budgets: bool = False
    skip_deleted_for: timedelta | None = SKIP_DELETED_FOR
    refused: frozenset[Refusal] = frozenset()
    waits_for_volumes: bool = False


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
