"""Use case: the headroom of every cluster is what it should be, looked after once a minute.

Sizes follow from the clock and from what is there, never from what happened, so that a tick that is
missed, late or doubled does no harm.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any, Protocol

from leeway.clock import Clock
from leeway.cloud.ports import CloudRefused, CloudUnavailable, HeadroomStates
from leeway.cluster.ports import ClusterRefused, ClusterUnavailable, PauseDeployment, Workloads
from leeway.headroom.kept import Kept
from leeway.headroom.pause import (
    deployment_object,
    namespace_object,
    priority_class_name,
    priority_class_object,
)
from leeway.headroom.plan import (
    USUAL_JOIN,
    Buffer,
    Need,
    ScaledTarget,
    ScaleTarget,
    buffer_size,
    claimed_twice,
    needs_ahead,
    target_size,
)
from leeway.headroom.proportion import ClusterSize
from leeway.manifests.headroom import Headroom
from leeway.manifests.interpreting import Written
from leeway.manifests.scaled_object import ScaledObject
from leeway.policies import ClusterPolicy

KINDS = ("headroom.leeway.sh", "scaledobject.keda.sh")
AT_ONCE = 32
"""Clusters that are looked after at the same time."""

LOCK_TRIES = 5

_TROUBLE = (ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused)


@dataclass(frozen=True, slots=True)
class Tended:
    """One cluster after a tick: what changed, what is wrong, and what will be needed soon.

    `problem` is why the cluster could not be looked after at all. Under a dry run, `changed` is
    what would have been.
    """

    cluster: str
    changed: tuple[Kept, ...] = ()
    problems: tuple[Kept, ...] = ()
    needs: tuple[Need, ...] = ()
    replicas: int = 0
    problem: str = ""
    paused: bool = False
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Render the function's answer about this cluster."""
        return {
            "cluster": self.cluster,
            "problem": self.problem,
            "paused": self.paused,
            "dryRun": self.dry_run,
            "pauseReplicas": self.replicas,
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


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def tended(self, tended: Tended) -> None:
        """Log and measure how it stands with a cluster's headroom."""
        ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the manifests of one cluster come to; `unread` are those that nobody understands, whose
    objects stay as they are."""

    policy: ClusterPolicy
    buffers: tuple[Buffer, ...]
    targets: tuple[ScaledTarget, ...]
    unread: frozenset[str]


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
        wanted: dict[str, _Wanted | str] = {name: self._read(name) for name in clusters}
        with ThreadPoolExecutor(max(1, min(AT_ONCE, len(wanted)))) as pool:
            tended = tuple(pool.map(self._tend, wanted, wanted.values()))
        for one in tended:
            self._telemetry.tended(one)
        return tended

    def _read(self, cluster: str) -> _Wanted | str:
        """Read what is wanted in a cluster, or say why it can't be."""
        try:
            written = self._manifests.manifests(cluster, KINDS)
        except _TROUBLE as error:
            return f"{type(error).__name__}: {error}"
        manifests = [one.manifest for one in written]
        return _Wanted(
            policy=self._manifests.policy_of(cluster),
            buffers=tuple(b for m in manifests if isinstance(m, Headroom) for b in m.buffers()),
            targets=tuple(m.target() for m in manifests if isinstance(m, ScaledObject)),
            unread=self._manifests.unread(cluster, KINDS),
        )

    def _tend(self, cluster: str, wanted: _Wanted | str) -> Tended:
        if isinstance(wanted, str):
            return Tended(cluster, problem=wanted)
        if wanted.policy.paused:
            return Tended(cluster, paused=True)
        try:
            known = self._states.of(cluster)
            if not (wanted.buffers or wanted.targets or known):
                return Tended(cluster)
            workloads = self._workloads_in(cluster)
            tick = _Tick(workloads, known, self._clock.now(), wanted.policy.dry_run)
            tick.look_after(wanted)
            return self._settle(cluster, wanted, known, tick)
        except _TROUBLE as error:
            return Tended(cluster, problem=f"{type(error).__name__}: {error}")

    def _settle(
        self, cluster: str, wanted: _Wanted, known: dict[str, Kept], tick: "_Tick"
    ) -> Tended:
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


class _Tick:
    """One cluster, one tick: looks, and acts unless it is a dry run."""

    def __init__(
        self, workloads: Workloads, known: dict[str, Kept], at: datetime, dry_run: bool
    ) -> None:
        self._workloads = workloads
        self._known = known
        self._acts = not dry_run
        self.at = at
        self.kept: list[Kept] = []
        self.forgotten: list[str] = []

    def look_after(self, wanted: _Wanted) -> None:
        """Give every buffer and target its size, and clean up what is no longer wanted."""
        self._look_after_buffers(wanted)
        twice = claimed_twice(wanted.targets)
        for target, sources in twice.items():
            self._refuse(str(target), sources)
        for scaled in wanted.targets:
            if scaled.target not in twice:
                self._look_after_target(scaled)
        subjects = {kept.subject for kept in self.kept}
        for kept in self._known.values():
            if kept.subject not in subjects and kept.source not in wanted.unread:
                self._let_go(kept)

    def _look_after_buffers(self, wanted: _Wanted) -> None:
        buffers = wanted.buffers
        had_any = any(kept.target is None for kept in self._known.values())
        if not buffers and not had_any:
            return
        there = self._workloads.pause_deployments()
        joins = self._workloads.joins() if buffers else {}
        proportional = any(buffer.is_proportional for buffer in buffers)
        size = self._workloads.size() if proportional else ClusterSize(0, 0)
        for shared in _shared_objects(buffers):
            if self._acts:
                self._workloads.apply(shared)
        for subject, claimants in _by_subject(buffers).items():
            if len(claimants) > 1:
                self._refuse(subject, sorted(buffer.source for buffer in claimants))
                continue
            pods = claimants[0].pods
            seen = joins.get((pods.namespace, pods.name), [])
            self._look_after_buffer(subject, claimants[0], seen, size)
        if not wanted.unread:
            self._remove_orphans(there, buffers)

    def _look_after_buffer(
        self, subject: str, buffer: Buffer, seen: Sequence[timedelta], size: ClusterSize
    ) -> None:
        before = self._known.get(subject)
        join = median_low(seen) if seen else before.join if before else None
        wanted = buffer_size(buffer, size, [join] if join else [], self.at)
        kept = Kept(subject, buffer.source, wanted.replicas, wanted.reason, join=join)
        try:
            if self._acts:
                self._workloads.apply(deployment_object(buffer.pods, wanted.replicas))
        except ClusterRefused as error:
            kept = replace(kept, problem=str(error))
        self.kept.append(kept)

    def _remove_orphans(self, there: Sequence[PauseDeployment], buffers: Sequence[Buffer]) -> None:
        """Delete Deployments of buffers that nobody wants any more, with what only they needed.

        The Deployment goes last: as long as it is there, the next tick finds it again. Namespaces
        stay: there may be more in them than anybody knows.
        """
        wanted = {(buffer.pods.namespace, buffer.pods.name) for buffer in buffers}
        classes = {priority_class_name(buffer.pods.priority) for buffer in buffers}
        for orphan in there:
            if (orphan.namespace, orphan.name) in wanted or not self._acts:
                continue
            if orphan.priority_class not in classes:
                self._workloads.remove_priority_class(orphan.priority_class)
            self._workloads.remove_deployment(orphan.namespace, orphan.name)

    def _look_after_target(self, scaled: ScaledTarget) -> None:
        kept = Kept(str(scaled.target), scaled.source, target=scaled.target, restore=scaled.restore)
        wanted = target_size(scaled, self.at)
        if wanted is None:
            self.kept.append(replace(kept, reason="paused: left as it is"))
            return
        kept = replace(kept, replicas=wanted.replicas, reason=wanted.reason)
        try:
            problem = self._scale(scaled.target, wanted.replicas)
        except ClusterRefused as error:
            problem = str(error)
        self.kept.append(replace(kept, problem=problem))

    def _scale(self, target: ScaleTarget, replicas: int) -> str:
        """Scale a target where it has another size; returns what is in the way."""
        has = self._workloads.replicas_of(target)
        if has is None:
            return self._why_missing(target)
        if has != replicas and self._acts:
            self._remember_original(target)
            self._workloads.scale(target, replicas)
        return ""

    def _remember_original(self, target: ScaleTarget) -> None:
        """Note the size that a target had before Leeway scaled it first, on the target itself: two
        ticks at once can't take a size that one of them gave for the original."""
        for _ in range(LOCK_TRIES):
            seen = self._workloads.target(target)
            if seen is None or seen.original is not None:
                return
            if self._workloads.remember_original(target, seen, seen.replicas):
                return
        raise ClusterUnavailable(f"{target} was written by others {LOCK_TRIES} times in a row")

    def _why_missing(self, target: ScaleTarget) -> str:
        elsewhere = self._workloads.namespaces_with(target)
        if not elsewhere:
            return f"there is no {target.kind} {target.name} in namespace {target.namespace}"
        return (
            f"there is no {target.kind} {target.name} in namespace {target.namespace}, but there "
            f"is one in {', '.join(elsewhere)}: a ScaledObject scales in its own namespace only"
        )

    def _refuse(self, subject: str, sources: Sequence[str]) -> None:
        named = " and ".join(sources)
        problem = f"{named} both want it: neither has its way"
        self.kept.append(Kept(subject, named, problem=problem))

    def _let_go(self, kept: Kept) -> None:
        """Leave or restore a target whose manifest is gone, and forget it."""
        if kept.target is not None and self._acts:
            self._leave(kept.target, kept.restore)
        self.forgotten.append(kept.subject)

    def _leave(self, target: ScaleTarget, restore: bool) -> None:
        for _ in range(LOCK_TRIES):
            seen = self._workloads.target(target)
            if seen is None or seen.original is None:
                return
            if restore and seen.replicas != seen.original:
                self._workloads.scale(target, seen.original)
                continue
            if self._workloads.remember_original(target, seen, None):
                return
        raise ClusterUnavailable(f"{target} was written by others {LOCK_TRIES} times in a row")


def _by_subject(buffers: Iterable[Buffer]) -> dict[str, list[Buffer]]:
    """Group buffers by their Deployment: `a-b` of one manifest may be another's `a` in `a-b`."""
    grouped: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        subject = f"buffer {buffer.pods.namespace}/{buffer.pods.name}"
        grouped.setdefault(subject, []).append(buffer)
    return grouped


def _shared_objects(buffers: Iterable[Buffer]) -> list[dict[str, object]]:
    """The namespaces and priority classes of buffers, each once."""
    namespaces = sorted({buffer.pods.namespace for buffer in buffers})
    priorities = sorted({buffer.pods.priority for buffer in buffers})
    return [
        *(namespace_object(name) for name in namespaces),
        *(priority_class_object(priority) for priority in priorities),
    ]
