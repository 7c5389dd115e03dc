"""Use case: one cluster's headroom in one tick: every buffer and target gets its size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from statistics import median_low
from typing import Any

from leeway.clock import Clock
from leeway.headroom.missing_rights import BUFFER_ROLE, TARGET_ROLE, how_to_grant
from leeway.headroom.pause_pods import (
    NAMESPACE,
    PausePods,
    deployment_object,
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
    deployment_like,
    pods_like,
    target_size,
)
from leeway.headroom.ports import FoundDeployment, Workloads
from leeway.headroom.proportion import ClusterSize
from leeway.headroom.status import HeadroomStatus, Original
from leeway.headroom.wanted import Wanted
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.selection.reading.pod_requests import requests_of

PATIENCE = timedelta(seconds=20)
"""How long a tick goes on to the next object when the API server fails on one: what fails may be
an admission webhook of that object's. One that keeps us waiting longer is away."""


class HeadroomReconciler:
    """One cluster, one tick: looks, and acts unless it is a dry run.

    `remember` writes down the size that a target, named by its subject, had before it was scaled.
    """

    def __init__(
        self,
        workloads: Workloads,
        known: dict[str, HeadroomStatus],
        remember: Callable[[str, Original], None],
        clock: Clock,
        dry_run: bool,
    ) -> None:
        self._workloads = workloads
        self._known = known
        self._remember = remember
        self._clock = clock
        self._acts = not dry_run
        self._out_of_sight: set[tuple[str, str]] = set()
        self._hidden: dict[str, str] = {}
        self.at = clock.now()
        self.kept: list[HeadroomStatus] = []
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
        there = self._deployments(buffers)
        joins = self._seen(self._workloads.joins, "pods") if buffers else {}
        proportional = any(buffer.is_proportional for buffer in buffers)
        size = self._seen(self._workloads.size, "nodes") if proportional else ClusterSize(0, 0)
        self._apply_shared(buffers)
        for subject, claimants in _by_subject(buffers).items():
            if len(claimants) > 1:
                self._refuse(subject, sorted(buffer.source for buffer in claimants))
                continue
            pods = claimants[0].pods
            if size is None and claimants[0].is_proportional:
                self._leave_for_now(pods.namespace, pods.name)
                continue
            seen = (joins or {}).get((pods.namespace, pods.name), [])
            counted = size or ClusterSize(0, 0)
            self._look_after_buffer(subject, claimants[0], seen, counted, there)
        if not wanted.unread:
            self._remove_orphans(there, buffers)

    def _deployments(self, buffers: Sequence[Buffer]) -> Sequence[FoundDeployment]:
        """List the Deployments of the namespaces that have buffers, or had some before. A right
        that is missing in one of them concerns its own buffers."""
        namespaces = {NAMESPACE, *(buffer.pods.namespace for buffer in buffers)}
        namespaces |= {namespace for namespace, _ in _known_buffers(self._known)}
        found: list[FoundDeployment] = []
        for namespace in sorted(namespaces):
            try:
                found += self._workloads.deployments(namespace)
            except ClusterRefused as error:
                self._hidden[namespace] = how_to_grant(error, BUFFER_ROLE, namespace)
        return found

    def _seen[T](self, look: Callable[[], T], what: str) -> T | None:
        """Look at something of the whole cluster; what can't be seen is told, and None."""
        seen, problem = self._ask(look)
        if problem:
            self.kept.append(HeadroomStatus(f"the cluster's {what}", "headroom", problem=problem))
        return seen

    def _apply_shared(self, buffers: Sequence[Buffer]) -> None:
        """Make what several buffers need. One that fails shows as what its buffers lack."""
        for shared in _shared_objects(buffers) if self._acts else ():
            _, problem = self._ask(partial(self._workloads.apply, shared))
            if problem:
                subject = f"{shared['kind']} {shared['metadata']['name']}"
                self.kept.append(HeadroomStatus(subject, "headroom", problem=problem))

    def _buffers_like(self, chunks: Iterable[Chunks]) -> Iterator[Buffer]:
        """Make buffers of pods like those that others have templates for."""
        for one in chunks:
            subject = f"capacitybuffer {one.like.namespace}/{one.name}"
            template, problem = self._ask(
                partial(self._workloads.template, one.like), BUFFER_ROLE, one.like.namespace
            )
            if problem:
                self._leave_for_now(one.like.namespace, deployment_like(one))
                self.kept.append(HeadroomStatus(subject, one.source, problem=problem))
                continue
            if template is None:
                self.kept.append(
                    HeadroomStatus(subject, one.source, problem=f"there is no {one.like}")
                )
                continue
            try:
                requests = requests_of(template.spec)
                count = chunk_count(one, template.replicas, requests)
            except ValueError as error:
                self.kept.append(HeadroomStatus(subject, one.source, problem=str(error)))
                continue
            pods = pods_like(one, template.spec, requests)
            yield Buffer(one.source, pods, at_least=count.replicas, why=count.reason)

    def _leave_for_now(self, namespace: str, name: str) -> None:
        """Leave a buffer's Deployment as it is, since nobody can say what it should be."""
        self._out_of_sight.add((namespace, name))
        before = self._known.get(buffer_subject(namespace, name))
        self.kept += [before] if before else []

    def _look_after_buffer(
        self,
        subject: str,
        buffer: Buffer,
        seen: Sequence[timedelta],
        size: ClusterSize,
        there: Sequence[FoundDeployment],
    ) -> None:
        before = self._known.get(subject)
        join = median_low(seen) if seen else before.join if before else None
        wanted = buffer_size(buffer, size, [join] if join else [], self.at)
        running = _running(buffer.pods, there) if self._acts else None
        kept = HeadroomStatus(
            subject, buffer.source, wanted.replicas, wanted.reason, join=join, running=running
        )
        resize = partial(self._resize, buffer.pods, wanted.replicas, there)
        self._keep(kept, *self._ask(resize, BUFFER_ROLE, buffer.pods.namespace))

    def _resize(self, pods: PausePods, replicas: int, there: Sequence[FoundDeployment]) -> str:
        """Give a buffer's Deployment its size; returns what is in the way."""
        if hidden := self._hidden.get(pods.namespace):
            return hidden
        others = ((one.namespace, one.name) for one in there if not one.ours)
        if (pods.namespace, pods.name) in others:
            return f"Deployment {pods.namespace}/{pods.name} is somebody else's"
        if self._acts:
            self._workloads.apply(deployment_object(pods, replicas))
        return ""

    def _remove_orphans(self, there: Sequence[FoundDeployment], buffers: Sequence[Buffer]) -> None:
        """Delete Deployments of buffers that nobody wants any more, with what only they needed.

        The Deployment goes last: as long as it is there, the next tick finds it again. Those of a
        namespace that can't be listed are kept in mind.
        """
        wanted = {(buffer.pods.namespace, buffer.pods.name) for buffer in buffers}
        classes = {priority_class_name(buffer.pods.priority) for buffer in buffers}
        for orphan in there if self._acts else ():
            if not orphan.ours or (orphan.namespace, orphan.name) in wanted | self._out_of_sight:
                continue
            remove = partial(self._remove, orphan, classes)
            _, problem = self._ask(remove, BUFFER_ROLE, orphan.namespace)
            if problem:
                self._keep_in_mind(orphan.namespace, orphan.name, problem)
        for namespace, name in _known_buffers(self._known):
            if namespace in self._hidden and (namespace, name) not in wanted | self._out_of_sight:
                self._keep_in_mind(namespace, name, self._hidden[namespace])

    def _keep_in_mind(self, namespace: str, name: str, problem: str) -> None:
        subject = buffer_subject(namespace, name)
        kept = self._known.get(subject) or HeadroomStatus(subject, "headroom")
        self.kept.append(replace(kept, problem=problem))

    def _remove(self, orphan: FoundDeployment, classes: set[str]) -> None:
        if orphan.priority_class and orphan.priority_class not in classes:
            self._workloads.remove_priority_class(orphan.priority_class)
        self._workloads.remove_deployment(orphan.namespace, orphan.name)

    def _look_after_target(self, scaled: ScaledTarget) -> None:
        kept = HeadroomStatus(
            str(scaled.target), scaled.source, target=scaled.target, restore=scaled.restore
        )
        wanted = target_size(scaled, self.at)
        if wanted is None:
            self.kept.append(replace(kept, reason="paused: left as it is"))
            return
        kept = replace(kept, replicas=wanted.replicas, reason=wanted.reason)
        scale = partial(self._scale, scaled.target, wanted.replicas)
        # Rights on other kinds are for their users to write down.
        role = TARGET_ROLE if scaled.target.api_version == "apps/v1" else ""
        self._keep(kept, *self._ask(scale, role, scaled.target.namespace))

    def _keep(self, kept: HeadroomStatus, in_the_way: str | None, failed: str) -> None:
        """Note what has its size now, or the size that it was left with."""
        if problem := failed or in_the_way:
            before = self._known.get(kept.subject)
            kept = replace(kept, replicas=before.replicas if before else None, problem=problem)
        self.kept.append(kept)

    def _scale(self, target: ScaleTarget, replicas: int) -> str:
        """Scale a target where it has another size; returns what is in the way."""
        has = self._workloads.scale_of(target)
        if has is None:
            missing = f"there is no {target.kind} {target.name} in namespace {target.namespace}"
            return f"{missing}: a ScaledObject scales in its own namespace only"
        if has.replicas != replicas and self._acts:
            self._remember(str(target), Original(has.uid, has.replicas))
            self._workloads.scale(target, replicas)
        return ""

    def _refuse(self, subject: str, sources: Sequence[str]) -> None:
        named = " and ".join(sources)
        problem = f"{named} both want it: neither has its way"
        self.kept.append(HeadroomStatus(subject, named, problem=problem))

    def _let_go(self, kept: HeadroomStatus) -> None:
        """Leave or restore a target whose manifest is gone, and forget it; one that can't be
        touched is kept in mind, with the reason."""
        problem = ""
        target, original = kept.target, kept.original
        if target is not None and original is not None and kept.restore and self._acts:
            restore = partial(self._restore, target, original)
            _, problem = self._ask(restore, TARGET_ROLE, target.namespace)
        if problem:
            self.kept.append(replace(kept, problem=problem))
        else:
            self.forgotten.append(kept.subject)

    def _restore(self, target: ScaleTarget, original: Original) -> None:
        """Give a target the size that it had, unless it is another object of its name."""
        has = self._workloads.scale_of(target)
        if has is not None and has.uid == original.uid and has.replicas != original.replicas:
            self._workloads.scale(target, original.replicas)

    def _ask[T](
        self, ask: Callable[[], T], role: str = "", namespace: str = ""
    ) -> tuple[T | None, str]:
        """Ask for something about one object; returns the answer, or what is in the way of it. A
        right that is missing is named with the command that gives it: the `role`'s in `namespace`.

        Raises:
            ClusterUnavailable: it fails, and there is no patience left for other objects.
        """
        try:
            return ask(), ""
        except ClusterRefused as error:
            return None, how_to_grant(error, role, namespace)
        except ClusterUnavailable as error:
            if self._clock.now() - self.at >= PATIENCE:
                raise
            return None, str(error)


