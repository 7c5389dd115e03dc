"""The checkpoint of a drain after a pass: the pods that changed, and the retry times of all pods.

A drain that a budget blocks makes hundreds of passes, and an execution may write 100 MB in all.
Source: AWS Lambda quotas, "Durable execution storage written in megabytes".
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.drain.progress import Drain, PodProgress

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The number of tries of each pod and its next try, in the order of the drain's pods: `due` is
    in milliseconds from `at`, None for at once."""

    at: datetime
    tries: tuple[int, ...]
    due: tuple[int | None, ...]


def retry_schedule(drain: Drain, at: datetime) -> RetrySchedule:
    """Return the tries and retry times of a drain's pods."""
    pods = drain.pods.values()
    next_tries = [pod.next_try_at for pod in pods]
    due = tuple(
        None if next_try is None else -((at - next_try) // _MILLISECOND) for next_try in next_tries
    )
    return RetrySchedule(at, tuple(pod.attempts for pod in pods), due)


def changed_pods(before: Drain, after: Drain) -> Drain:
    """Return the later drain with only the pods in which more than the retry time changed."""
    known = before.pods
    return replace(
        after,
        pods={
            uid: pod
            for uid, pod in after.pods.items()
            if uid not in known or _without_retries(known[uid]) != _without_retries(pod)
        },
    )


def restored(before: Drain, changed: Drain, schedule: RetrySchedule) -> Drain:
    """Return the drain after a pass, from the drain before it and the checkpoint of the pass."""
    pods = {**before.pods, **changed.pods}
    for pod, tries, due in zip(pods.copy().values(), schedule.tries, schedule.due, strict=True):
        moment = None if due is None else schedule.at + due * _MILLISECOND
        pods[pod.uid] = replace(pod, attempts=tries, next_try_at=moment)
    return replace(changed, pods=pods)


def _without_retries(pod: PodProgress) -> PodProgress:
    return replace(pod, attempts=0, next_try_at=None)
