"""A run of provision_nodes for a cluster whose users keep its manifests in its API server.

Copy what the API server has now → provision → write the status of the manifests. So a change acts
in the run that the watch on manifests requests. The status comes last and takes a few seconds at
most: pods of the next cluster of the batch may wait. One that cannot be written changes nothing
else.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from leeway.clock import Clock
from leeway.launch.belonging import NotOfCluster
from leeway.launch.images import ImageVariant, variants_of
from leeway.launch.node_settings import NodeSettings, NotLaunchable, settings_of, user_tags
from leeway.launch.reservations import CapacityReservation
from leeway.launch.resolve_pools import NodeSources, NoWayToIam, PoolResolver
from leeway.manifests.base import Manifest
from leeway.manifests.configuration import MANIFEST_INVALID, Configuration
from leeway.manifests.in_cluster import Copied, Lease, running_karpenter
from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.node_pool import NodePool
from leeway.manifests.status import (
    NODE_CLASS,
    OF_KARPENTER,
    POOL,
    ClusterFacts,
    Document,
    Found,
    ReadObject,
    ResolvedClass,
    StatusPatch,
    class_of,
    plan_statuses,
    shortened,
)
from leeway.pool_pauses import POOL as PAUSES
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import (
    ClusterForbidden,
    ClusterRefused,
    ClusterUnavailable,
    Event,
    ObjectReference,
)
from leeway.provisioning.report import ProvisioningReport
from leeway.reasons import Reason, ReasonCode, clause
from leeway.selection.labels import ARCH, INSTANCE
from leeway.table import Table

MANIFESTS_NOT_COPIED = ReasonCode(
    "ManifestsNotCopied",
    "The manifests of the API server of cluster {cluster} can't be copied: {error}. The last known "
    "ones apply.",
    "a-change-of-a-manifest-in-the-cluster-does-not-act",
)
STATUS_NOT_WRITTEN = ReasonCode(
    "StatusNotWritten",
    "The status of {title} in cluster {cluster} can't be written: {error}.",
    "a-change-of-a-manifest-in-the-cluster-does-not-act",
)

READY_FOR = timedelta(minutes=5)
"""How long what a node class selects is kept; Karpenter reads AMIs as often."""
RETRY_AFTER = timedelta(minutes=1)
"""How long it is kept if no node can be launched with it."""
_AT_ONCE = datetime.min.replace(tzinfo=UTC)

EXPIRES_FOR = timedelta(minutes=40)
"""How long before its end Karpenter calls a Capacity Block expiring."""

AT_THE_END = timedelta(seconds=3)
"""The time that a run keeps after its last write of a status."""
WRITES_FOR = timedelta(seconds=6)
"""How long a run reads node classes and writes statuses; the next run goes on where it ended."""

EVENTS_KEPT = timedelta(minutes=55)
MOST_EVENTS = 20
"""Events of one run about invalid manifests: whoever writes manifests may write hundreds."""

_KINDS = ("cluster.leeway.sh", NODE_CLASS, POOL)
MOST_PROBLEMS = 3
_GPUS, _ACCELERATORS = f"{INSTANCE}gpu-count", f"{INSTANCE}accelerator-count"


class ManifestApi(Protocol):
    """The API server of one cluster, as far as the status of manifests goes."""

    def karpenter_leases(self) -> Sequence[Lease]:
        """Read the Leases with which Karpenter elects its leader."""
        ...

    def patch_status(self, patch: StatusPatch) -> bool:
        """Patch the status of an object at the version that was read; False if the object has
        changed or is gone.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        ...

    def write_event(self, event: Event) -> None:
        """Write an Event. One of the same name is no error.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports. `run` provisions a cluster; `copy` copies its manifests, None if they are in the
    table. `within` limits the seconds of all requests to an API server in its block."""

    run: Callable[[str, str, datetime], ProvisioningReport]
    copy: Callable[[str], Copied | None]
    manifests: Configuration
    open_cluster: Callable[[str], ManifestApi]
    within: Callable[[float], AbstractContextManager[None]]
    sources: NodeSources
    table: Table
    clock: Clock


@dataclass(slots=True)
class _Kept:
    """What is kept between runs.

    - `classes`: what node classes select, by name, with the settings that were resolved, and until
      when.
    - `events`: the Events that were written, by name, and until when the API server keeps them.
    - `patched`: the last patch of each object, by its uid, and the version that it was for.
    """

    classes: dict[str, tuple[NodeSettings, ResolvedClass, datetime]] = field(default_factory=dict)
    events: dict[str, datetime] = field(default_factory=dict)
    patched: dict[str, object] = field(default_factory=dict)


