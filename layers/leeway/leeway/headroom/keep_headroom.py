"""Use case: the headroom of every cluster is what it should be, looked after once a minute.

Sizes follow from the clock and from what is there, never from what happened, so that a tick that is
missed, late or doubled does no harm.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from leeway.clock import Clock
from leeway.failures import describe_error
from leeway.headroom.plan import USUAL_JOIN, Need, needs_ahead
from leeway.headroom.ports import HeadroomManifests, HeadroomStates, Workloads
from leeway.headroom.reconciler import HeadroomReconciler
from leeway.headroom.status import HeadroomStatus
from leeway.headroom.wanted import Wanted
from leeway.parallel import in_parallel

AT_ONCE = 32
"""Clusters that are looked after at the same time."""


@dataclass(frozen=True, slots=True)
class HeadroomReport:
    """One cluster after a tick: what changed, what is wrong, and what will be needed soon.

    `problem` is why the cluster could not be looked after at all. Under a dry run, `changed` is
    what would have been. `faulty` counts the cluster's manifests, of any kind, that can't be read.
    """

    cluster: str
    changed: tuple[HeadroomStatus, ...] = ()
    problems: tuple[HeadroomStatus, ...] = ()
    needs: tuple[Need, ...] = ()
    replicas: int = 0
    problem: str = ""
    paused: bool = False
    dry_run: bool = False
    faulty: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Render the function's answer about this cluster."""
        return {
            "cluster": self.cluster,
            "problem": self.problem,
            "paused": self.paused,
            "dryRun": self.dry_run,
            "pauseReplicas": self.replicas,
            "faultyManifests": self.faulty,
            "changed": [
                {"subject": kept.subject, "replicas": kept.replicas, "reason": kept.reason}
                for kept in self.changed
            ],
            "problems": [
                {"subject": kept.subject, "source": kept.source, "problem": kept.problem}
                for kept in self.problems
            ],
            "needs": [
                {
                    "target": str(need.target),
                    "replicas": need.replicas,
                    "at": need.since.isoformat(),
                }
                for need in self.needs
            ],
        }


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def headroom_kept(self, report: HeadroomReport) -> None:
        """Log and measure how it stands with a cluster's headroom."""
        ...


class KeepHeadroom:
    """Looks after headroom. `workloads_in` opens a cluster's workloads."""

    def __init__(
        self,
        manifests: HeadroomManifests,
        states: HeadroomStates,
        workloads_in: Callable[[str], Workloads],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._manifests = manifests
        self._states = states
        self._workloads_in = workloads_in
        self._telemetry = telemetry
        self._clock = clock

    def tick(self, clusters: Iterable[str]) -> tuple[HeadroomReport, ...]:
        """Look after these clusters; one that is away does not keep the others waiting."""
        report = tuple(in_parallel(self._keep, list(clusters), AT_ONCE))
        for one in report:
            self._telemetry.headroom_kept(one)
        return report

    def _keep(self, cluster: str) -> HeadroomReport:
        report = _guarded(
            cluster, lambda: self._look_after(cluster, self._manifests.wanted(cluster))
        )
        # A cluster that is away mends no manifest, and must not end an alarm about one.
        return _guarded(cluster, lambda: replace(report, faulty=self._manifests.faulty(cluster)))

    def _look_after(self, cluster: str, wanted: Wanted) -> HeadroomReport:
        if wanted.policy.paused:
            return HeadroomReport(cluster, paused=True)
        known = self._states.of(cluster)
        if wanted.nothing and not known:
            return HeadroomReport(cluster)
        workloads = self._workloads_in(cluster)
        remember = partial(self._states.remember_original, cluster)
        tick = HeadroomReconciler(workloads, known, remember, self._clock, wanted.policy.dry_run)
        tick.look_after(wanted)
        return self._settle(cluster, wanted, known, tick)

    def _settle(
        self,
        cluster: str,
        wanted: Wanted,
        known: dict[str, HeadroomStatus],
        tick: HeadroomReconciler,
    ) -> HeadroomReport:
        """Write down what differs from the tick before. That pods begin to run is shown by `leeway
        status`, and is no change of this tick's."""
        differs = [kept for kept in tick.kept if known.get(kept.subject) != kept]
        changed = tuple(kept for kept in differs if not _only_runs(known.get(kept.subject), kept))
        if not wanted.policy.dry_run:
            for kept in differs:
                self._states.write(cluster, kept)
            for subject in tick.forgotten:
                self._states.forget(cluster, subject)
        return HeadroomReport(
            cluster,
            changed=changed,
            problems=tuple(kept for kept in tick.kept if kept.problem),
            needs=needs_ahead(wanted.targets, tick.at, USUAL_JOIN),
            replicas=sum(kept.replicas or 0 for kept in tick.kept if kept.target is None),
            dry_run=wanted.policy.dry_run,
        )


def _only_runs(before: HeadroomStatus | None, now: HeadroomStatus) -> bool:
    return before is not None and replace(before, running=now.running) == now


def _guarded(cluster: str, work: Callable[[], HeadroomReport]) -> HeadroomReport:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 (it is said and counted, and the others go on)
        return HeadroomReport(cluster, problem=describe_error(error))
