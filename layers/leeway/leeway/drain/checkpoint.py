"""What of a drain is written down after a pass: what changed in it, and little of who only waits.

A drain behind a budget makes hundreds of passes, and an execution may write 100 MB in all. Source:
AWS Lambda quotas, "Durable execution storage written in megabytes".
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.drain.progress import Drain, PodProgress

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """How often each pod was tried and when it is due again, in the drain's order: `due` is in
    milliseconds from `at`, None for at once."""

    at: datetime
    tries: tuple[int, ...]
    due: tuple[int | None, ...]


def pace_of(drain: Drain, at: datetime) -> RetrySchedule:
    """Return at what pace a drain's pods are tried."""
    pods = drain.pods.values()
    moments = [pod.next_try_at for pod in pods]
    due = tuple(None if m is None else -((at - m) // _MILLISECOND) for m in moments)
    return RetrySchedule(at, tuple(pod.attempts for pod in pods), due)


def changed_in(before: Drain, after: Drain) -> Drain:
    """Return a drain with only the pods in which more than their pace has changed."""
    known = before.pods
    return replace(
        after,
        pods={
            uid: pod
            for uid, pod in after.pods.items()
            if uid not in known or _without_pace(known[uid]) != _without_pace(pod)
        },
    )


def resumed(before: Drain, changed: Drain, pace: RetrySchedule | None) -> Drain:
    """Return the drain after a pass, from the one before it and what was written down of it."""
    pods = {**before.pods, **changed.pods}
    if pace is None:
        return replace(changed, pods=pods)
    for pod, tries, due in zip(pods.copy().values(), pace.tries, pace.due, strict=True):
        moment = None if due is None else pace.at + due * _MILLISECOND
        pods[pod.uid] = replace(pod, attempts=tries, next_try_at=moment)
    return replace(changed, pods=pods)


def _without_pace(pod: PodProgress) -> PodProgress:
    return replace(pod, attempts=0, next_try_at=None)