class ManifestRun:
    """Runs for clusters, with the interface of NodeProvisioning. What is kept between runs only
    saves calls: another environment reads AWS again."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._kept: dict[str, _Kept] = {}

    def run(self, cluster: str, why: str, until: datetime) -> ProvisioningReport:
        """Run once for a cluster, at most until this time. Never raises."""
        copied, problems = self._copy(cluster)
        # Each environment of the function caches manifests. If two of them knew different ones, one
        # would launch the nodes of a static pool that the other has just given back.
        self._deps.manifests.forget(cluster)
        report = self._deps.run(cluster, why, until)
        if copied is not None:
            now = self._deps.clock.now()
            end = min(until - AT_THE_END, now + WRITES_FOR)
            try:
                with self._deps.within((end - now).total_seconds()):
                    problems += self._write(cluster, copied, report, end)
            except Exception as error:  # noqa: BLE001 (the run is done: only the status is missing)
                problems.append(_not_written("the manifests", cluster, error))
        return replace(report, launch_problems=(*report.launch_problems, *problems))

    def _copy(self, cluster: str) -> tuple[Copied | None, list[Reason]]:
        try:
            return self._deps.copy(cluster), []
        except Exception as error:  # noqa: BLE001 (the last known manifests apply)
            text = clause(error) or type(error).__name__
            return None, [MANIFESTS_NOT_COPIED(cluster=cluster, error=text)]

    def _write(
        self, cluster: str, copied: Copied, report: ProvisioningReport, until: datetime
    ) -> list[Reason]:
        """Write the status of the manifests that were read, and Events about invalid ones."""
        deps, kept = self._deps, self._kept.setdefault(cluster, _Kept())
        api, now = deps.open_cluster(cluster), deps.clock.now()
        runs = running_karpenter(cluster, api.karpenter_leases(), now) is not None
        classes: Mapping[str, ResolvedClass] = {}
        later: Set[str] = frozenset()
        if not runs:
            half = now + (until - now) / 2
            classes, later = self._classes(cluster, copied.objects, kept, now, half)
        facts = ClusterFacts(
            cluster,
            karpenter=runs,
            held=copied.held,
            usage=report.usage,
            paused={
                one.pool: one.paused
                for one in deps.table.list(PAUSES, cluster=cluster)
                if one.paused is not None
            },
            conflicts=report.conflicts,
            classes=classes,
        )
        known = [one for one in copied.objects if _named_class(one) not in later]
        patches = plan_statuses(known, facts, now)
        problems, answers = self._patch(cluster, patches, api, kept, until)
        if answers:
            ours = [one for one in copied.objects if not (runs and one.resource in OF_KARPENTER)]
            due = (*_events(ours, kept.events, now), *_sleeps(ours, report, kept.events))
            self._warn(due, api, kept, until)
        return problems

    def _patch(
        self,
        cluster: str,
        patches: Sequence[StatusPatch],
        api: ManifestApi,
        kept: _Kept,
        until: datetime,
    ) -> tuple[list[Reason], bool]:
        """Send the patches; return what is not written, and whether the API server answers."""
        problems: list[Reason] = []
        patched: dict[str, object] = {}
        answers = True
        for patch in patches:
            if self._deps.clock.now() >= until:
                break
            if kept.patched.get(patch.uid) == patch.at_version:
                # The CRD of the cluster does not have these fields.
                patched[patch.uid] = patch.at_version
                continue
            try:
                # A conflict is harmless: the next run decides on what the object is then.
                api.patch_status(patch)
            except (ClusterRefused, ClusterUnavailable) as error:
                problems.append(_not_written(_title(patch.document), cluster, error))
                answers = isinstance(error, ClusterRefused)
                if len(problems) == MOST_PROBLEMS or not _of_one_object(error):
                    break
            else:
                patched[patch.uid] = patch.at_version
        kept.patched = patched
        return problems, answers

    def _warn(
        self, events: Sequence[Event], api: ManifestApi, kept: _Kept, until: datetime
    ) -> None:
        """Write Events until the time is over or the API server does not answer: the next run
        writes the others."""
        for event in events:
            now = self._deps.clock.now()
            if now >= until:
                return
            try:
                api.write_event(event)
            except (ClusterRefused, ClusterUnavailable) as error:
                if not _of_one_object(error):
                    return
            else:
                kept.events[event.name] = now + EVENTS_KEPT

    def _classes(
        self,
        cluster: str,
        objects: Sequence[ReadObject],
        kept: _Kept,
        now: datetime,
        until: datetime,
    ) -> tuple[Mapping[str, ResolvedClass], Set[str]]:
        """Resolve the node classes of a cluster that pools name, and those that none names yet;
        return what is known, and the names of those that a later run resolves.

        Each is kept at once, and those that were read longest ago come first. So a run whose time
        is over is a step forward, however many classes there are.
        """
        reading = _Reading(PoolResolver(self._deps.sources, cluster), now)
        named = {one.document["metadata"]["name"] for one in objects if one.resource == NODE_CLASS}
        written = [one.manifest for one in self._deps.manifests.manifests(cluster, _KINDS)]
        wanted = {one.node_class: one for one in class_settings(written, named)}
        classes = kept.classes = {
            name: one for name, one in kept.classes.items() if one[0] == wanted.get(name)
        }
        due = {name: classes[name][2] if name in classes else _AT_ONCE for name in wanted}
        for name in sorted(due, key=lambda each: due[each]):
            if due[name] > now or self._deps.clock.now() >= until:
                break
            resolved = reading.resolve(wanted[name])
            usable = resolved.known and resolved.reservations.known and not resolved.problem
            again_at = now + (READY_FOR if usable else RETRY_AFTER)
            classes[name] = wanted[name], resolved, again_at
        found = {name: resolved for name, (_, resolved, _) in classes.items()}
        return found, wanted.keys() - found.keys()


def _named_class(one: ReadObject) -> str:
    """The node class that the status of an object is about; empty if it is about none."""
    if one.resource == NODE_CLASS:
        return str(one.document["metadata"]["name"])
    return class_of(one.document) if one.resource == POOL else ""


def class_settings(manifests: Sequence[Manifest], named: set[str]) -> Sequence[NodeSettings]:
    """Return the settings of each node class that a pool names, or that is given: with those of its
    first pool, or with those that a pool of the same name would have."""
    found = {one.node_class: one for one in reversed(settings_of(manifests))}
    given = {one.metadata.name for one in manifests if isinstance(one, EC2NodeClass)}
    for name in sorted((given & named) - found.keys()):
        pool = NodePool.model_validate(_pool_for(name))
        (found[name],) = settings_of(
            [*(one for one in manifests if not isinstance(one, NodePool)), pool]
        )
    return [found[name] for name in sorted(found)]


def _pool_for(node_class: str) -> Mapping[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": node_class},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": ()}}},
    }


class _Reading:
    """One reading of node classes. When AWS does not answer once, it is not asked again."""

    def __init__(self, resolver: PoolResolver, now: datetime) -> None:
        self._resolver, self._now = resolver, now
        self._silent: CloudUnavailable | None = None

    def resolve(self, one: NodeSettings) -> ResolvedClass:
        """Resolve the parts of a node class, each for itself: all that is wrong is said at once."""
        resolver = self._resolver
        try:
            user_tags(one)
            invalid = ""
        except NotLaunchable as problem:
            invalid = problem.reason.message
        return ResolvedClass(
            subnets=self._found(lambda: _subnets(resolver, one)),
            security_groups=self._found(
                lambda: [{"id": each} for each in resolver.security_groups(one)]
            ),
            images=self._found(lambda: _images(resolver, one)),
            profile=self._found(
                lambda: [{"name": each} for each in resolver.instance_profiles(one)]
            ),
            invalid=invalid,
            reservations=self._found(
                lambda: [
                    _reservation(each, self._now)
                    for each in resolver.selected_reservations(one).of_cluster
                ]
            ),
        )

    def _found(self, read: Callable[[], Sequence[Mapping[str, Any]]]) -> Found:
        try:
            if self._silent is not None:
                raise self._silent
            return Found(tuple(read()))
        except NotOfCluster as problem:
            return Found(None, problem.reason.message)
        except NotLaunchable as problem:
            return Found(problem=problem.reason.message)
        except (CloudRefused, CloudUnavailable) as error:
            if isinstance(error, CloudUnavailable) and not isinstance(error, NoWayToIam):
                self._silent = error
            return Found(problem=f"AWS does not tell: {clause(error)}.", known=False)


def _subnets(resolver: PoolResolver, one: NodeSettings) -> Sequence[Mapping[str, Any]]:
    """The subnets, also those without free addresses, if there are any."""
    resolver.subnets(one, ())
    found = resolver.selected_subnets(one)
    return [{"id": each.id, "zone": each.zone} for each in sorted(found, key=lambda each: each.id)]


def _reservation(one: CapacityReservation, now: datetime) -> Mapping[str, Any]:
    """A capacity reservation as Karpenter writes it, with each field for which its CRD has a
    default."""
    block = one.capacity.block
    expires = block and one.ends is not None and now >= one.ends - EXPIRES_FOR
    ends = {"endTime": f"{one.ends:%Y-%m-%dT%H:%M:%SZ}"} if one.ends is not None else {}
    return {
        "id": one.id,
        "availabilityZone": one.zone,
        **ends,
        "instanceMatchCriteria": "open" if one.is_open else "targeted",
        "instanceType": one.instance_type,
        "interruptible": one.capacity.interruptible,
        "ownerID": one.owner,
        "reservationType": "capacity-block" if block else "default",
        "state": "expiring" if expires else "active",
    }


def _images(resolver: PoolResolver, one: NodeSettings) -> Sequence[Mapping[str, Any]]:
    """The AMI of each kind of machine. A node class may have one of them only."""
    variants = variants_of(one)
    image_of, found = resolver.images(one, variants), []
    by_terms = not any(each.accelerator for each in variants)
    missing: NotLaunchable | None = None
    for variant in variants:
        try:
            image = image_of(variant).id
        except NotLaunchable as problem:
            missing = missing or problem
            continue
        found.append({"id": image, "requirements": _needs(variant, of_any=by_terms)})
    if missing is not None and not found:
        raise missing
    return found


def _needs(variant: ImageVariant, *, of_any: bool) -> list[Mapping[str, Any]]:
    """The requirements of a variant of AMI, as Karpenter writes them; `of_any`: the AMI is also
    for machines with accelerators."""
    arch = "arm64" if variant.architecture == "arm64" else "amd64"
    needs: list[Mapping[str, Any]] = [{"key": ARCH, "operator": "In", "values": [arch]}]
    if variant.accelerator:
        key = _GPUS if variant.accelerator == "nvidia" else _ACCELERATORS
        return [*needs, {"key": key, "operator": "Exists"}]
    if of_any:
        return needs
    return [*needs, *({"key": key, "operator": "DoesNotExist"} for key in (_GPUS, _ACCELERATORS))]


def _events(
    objects: Sequence[ReadObject], written: dict[str, datetime], now: datetime
) -> Sequence[Event]:
    """Return the Events that are due: one for each problem of an object, and again when the API
    server has deleted it."""
    for name in [name for name, until in written.items() if now >= until]:
        del written[name]
    found = []
    for one in objects:
        if not one.problem:
            continue
        metadata = one.document.get("metadata") or {}
        problem = shortened(one.problem)
        about = f"{metadata.get('uid')} {metadata.get('generation')} {problem}"
        digest = hashlib.sha256(about.encode()).hexdigest()[:12]
        name = f"{str(metadata.get('name'))[:200]}.{digest}"
        if name not in written:
            reason = MANIFEST_INVALID(problem=problem, author="")
            found.append(_event(name, one.document, reason))
    return found[:MOST_EVENTS]


def _sleeps(
    objects: Sequence[ReadObject], report: ProvisioningReport, written: Mapping[str, datetime]
) -> Sequence[Event]:
    """Return the Events that are due about pools that hibernate: one for each time."""
    found = []
    for one in objects:
        metadata = one.document.get("metadata") or {}
        pool = str(metadata.get("name"))
        if one.document.get("kind") != "NodePool" or (asleep := report.sleeping.get(pool)) is None:
            continue
        about = f"{metadata.get('uid')} {asleep.opens}"
        name = f"{pool[:200]}.{hashlib.sha256(about.encode()).hexdigest()[:12]}"
        if name not in written:
            found.append(_event(name, one.document, asleep.reason, warning=False))
    return found[:MOST_EVENTS]


def _event(name: str, document: Document, reason: Reason, warning: bool = True) -> Event:
    metadata = document.get("metadata") or {}
    about = ObjectReference(
        kind=str(document.get("kind")),
        name=str(metadata.get("name")),
        uid=str(metadata.get("uid") or ""),
        namespace=str(metadata.get("namespace") or ""),
        api_version=str(document.get("apiVersion")),
    )
    return Event(name, about, reason.code, reason.message, warning)


def _of_one_object(error: Exception) -> bool:
    """Whether the API server refuses what one object is to have: a missing right and an overload
    concern the others, too."""
    return isinstance(error, ClusterRefused) and not isinstance(error, ClusterForbidden)


def _title(document: Document) -> str:
    return f"{document.get('kind')} {(document.get('metadata') or {}).get('name')}"


def _not_written(title: str, cluster: str, error: Exception) -> Reason:
    text = clause(error) or type(error).__name__
    return STATUS_NOT_WRITTEN(title=title, cluster=cluster, error=text)