def _running(pods: PausePods, there: Sequence[FoundDeployment]) -> int:
    named = (one for one in there if (one.namespace, one.name) == (pods.namespace, pods.name))
    return next((one.running for one in named), 0)


_BUFFER = "buffer "


def buffer_subject(namespace: str, name: str) -> str:
    """Name a buffer by its Deployment: `a-b` of one manifest may be another's `a` in `a-b`."""
    return f"{_BUFFER}{namespace}/{name}"


def _known_buffers(known: Iterable[str]) -> set[tuple[str, str]]:
    """Return the namespaces and names of those buffers among some subjects."""
    parted = (one.removeprefix(_BUFFER).split("/") for one in known if one.startswith(_BUFFER))
    return {(parts[0], parts[1]) for parts in parted}


def _by_subject(buffers: Iterable[Buffer]) -> dict[str, list[Buffer]]:
    """Group buffers by their Deployment."""
    grouped: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        subject = buffer_subject(buffer.pods.namespace, buffer.pods.name)
        grouped.setdefault(subject, []).append(buffer)
    return grouped


def _shared_objects(buffers: Iterable[Buffer]) -> list[dict[str, Any]]:
    """The priority classes of buffers, each once."""
    priorities = sorted({buffer.pods.priority for buffer in buffers})
    return [priority_class_object(priority) for priority in priorities]
