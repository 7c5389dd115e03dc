"""Reconciles the headroom of one cluster: gives every buffer and target its size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from statistics import median_low
from typing import Any

from leeway.clock import Clock
from leeway.headroom.pause_pods import (
    NAMESPACE,
    PausePods,
    deployment_object,
    priority_class_name,
    priority_class_object,
)
from leeway.headroom.plan import (
    Buffer,
    ClusterSize,
    DesiredHeadroom,
    FoundDeployment,
    PodTemplate,
    ScaledTarget,
    ScaleTarget,
    TemplateBuffer,
    Workloads,
    buffer_size,
    conflicting_targets,
    target_size,
    template_buffer_size,
    template_deployment_name,
    template_pods,
)
from leeway.headroom.reasons import (
    BUFFER_WITHOUT_SIZE,
    DEPLOYMENT_NOT_OWNED,
    OBJECT_REFUSED,
    OBJECT_UNAVAILABLE,
    RIGHT_MISSING,
    SCALE_CONFLICT,
    TARGET_NOT_FOUND,
    TARGET_PAUSED,
)
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused, ClusterUnavailable
from leeway.reasons import Reason
from leeway.selection.reading.pod_objects import requests_of
from leeway.table import Record


@dataclass(frozen=True, slots=True)
class OriginalScale:
    """The size of a scaled target before Leeway scaled it first. `uid` is the object's: another
    object may later have the same name."""

    subject: str
    uid: str
    replicas: int


@dataclass(frozen=True, slots=True)
class HeadroomStatus:
    """The status of one buffer or target. `subject` names it, `source` its manifest.

    - `replicas`: the last size that Leeway applied, None if it applied none.
    - `problem`: why the desired size was not applied, None if it was.
    - `target`, `restore`: those of a scaled target.
    - `join_time`: how long the buffer's pods waited for a node.
    - `ready`: how many of the buffer's pods are Ready; None if they were not counted.
    """

    subject: str
    source: str
    replicas: int | None = None
    reason: Reason | None = None
    problem: Reason | None = None
    target: ScaleTarget | None = None
    restore: bool = False
    join_time: timedelta | None = None
    ready: int | None = None

    @property
    def pending(self) -> int:
        """The number of the buffer's pods that are not Ready."""
        if self.replicas is None or self.ready is None:
            return 0
        return max(0, self.replicas - self.ready)


STATUS = Record(HeadroomStatus, "HEADROOM#{cluster}", "STATUS#{subject}")

ORIGINAL = Record(OriginalScale, "HEADROOM#{cluster}", "ORIGINAL#{subject}#{uid}")
"""Written once for each object: of two runs at the same time, the second may read the size that the
first has just applied."""


GROUP = "leeway:headroom"
BUFFER_ROLE = "leeway-headroom-buffer"
TARGET_ROLE = "leeway-headroom-target"
"""ClusterRoles of rbac/. A RoleBinding in a namespace grants them there: the first for
pause pods, the second for scaling the objects that users run there."""

_DENIED = "denied the request"
"""Part of the answers of admission webhooks and policies, which no role changes."""


def refusal_reason(refused: ClusterRefused, role: str, namespace: str) -> Reason:
    """Return the reason of a refusal. If RBAC refused and `role` is not empty, it contains the
    command that grants the role in the namespace."""
    error = str(refused)
    if not isinstance(refused, ClusterForbidden) or not role or _DENIED in error:
        return OBJECT_REFUSED(error=error)
    command = (
        f"kubectl create rolebinding {role} --clusterrole={role} --group={GROUP}"
        f" --namespace={namespace}"
    )
    return RIGHT_MISSING(error=error, namespace=namespace, command=command)


UNAVAILABLE_TIMEOUT = timedelta(seconds=20)
"""How long a run continues with other objects after the API server failed on one of them. A failure
may be that of an object's admission webhook; after this time the API server counts as down."""

