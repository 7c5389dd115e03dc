"""When a pod must be on its way at the latest, and what grace it can then still have."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.drain.decide_pod import SKIP_DELETED_FOR, Refusal
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Pod

GRACE_CAP = timedelta(seconds=45)
"""The most of a pod's grace that is kept free before the deadline while a budget blocks it."""

DETACHING = timedelta(seconds=20)
"""What a pod with volumes leaves before the deadline besides: they are detached after its end, and
what is not detached in time keeps the pod's successor waiting for minutes."""

REQUEST_TIME = timedelta(seconds=2)
"""What even a pod without grace leaves before the deadline: the request itself takes time."""

SHORTEST_GRACE = 1
"""Seconds. Zero would mean a forced deletion, which skips the kubelet's SIGTERM."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a drain is held to. Without a deadline, nothing is cut and no budget bypassed.

    `grace` is a grace period in seconds that replaces every pod's own, None for the pods' own.
    `bypass_budgets` has pods deleted at once instead of evicted. A pod whose deletion was due
    longer ago than `skip_deleted_for` is not waited for (None: every pod is). A pod that appears
    during the drain and gives a reason of `refused` is left alone, and fails the drain.
    """

    deadline: datetime | None = None
    on_blocked: OnBlocked = OnBlocked.WAIT
    grace: int | None = None
    bypass_budgets: bool = False
    skip_deleted_for: timedelta | None = SKIP_DELETED_FOR
    refused: frozenset[Refusal] = frozenset()


def latest_moment(pod: Pod, terms: Terms) -> datetime | None:
    """Return when a blocked pod must go if it is to end in time; None without a deadline."""
    if terms.deadline is None:
        return None
    # Kubernetes takes graces of millions of years, which Python can't count.
    kept_free = timedelta(seconds=min(_grace(pod, terms), GRACE_CAP.total_seconds()))
    return terms.deadline - max(kept_free, REQUEST_TIME) - _detaching(pod)


def grace_that_fits(pod: Pod, terms: Terms, now: datetime) -> int | None:
    """Return the grace in seconds to ask for, None for the pod's own.

    A grace that outlasts the deadline is cut to what is left, so that the kubelet ends the pod, and
    its volumes are detached, before EC2 ends the instance. A part of a second counts as a whole
    one: a request that is made some milliseconds after the latest moment costs no grace.
    """
    if terms.deadline is None:
        return terms.grace
    wanted = _grace(pod, terms)
    left = math.ceil((terms.deadline - _detaching(pod) - now).total_seconds())
    if wanted <= left:
        return terms.grace
    return min(wanted, max(left, SHORTEST_GRACE))


def _detaching(pod: Pod) -> timedelta:
    return DETACHING if pod.claims else timedelta(0)


def _grace(pod: Pod, terms: Terms) -> int:
    return pod.grace if terms.grace is None else terms.grace
