"""Use case: the headroom of every cluster is what it should be, looked after once a minute.

Sizes follow from the clock and from what is there, never from what happened, so that a tick that is
missed, late or doubled does no harm.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from leeway.abreast import abreast
from leeway.clock import Clock
from leeway.cloud.ports import HeadroomStates
from leeway.cluster.ports import Workloads
from leeway.headroom.kept import Kept
from leeway.headroom.plan import USUAL_JOIN, Need, needs_ahead
from leeway.manifests.capacity_buffer import CapacityBuffer
from leeway.manifests.headroom import Headroom
from leeway.manifests.interpreting import Written
from leeway.manifests.scaled_object import ScaledObject
from leeway.policies import ClusterPolicy
from leeway.troubles import told
from leeway.upkeep.one_cluster import Tick, Wanted

KINDS = ("capacitybuffer.autoscaling.x-k8s.io", "headroom.leeway.sh", "scaledobject.keda.sh")
AT_ONCE = 32
"""Clusters that are looked after at the same time."""


@dataclass(frozen=True, slots=True)
class Tended:
    """One cluster after a tick: what changed, what is wrong, and what will be needed soon.

    `problem` is why the cluster could not be looked after at all. Under a dry run, `changed` is
    what would have been. `faulty` counts the cluster's manifests, of any kind, that can't be read.
    """

    cluster: str
    changed: tuple[Kept, ...] = ()
    problems: tuple[Kept, ...] = ()
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


class Manifests(Protocol):
    """What users wrote about clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return a cluster's policy."""
        ...

    def manifests(self, cluster: str, resources: Sequence[str]) -> tuple[Written, ...]:
        """Return a cluster's manifests of some kinds."""
        ...

    def unread(self, cluster: str, resources: Sequence[str]) -> frozenset[str]:
        """Name the manifests of some kinds that can't be made sense of, as `resource name`."""
        ...

    def faulty(self, cluster: str) -> int:
        """Count the manifests, of whatever kind, that can't be read, or not all of them."""
        ...


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def tended(self, tended: Tended) -> None:
        """Log and measure how it stands with a cluster's headroom."""
        ...


class KeepHeadroom:
    """Looks after headroom. `workloads_in` opens a cluster's workloads."""

    def __init__(
        self,
        manifests: Manifests,
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

    def tick(self, clusters: Iterable[str]) -> tuple[Tended, ...]:
        """Look after these clusters; one that is away does not keep the others waiting."""
        tended = tuple(abreast(self._tend, list(clusters), AT_ONCE))
        for one in tended:
            self._telemetry.tended(one)
        return tended

    def _tend(self, cluster: str) -> Tended:
        tended = _guarded(cluster, lambda: self._look_after(cluster, self._read(cluster)))
        # A cluster that is away mends no manifest, and must not end an alarm about one.
        return _guarded(cluster, lambda: replace(tended, faulty=self._manifests.faulty(cluster)))

    def _read(self, cluster: str) -> Wanted:
        """Read what is wanted in a cluster."""
        written = self._manifests.manifests(cluster, KINDS)
        manifests = [one.manifest for one in written]
        return Wanted(
            policy=self._manifests.policy_of(cluster),
            buffers=tuple(b for m in manifests if isinstance(m, Headroom) for b in m.buffers()),
            chunks=tuple(m.chunks() for m in manifests if isinstance(m, CapacityBuffer)),
            targets=tuple(m.target() for m in manifests if isinstance(m, ScaledObject)),
            unread=self._manifests.unread(cluster, KINDS),
        )

    def _look_after(self, cluster: str, wanted: Wanted) -> Tended:
        if wanted.policy.paused:
            return Tended(cluster, paused=True)
        known = self._states.of(cluster)
        if wanted.nothing and not known:
            return Tended(cluster)
        workloads = self._workloads_in(cluster)
        tick = Tick(workloads, known, self._clock, wanted.policy.dry_run)
        tick.look_after(wanted)
        return self._settle(cluster, wanted, known, tick)

    def _settle(self, cluster: str, wanted: Wanted, known: dict[str, Kept], tick: Tick) -> Tended:
        """Write down what differs from the tick before."""
        changed = tuple(kept for kept in tick.kept if known.get(kept.subject) != kept)
        if not wanted.policy.dry_run:
            for kept in changed:
                self._states.write(cluster, kept)
            for subject in tick.forgotten:
                self._states.forget(cluster, subject)
        return Tended(
            cluster,
            changed=changed,
            problems=tuple(kept for kept in tick.kept if kept.problem),
            needs=needs_ahead(wanted.targets, tick.at, USUAL_JOIN),
            replicas=sum(kept.replicas or 0 for kept in tick.kept if kept.target is None),
            dry_run=wanted.policy.dry_run,
        )


def _guarded(cluster: str, work: Callable[[], Tended]) -> Tended:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 (it is said and counted, and the others go on)
        return Tended(cluster, problem=told(error))