_SOURCE = "headroom"
"""The source of a status that belongs to no manifest."""

_AND = " and "
"""Separates the sources in a conflict. No name in Kubernetes contains a space."""


class HeadroomReconciler:
    """Reconciles one cluster once; a dry run changes nothing.

    `stored` are the statuses of the last run, `originals` the original scales of targets;
    `keep_status` and `keep_original` store one more. `statuses` and `removed` (subjects) are the
    results.
    """

    def __init__(
        self,
        workloads: Workloads,
        stored: dict[str, HeadroomStatus],
        originals: Iterable[OriginalScale],
        keep_status: Callable[[HeadroomStatus], None],
        keep_original: Callable[[OriginalScale], None],
        clock: Clock,
        dry_run: bool,
    ) -> None:
        self._workloads = workloads
        self._stored = stored
        self._originals = {(one.subject, one.uid): one for one in originals}
        self._keep_status = keep_status
        self._keep_original = keep_original
        self._clock = clock
        self._dry_run = dry_run
        self._unsized: set[tuple[str, str]] = set()
        self._unlisted: dict[str, Reason] = {}
        self.at = clock.now()
        self.statuses: list[HeadroomStatus] = []
        self.removed: list[str] = []

    def reconcile(self, desired: DesiredHeadroom) -> None:
        """Give every buffer and target its size, and clean up those without a manifest."""
        self._reconcile_buffers(desired)
        conflicts = conflicting_targets(desired.targets)
        for target, sources in conflicts.items():
            self._report_conflict(str(target), sources, target)
        for scaled in desired.targets:
            if scaled.target not in conflicts:
                self._reconcile_target(scaled)
        subjects = {status.subject for status in self.statuses}
        for status in self._stored.values():
            if status.subject not in subjects and not _is_unread(status, desired.unreadable):
                self._release(status)

    def _reconcile_buffers(self, desired: DesiredHeadroom) -> None:
        buffers = [*desired.buffers, *self._from_templates(desired.template_buffers)]
        had_buffers = any(status.target is None for status in self._stored.values())
        if not buffers and not had_buffers:
            return
        existing = self._list_deployments(buffers)
        join_times = self._read(self._workloads.join_times, "pods") if buffers else {}
        proportional = any(buffer.is_proportional for buffer in buffers)
        size = self._read(self._workloads.size, "nodes") if proportional else ClusterSize(0, 0)
        self._apply_priority_classes(buffers)
        for subject, same in _by_subject(buffers).items():
            if len(same) > 1:
                self._report_conflict(subject, sorted(buffer.source for buffer in same))
                continue
            pods = same[0].pods
            if size is None and same[0].is_proportional:
                self._keep_size(pods.namespace, pods.name)
                continue
            measured = (join_times or {}).get((pods.namespace, pods.name), [])
            self._reconcile_buffer(subject, same[0], measured, size or ClusterSize(0, 0), existing)
        self._remove_orphans(existing, buffers, desired.unreadable)

    def _list_deployments(self, buffers: Sequence[Buffer]) -> Sequence[FoundDeployment]:
        """List the Deployments of all namespaces that have or had buffers. A missing right in one
        namespace affects only the buffers of that namespace."""
        namespaces = {NAMESPACE, *(buffer.pods.namespace for buffer in buffers)}
        namespaces |= {namespace for namespace, _ in _stored_buffers(self._stored)}
        found: list[FoundDeployment] = []
        for namespace in sorted(namespaces):
            try:
                found += self._workloads.deployments(namespace)
            except ClusterRefused as error:
                self._unlisted[namespace] = refusal_reason(error, BUFFER_ROLE, namespace)
        return found

    def _read[T](self, read: Callable[[], T], what: str) -> T | None:
        """Read a state of the whole cluster; a failure becomes a problem, and the result None."""
        result, problem = self._call(read)
        if problem is not None:
            self._report(f"the cluster's {what}", _SOURCE, problem)
        return result

    def _apply_priority_classes(self, buffers: Sequence[Buffer]) -> None:
        for priority_class in () if self._dry_run else _priority_classes(buffers):
            _, problem = self._call(partial(self._workloads.apply, priority_class))
            if problem is not None:
                name = priority_class["metadata"]["name"]
                self._report(f"PriorityClass {name}", _SOURCE, problem)

    def _from_templates(self, buffers: Iterable[TemplateBuffer]) -> Iterator[Buffer]:
        """Make buffers whose pods have the pod templates of other objects."""
        for one in buffers:
            namespace = one.template_of.namespace
            subject = f"capacitybuffer {namespace}/{one.name}"
            read = partial(self._workloads.template, one.template_of)
            template, problem = self._call(read, BUFFER_ROLE, namespace)
            if problem is not None:
                self._keep_size(namespace, template_deployment_name(one))
                self._report(subject, one.source, problem)
            elif template is None:
                self._report(subject, one.source, _not_found(one.template_of))
            else:
                try:
                    buffer = _sized(one, template)
                except ValueError as error:
                    self._report(subject, one.source, BUFFER_WITHOUT_SIZE(error=error))
                else:
                    yield buffer

    def _keep_size(self, namespace: str, name: str) -> None:
        """Do not change a buffer's Deployment, since its size cannot be determined."""
        self._unsized.add((namespace, name))
        before = self._stored.get(buffer_subject(namespace, name))
        self.statuses += [before] if before else []

    def _reconcile_buffer(
        self,
        subject: str,
        buffer: Buffer,
        measured: Sequence[timedelta],
        size: ClusterSize,
        existing: Sequence[FoundDeployment],
    ) -> None:
        before = self._stored.get(subject)
        join_time = median_low(measured) if measured else before.join_time if before else None
        wanted = buffer_size(buffer, size, [join_time] if join_time else [], self.at)
        status = HeadroomStatus(
            subject,
            buffer.source,
            wanted.replicas,
            wanted.reason,
            join_time=join_time,
            ready=None if self._dry_run else _ready(buffer.pods, existing),
        )
        self._keep_before_change(status)
        resize = partial(self._resize, buffer.pods, wanted.replicas, existing)
        self._finish(status, *self._call(resize, BUFFER_ROLE, buffer.pods.namespace))

    def _resize(
        self, pods: PausePods, replicas: int, existing: Sequence[FoundDeployment]
    ) -> Reason | None:
        """Apply a buffer's Deployment; returns why it is not applied, if so."""
        if unlisted := self._unlisted.get(pods.namespace):
            return unlisted
        not_ours = ((one.namespace, one.name) for one in existing if not one.ours)
        if (pods.namespace, pods.name) in not_ours:
            return DEPLOYMENT_NOT_OWNED(namespace=pods.namespace, name=pods.name)
        if not self._dry_run:
            self._workloads.apply(deployment_object(pods, replicas))
        return None

    def _remove_orphans(
        self,
        existing: Sequence[FoundDeployment],
        buffers: Sequence[Buffer],
        unreadable: frozenset[str],
    ) -> None:
        """Delete the Deployments of buffers that no manifest defines, with their priority classes.

        The Deployment is deleted last, so that a failed run finds it again. Buffers in a namespace
        that cannot be listed keep their status, with the problem.
        """
        wanted = {(buffer.pods.namespace, buffer.pods.name) for buffer in buffers}
        found = [one for one in existing if one.ours and (one.namespace, one.name) not in wanted]
        kept = [one for one in found if self._is_kept(one.namespace, one.name, unreadable)]
        classes = {priority_class_name(buffer.pods.priority) for buffer in buffers}
        classes |= {one.priority_class for one in kept}
        for orphan in () if self._dry_run else found:
            if orphan in kept:
                continue
            remove = partial(self._remove, orphan, classes)
            _, problem = self._call(remove, BUFFER_ROLE, orphan.namespace)
            if problem is not None:
                self._report_buffer(orphan.namespace, orphan.name, problem)
        for namespace, name in _stored_buffers(self._stored):
            if namespace not in self._unlisted or (namespace, name) in wanted:
                continue
            if not self._is_kept(namespace, name, unreadable):
                self._report_buffer(namespace, name, self._unlisted[namespace])

    def _is_kept(self, namespace: str, name: str, unreadable: frozenset[str]) -> bool:
        """Whether the Deployment of a buffer stays although no manifest that was read defines it.
        Without a status, any manifest that cannot be read may define it."""
        status = self._stored.get(buffer_subject(namespace, name))
        unread = bool(unreadable) if status is None else _is_unread(status, unreadable)
        return unread or (namespace, name) in self._unsized

    def _remove(self, orphan: FoundDeployment, classes: set[str]) -> None:
        if orphan.priority_class and orphan.priority_class not in classes:
            self._workloads.remove_priority_class(orphan.priority_class)
        self._workloads.remove_deployment(orphan.namespace, orphan.name)

    def _reconcile_target(self, scaled: ScaledTarget) -> None:
        status = HeadroomStatus(
            str(scaled.target), scaled.source, target=scaled.target, restore=scaled.restore
        )
        wanted = target_size(scaled, self.at)
        if wanted is None:
            self.statuses.append(
                replace(status, reason=TARGET_PAUSED(effect=": its target is not scaled"))
            )
            return
        status = replace(status, replicas=wanted.replicas, reason=wanted.reason)
        self._keep_before_change(status)
        scale = partial(self._scale, scaled.target, wanted.replicas)
        # Leeway has no ClusterRole for kinds other than those of apps/v1.
        role = TARGET_ROLE if scaled.target.api_version == "apps/v1" else ""
        self._finish(status, *self._call(scale, role, scaled.target.namespace))

    def _keep_before_change(self, status: HeadroomStatus) -> None:
        """Store which manifest defines an object before Leeway first changes the object for it. A
        run that fails later stores nothing more, and without a status no run cleans up the object
        after its manifest was deleted."""
        before = self._stored.get(status.subject)
        if not self._dry_run and (before is None or before.source != status.source):
            self._keep_status(replace(status, replicas=before.replicas if before else None))

    def _finish(
        self, status: HeadroomStatus, not_applied: Reason | None, failed: Reason | None
    ) -> None:
        """Add a status; with a problem it has the size of the last run."""
        if problem := failed or not_applied:
            before = self._stored.get(status.subject)
            replicas = before.replicas if before else None
            status = replace(status, replicas=replicas, problem=problem)
        self.statuses.append(status)

    def _report(self, subject: str, source: str, problem: Reason) -> None:
        self.statuses.append(HeadroomStatus(subject, source, problem=problem))

    def _report_buffer(self, namespace: str, name: str, problem: Reason) -> None:
        """Keep the status of a buffer, with a problem."""
        subject = buffer_subject(namespace, name)
        status = self._stored.get(subject) or HeadroomStatus(subject, _SOURCE)
        self.statuses.append(replace(status, problem=problem))

    def _report_conflict(
        self, subject: str, sources: Sequence[str], target: ScaleTarget | None = None
    ) -> None:
        """Report manifests that define the same buffer or target. The object keeps its size, and
        the status still says whether a target is restored when all of them are deleted."""
        named = _AND.join(sources)
        before = self._stored.get(subject) or HeadroomStatus(subject, named)
        problem = SCALE_CONFLICT(sources=named)
        self.statuses.append(replace(before, source=named, target=target, problem=problem))

    def _scale(self, target: ScaleTarget, replicas: int) -> Reason | None:
        """Scale a target that has another size; returns why it is not scaled, if so."""
        current = self._workloads.scale_of(target)
        if current is None:
            return _not_found(target)
        if current.replicas != replicas and not self._dry_run:
            self._keep_original(OriginalScale(str(target), current.uid, current.replicas))
            self._workloads.scale(target, replicas)
        return None

    def _release(self, status: HeadroomStatus) -> None:
        """Remove the status of a target without a manifest, after its original size is restored if
        the manifest asked for that. If that fails, the status stays with the problem."""
        problem = None
        if (target := status.target) is not None and status.restore and not self._dry_run:
            _, problem = self._call(partial(self._restore, target), TARGET_ROLE, target.namespace)
        if problem is not None:
            self.statuses.append(replace(status, problem=problem))
        else:
            self.removed.append(status.subject)

    def _restore(self, target: ScaleTarget) -> None:
        """Restore the original size of a target, unless another object has its name now."""
        if not any(subject == str(target) for subject, _ in self._originals):
            return  # Leeway never scaled it
        current = self._workloads.scale_of(target)
        original = self._originals.get((str(target), current.uid)) if current else None
        if current and original and current.replicas != original.replicas:
            self._workloads.scale(target, original.replicas)

    def _call[T](
        self, call: Callable[[], T], role: str = "", namespace: str = ""
    ) -> tuple[T | None, Reason | None]:
        """Call the API server about one object; returns the result, or why the call failed. For a
        missing right that is the command that grants the `role` in the `namespace`.

        Raises:
            ClusterUnavailable: the API server fails, and UNAVAILABLE_TIMEOUT is over.
        """
        try:
            return call(), None
        except ClusterRefused as error:
            return None, refusal_reason(error, role, namespace)
        except ClusterUnavailable as error:
            if self._clock.now() - self.at >= UNAVAILABLE_TIMEOUT:
                raise
            return None, OBJECT_UNAVAILABLE(error=error)


