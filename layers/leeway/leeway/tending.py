"""Use case: one cluster's headroom in one tick: every buffer and target gets its size."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any

from leeway.cluster.ports import ClusterRefused, ClusterUnavailable, PauseDeployment, Workloads
from leeway.headroom.kept import Kept
from leeway.headroom.pause import (
    PausePods,
    deployment_object,
    namespace_object,
    priority_class_name,
    priority_class_object,
)
from leeway.headroom.plan import (
    Buffer,
    Chunks,
    ScaledTarget,
    ScaleTarget,
    buffer_size,
    chunk_count,
    claimed_twice,
    pods_like,
    target_size,
)
from leeway.headroom.proportion import ClusterSize
from leeway.policies import ClusterPolicy
from leeway.selection.pod_requests import requests_of

LOCK_TRIES = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the manifests of one cluster come to; `unread` are those that nobody understands, whose
    objects stay as they are."""

    policy: ClusterPolicy
    buffers: tuple[Buffer, ...]
    chunks: tuple[Chunks, ...]
    targets: tuple[ScaledTarget, ...]
    unread: frozenset[str]

    @property
    def nothing(self) -> bool:
        """Whether nobody wants anything."""
        return not (self.buffers or self.chunks or self.targets)


class Tick:
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

    def look_after(self, wanted: Wanted) -> None:
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

    def _look_after_buffers(self, wanted: Wanted) -> None:
        buffers = [*wanted.buffers, *self._buffers_like(wanted.chunks)]
        had_any = any(kept.target is None for kept in self._known.values())
        if not buffers and not had_any:
            return
        there = self._workloads.pause_deployments()
        joins = self._workloads.joins() if buffers else {}
        proportional = any(buffer.is_proportional for buffer in buffers)
        size = self._workloads.size() if proportional else ClusterSize(0, 0)
        self._apply_shared(buffers)
        for subject, claimants in _by_subject(buffers).items():
            if len(claimants) > 1:
                self._refuse(subject, sorted(buffer.source for buffer in claimants))
                continue
            pods = claimants[0].pods
            if not self._may_have(pods, there):
                problem = f"Deployment {pods.namespace}/{pods.name} is somebody else's"
                self.kept.append(Kept(subject, claimants[0].source, problem=problem))
                continue
            seen = joins.get((pods.namespace, pods.name), [])
            self._look_after_buffer(subject, claimants[0], seen, size)
        if not wanted.unread:
            self._remove_orphans(there, buffers)

    def _apply_shared(self, buffers: Sequence[Buffer]) -> None:
        """Make what several buffers need. One that is refused shows as what its buffers lack."""
        for shared in _shared_objects(buffers) if self._acts else ():
            try:
                self._workloads.apply(shared)
            except ClusterRefused as error:
                metadata = shared["metadata"]
                subject = f"{shared['kind']} {metadata['name']}"
                self.kept.append(Kept(subject, "headroom", problem=str(error)))

    def _buffers_like(self, chunks: Iterable[Chunks]) -> Iterator[Buffer]:
        """Make buffers of pods like those that others have templates for."""
        for one in chunks:
            subject = f"capacitybuffer {one.like.namespace}/{one.name}"
            template = self._workloads.template(one.like)
            if template is None:
                self.kept.append(Kept(subject, one.source, problem=f"there is no {one.like}"))
                continue
            try:
                requests = requests_of(template.spec)
                count = chunk_count(one, template.replicas, requests)
            except ValueError as error:
                self.kept.append(Kept(subject, one.source, problem=str(error)))
                continue
            pods = pods_like(one, template.spec, requests)
            yield Buffer(one.source, pods, at_least=count.replicas, why=count.reason)

    def _may_have(self, pods: PausePods, there: Sequence[PauseDeployment]) -> bool:
        """Whether a Deployment of this name is, or would be, Leeway's: users' stay untouched."""
        if any((one.namespace, one.name) == (pods.namespace, pods.name) for one in there):
            return True
        deployment = ScaleTarget("apps/v1", "Deployment", pods.namespace, pods.name)
        return self._workloads.replicas_of(deployment) is None

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
        """Leave or restore a target whose manifest is gone, and forget it; one that may not be
        touched is kept in mind, with the reason."""
        try:
            if kept.target is not None and self._acts:
                self._leave(kept.target, kept.restore)
        except ClusterRefused as error:
            self.kept.append(replace(kept, problem=str(error)))
        else:
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


def _shared_objects(buffers: Iterable[Buffer]) -> list[dict[str, Any]]:
    """The namespaces and priority classes of buffers, each once."""
    namespaces = sorted({buffer.pods.namespace for buffer in buffers})
    priorities = sorted({buffer.pods.priority for buffer in buffers})
    return [
        *(namespace_object(name) for name in namespaces),
        *(priority_class_object(priority) for priority in priorities),
    ]
