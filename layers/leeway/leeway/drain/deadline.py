"""When a pod must be on its way at the latest, and what grace it can then still have."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.drain.pods import Pod
from leeway.policies import OnBlocked

GRACE_CAP = timedelta(seconds=45)
"""The most of a pod's grace that is kept free before the deadline while a budget blocks it."""

VOLUME_CAP = timedelta(seconds=20)
"""How much more of it for a pod with volumes, which are detached only after its end."""

REQUEST_TIME = timedelta(seconds=2)
"""What even a pod without grace leaves before the deadline: the request itself takes time."""

SHORTEST_GRACE = 1
"""Seconds. Zero would mean a forced deletion, which skips the kubelet's SIGTERM."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a drain is held to. Without a deadline, nothing is cut and no budget bypassed.

    `grace` is a grace period in seconds that replaces every pod's own, None for the pods' own.
    """

    deadline: datetime | None = None
    on_blocked: OnBlocked = OnBlocked.WAIT
    grace: int | None = None


def latest_moment(pod: Pod, terms: Terms) -> datetime | None:
    """Return when a blocked pod must go if it is to end in time; None without a deadline."""
    if terms.deadline is None:
        return None
    cap = GRACE_CAP + VOLUME_CAP if pod.volumes else GRACE_CAP
    kept_free = min(timedelta(seconds=_grace(pod, terms)), cap)
    return terms.deadline - max(kept_free, REQUEST_TIME)


def grace_that_fits(pod: Pod, terms: Terms, now: datetime) -> int | None:
    """Return the grace in seconds to ask for, None for the pod's own.

    A grace that outlasts the deadline is cut to what is left, so that the kubelet ends the pod
    before EC2 ends the instance.
    """
    if terms.deadline is None:
        return terms.grace
    wanted = _grace(pod, terms)
    left = int((terms.deadline - now).total_seconds())
    if wanted <= left:
        return terms.grace
    return min(wanted, max(left, SHORTEST_GRACE))


def _grace(pod: Pod, terms: Terms) -> int:
    return pod.grace if terms.grace is None else terms.grace