def _sized(buffer: TemplateBuffer, template: PodTemplate) -> Buffer:
    """Return the buffer of a pod template.

    Raises:
        ValueError: the requests cannot be read, or the manifest defines no size.
    """
    requests = requests_of(template.spec)
    size = template_buffer_size(buffer, template.replicas, requests)
    pods = template_pods(buffer, template.spec, requests)
    return Buffer(buffer.source, pods, at_least=size.replicas, why=size.reason)


def _not_found(target: ScaleTarget) -> Reason:
    return TARGET_NOT_FOUND(kind=target.kind, name=target.name, namespace=target.namespace)


def _is_unread(status: HeadroomStatus, unreadable: frozenset[str]) -> bool:
    """Whether a manifest that defined this buffer or target cannot be read."""
    return not unreadable.isdisjoint(status.source.split(_AND))


def _ready(pods: PausePods, existing: Sequence[FoundDeployment]) -> int:
    found = (one for one in existing if (one.namespace, one.name) == (pods.namespace, pods.name))
    return next((one.ready for one in found), 0)


_BUFFER = "buffer "


def buffer_subject(namespace: str, name: str) -> str:
    """Return the subject of a buffer, which contains the namespace and name of its Deployment."""
    return f"{_BUFFER}{namespace}/{name}"


def _stored_buffers(subjects: Iterable[str]) -> set[tuple[str, str]]:
    """Return the namespaces and names of the buffers among these subjects."""
    split = (one.removeprefix(_BUFFER).split("/") for one in subjects if one.startswith(_BUFFER))
    return {(parts[0], parts[1]) for parts in split}


def _by_subject(buffers: Iterable[Buffer]) -> dict[str, list[Buffer]]:
    grouped: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        subject = buffer_subject(buffer.pods.namespace, buffer.pods.name)
        grouped.setdefault(subject, []).append(buffer)
    return grouped


def _priority_classes(buffers: Iterable[Buffer]) -> list[dict[str, Any]]:
    """Return the priority classes of the buffers, each once."""
    priorities = sorted({buffer.pods.priority for buffer in buffers})
    return [priority_class_object(priority) for priority in priorities]
