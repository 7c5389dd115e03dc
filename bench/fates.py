"""Compares the fates of pods in a rehearsal with those in a real run of the same storm. Pure.

A run takes real time, and a machine with too much to do makes requests late: less of a grace period
is left then. So a run is compared with two rehearsals: one at the usual pace, and one that makes
each request when the run made it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from leeway.retirement.progress import RemovalMethod
from leeway_cli.rehearse.storm import Fate, RequestTimes, Storm
from leeway_cli.report.model import Outcome, PodReport, PodTrace

LATE_BY = 1.0
"""Seconds. Between the time that a pod of a random cluster needs and the time that it gets there is
always a second or more: requests that are less late do not change a fate."""

type Fates = Mapping[str, Counter[str]]
"""How many pods of each workload have which fate."""


class Verdict(StrEnum):
    """What the comparison of one workload shows. The last one is a defect."""

    SAME = "as rehearsed"
    LATE = "late machine, as rehearsed at the run's own times"
    LATE_UNEXPLAINED = "late machine, and not as rehearsed at the run's own times"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Compared:
    """The fates of one workload's pods: as rehearsed at the usual pace, as rehearsed at the times
    of the run's requests, and as they happened. The run made a request `late` seconds later than
    at the usual pace, at the most."""

    workload: str
    rehearsed: Counter[str]
    at_own_times: Counter[str]
    happened: Counter[str]
    late: float

    @property
    def verdict(self) -> Verdict:
        """What the comparison shows."""
        if self.happened == self.rehearsed:
            return Verdict.SAME
        if self.late < LATE_BY:
            return Verdict.DIFFERS
        if self.happened == self.at_own_times:
            return Verdict.LATE
        return Verdict.LATE_UNEXPLAINED

    def __str__(self) -> str:
        """One line with the verdict and its numbers."""
        return (
            f"{self.workload}: {self.verdict}: rehearsed {dict(self.rehearsed)}, at the run's own "
            f"times {dict(self.at_own_times)}, happened {dict(self.happened)}; a request was "
            f"{self.late:.1f} s late"
        )


def compare_fates(
    rehearsed: Storm, at_own_times: Storm, happened: Sequence[PodReport]
) -> tuple[Compared, ...]:
    """Compare two rehearsals with what happened to the same pods, by workload."""
    usual, own, real = rehearsed_fates(rehearsed), rehearsed_fates(at_own_times), _real(happened)
    late = _late(rehearsed, happened)
    return tuple(
        Compared(
            key,
            usual.get(key, Counter()),
            own.get(key, Counter()),
            real.get(key, Counter()),
            late.get(key, 0.0),
        )
        for key in sorted(usual.keys() | own.keys() | real.keys())
    )


def removed_otherwise(at_own_times: Storm, happened: Sequence[PodReport]) -> int:
    """Return how many pods were rehearsed to be evicted and were deleted, or the other way round:
    at its latest moment, a pod whose budget is about to allow its eviction may get either."""
    rehearsed = _counted((_workload(fate), _means(fate)) for fate in at_own_times.fates)
    real = _counted((pod.trace.workload.owner, _real_means(pod.trace)) for pod in happened)
    return sum((rehearsed.get(key, Counter()) - means).total() for key, means in real.items())


def request_times(pods: Iterable[PodTrace]) -> RequestTimes:
    """Return when the API server answered each eviction of a pod, and the deletion of one whose
    evictions it refused."""
    found = {}
    for pod in pods:
        moments = [attempt.at for attempt in pod.attempts]
        if pod.requested_at is not None and not pod.evicted:
            moments.append(pod.requested_at)
        found[pod.uid] = tuple(datetime.fromtimestamp(at, UTC) for at in sorted(moments))
    return found


def rehearsed_fates(storm: Storm) -> Fates:
    """Count the fates of a rehearsal, as the report of a run names them."""
    return _counted((_workload(fate), _fate(fate)) for fate in storm.fates)


def _real(pods: Iterable[PodReport]) -> Fates:
    return _counted((pod.trace.workload.owner, _outcome(pod)) for pod in pods)


def _late(rehearsed: Storm, happened: Iterable[PodReport]) -> dict[str, float]:
    """Return for each workload by how many seconds its first, second … pod was requested to end
    later than rehearsed, at the most. A pod without a request counts as requested at its end."""
    usual, real = defaultdict(list), defaultdict(list)
    for fate in rehearsed.fates:
        at = fate.progress.requested_at if fate.progress is not None else None
        usual[_workload(fate)].append(math.inf if at is None else at.timestamp())
    for pod in (one.trace for one in happened):
        at_last = math.inf if pod.ended_at is None else pod.ended_at
        moment = at_last if pod.requested_at is None else pod.requested_at
        real[pod.workload.owner].append(moment)
    return {
        key: max(
            (
                max(0.0, moment - due)
                for moment, due in zip(sorted(moments), sorted(usual[key]), strict=False)
                if due < math.inf
            ),
            default=0.0,
        )
        for key, moments in real.items()
    }


def _counted(found: Iterable[tuple[str, str]]) -> Fates:
    counted: dict[str, Counter[str]] = {}
    for workload, what in found:
        counted.setdefault(workload, Counter())[what] += 1
    return counted


def _workload(fate: Fate) -> str:
    """Return the workload as the sandbox's journals name it."""
    kind, _, name = fate.workload.partition(" ")
    return f"{kind}/{name}"


def _fate(fate: Fate) -> str:
    if fate.left:
        return Outcome.STAYED.value
    if fate.died:
        return Outcome.DIED.value
    if fate.cut:
        return Outcome.CUT.value
    if fate.workload.startswith("Pod "):
        return Outcome.ENDED.value
    again = fate.ready_at is not None
    return Outcome.MOVED.value if again else Outcome.NOT_RESCHEDULED.value


def _outcome(pod: PodReport) -> str:
    died = pod.evaluation.outcome is Outcome.DIED
    return (Outcome.CUT if died and _in_last_second(pod.trace) else pod.evaluation.outcome).value


def _in_last_second(trace: PodTrace) -> bool:
    """Whether the instance of a pod ended in the last second of its grace period: the retirement
    ends the instance at its deadline."""
    if trace.requested_at is None or trace.ended_at is None or trace.grace_given is None:
        return False
    return trace.ended_at > trace.requested_at + trace.grace_given - 1


def _means(fate: Fate) -> str:
    by = fate.progress.method if fate.progress is not None else None
    return by.value if by is not None else ""


def _real_means(trace: PodTrace) -> str:
    if trace.workload.daemon or trace.requested_by is None:
        return ""
    by_eviction = trace.requested_by == "eviction"
    return (RemovalMethod.EVICT if by_eviction else RemovalMethod.DELETE).value
