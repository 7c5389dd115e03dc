"""The stored manifests of clusters, as functions use them: at most a minute old. If they cannot be
read, interrupted nodes are still drained."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Protocol

from leeway import __version__
from leeway.clock import Clock
from leeway.manifests.cluster import Cluster, cluster_policy
from leeway.manifests.reading import Reading, Written, read_salvaged, read_stored
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason, ReasonCode
from leeway.table import Record, Table, UnreadableRecord
from leeway.telemetry import Telemetry
from leeway.typed_json import Aware

MANIFEST_INVALID = ReasonCode(
    "ManifestInvalid",
    "{problem}{author}. Apply the manifest again.",
    "a-stored-manifest-has-errors",
)
MANIFESTS_NOT_READ = ReasonCode(
    "ManifestsNotRead",
    "The manifests of the cluster cannot be read: {error}. The last ones that were read apply.",
    "clusterproblemsalarm",
)


POOL = "nodepool.karpenter.sh"
"""The kind of the manifests of pools."""


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest in the table: `body` is its JSON. `original` is the JSON of a superseded version
    that `body` was converted from, empty if it was not.

    `resource` is the kind in the form `cluster.leeway.sh`. `version` grows with every write, even
    if the manifest was deleted in between. `written_by` is the version of Leeway that wrote it.
    `deleted_at` is when a pool was deleted, None if it was not: it has no body then.
    `in_cluster`: it is a copy of an object in the API server of the cluster.
    """

    resource: str
    namespace: str
    name: str
    body: str
    version: int
    written_by: str
    written_at: Aware
    deleted_at: Aware | None = None
    original: str = ""
    in_cluster: bool = False

    @property
    def as_written(self) -> str:
        """The JSON of the manifest as the user wrote it."""
        return self.original or self.body

    @property
    def title(self) -> str:
        """The name in the form that kubectl prints: `cluster.leeway.sh/prod`."""
        return f"{self.resource}/{self.name}"


DELETED_KEPT_FOR = timedelta(days=30)
"""How long the table keeps when a pool was deleted."""

MANIFEST = Record(
    StoredManifest,
    "MANIFESTS#{cluster}",
    "{resource}#{namespace}/{name}",
    versioned=True,
    kept_for=lambda manifest: DELETED_KEPT_FOR if manifest.deleted_at else None,
)
"""Keys with MANIFESTS hold nothing else: the right to write manifests is a right to write nothing
else."""


class StoredManifests:
    """The table's manifests."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def of(
        self, cluster: str, resource: str = "", deleted: bool = False
    ) -> tuple[StoredManifest, ...]:
        """Read the current manifests of a cluster, all or those of one kind. With `deleted`, also
        return the pools that were deleted in the last 30 days.

        A stored policy must not count as missing: an item that was written by hand and is not a
        manifest is returned with an empty body, which validation rejects.
        """
        damaged: list[UnreadableRecord] = []
        key = {"cluster": cluster} | ({"resource": resource} if resource else {})
        found = self._table.list(MANIFEST, consistent=True, unreadable=damaged.append, **key)
        named = sorted(
            (*found, *map(_damaged, damaged)), key=lambda one: (one.title, one.namespace)
        )
        return tuple(one for one in named if deleted or one.deleted_at is None)

    def write(self, cluster: str, manifest: StoredManifest, replaces: int) -> None:
        """Write a manifest if version `replaces` is stored; 0 means that none is stored.

        Raises:
            RecordChanged: another version is stored.
        """
        self._table.put(MANIFEST, manifest, replaces=replaces, cluster=cluster)

    def delete_manifest(self, cluster: str, manifest: StoredManifest) -> None:
        """Delete a manifest if its version is stored. Of a pool, the time of the deletion stays:
        its nodes go only if somebody has deleted it, and not if it cannot be found.

        Raises:
            RecordChanged: another version is stored, or none.
        """
        if manifest.resource == POOL:
            now = datetime.now(UTC)  # version 0 counts as not stored for the next write
            deleted = replace(manifest, body="", original="", version=0, deleted_at=now)
            self.write(cluster, deleted, manifest.version)
        else:
            self.forget_manifest(cluster, manifest)

    def forget_manifest(self, cluster: str, manifest: StoredManifest) -> None:
        """Remove a manifest if its version is stored, and leave nothing of a pool: its nodes stay.

        Raises:
            RecordChanged: another version is stored, or none.
        """
        self._table.delete(
            MANIFEST,
            replaces=manifest.version,
            cluster=cluster,
            resource=manifest.resource,
            namespace=manifest.namespace,
            name=manifest.name,
        )


def _damaged(error: UnreadableRecord) -> StoredManifest:
    parts = MANIFEST.parts(error.item.key) or {}
    return StoredManifest(
        resource=parts["resource"],
        namespace=parts["namespace"],
        name=parts["name"],
        body="",
        version=error.item.version,
        written_by="unknown",
        written_at=datetime.fromtimestamp(0, UTC),
    )


@dataclass(frozen=True, slots=True)
class ManifestTelemetry(Telemetry):
    """Logs manifests that have errors."""

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        """Log that a manifest could not be read, or only in part. `keep_headroom` counts the
        invalid manifests of a cluster once a minute."""
        about = {"code": reason.code, "cluster": cluster, "manifest": manifest}
        self.logger.error(reason.message, extra=about)


FRESH_FOR = timedelta(seconds=45)
"""How long a read is cached; including the run time of a function, a change takes effect within a
minute."""

RETRY_AFTER = timedelta(seconds=10)
"""How long after a failed read the table is read again."""

_POLICY = "cluster.leeway.sh"

CAUTIOUS = ClusterPolicy(paused=True)
"""The policy while the manifests are not known: interruptions are drained by the defaults, and
voluntary retirements wait."""


class Reports(Protocol):
    """Reports errors to operators."""

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        """Log that a manifest could not be read, or only in part."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """The last read; `stored` is None until a read succeeds. `deleted` were deleted."""

    stored: tuple[StoredManifest, ...] | None
    until: datetime
    problem: Exception | None = None
    deleted: tuple[StoredManifest, ...] = ()


class Configuration:
    """The ClusterPolicies Protocol and all other manifests, cached in a warm function."""

    def __init__(self, manifests: StoredManifests, clock: Clock, reports: Reports) -> None:
        self._manifests = manifests
        self._clock = clock
        self._reports = reports
        self._known: dict[tuple[str, str], _Known] = {}
        self._readings: dict[StoredManifest, Reading] = {}
        self._lock = RLock()  # clusters are processed in parallel

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return the cluster's policy, at most a minute old; the defaults if it has no manifest.

        Never raises: if the manifests cannot be read, those that were read last apply. If there
        are none, or the policy's manifest is invalid, the cautious policy applies.
        """
        # Only the policy, unless this function reads all manifests anyway: in a storm thousands of
        # functions read it, and all manifests of a cluster have one partition key, which DynamoDB
        # limits to 3,000 read units a second.
        known = self._read(cluster, "" if (cluster, "") in self._known else _POLICY)
        if known.stored is None:
            return CAUTIOUS
        for stored in known.stored:
            if stored.resource == _POLICY:
                return self._policy(cluster, stored)
        return ClusterPolicy()

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Written, ...]:
        """Read the cluster's manifests of kinds such as `nodepool.karpenter.sh`. Invalid manifests
        are reported and skipped.

        Raises:
            CloudUnavailable, CloudRefused: the manifests could not be read, now or before.
        """
        known = self._read(cluster)
        if known.stored is None:
            raise known.problem or CloudUnavailable("the manifests were not read")
        found: list[Written] = []
        for stored in known.stored:
            if stored.resource in resources:
                found += self._reading(cluster, stored).written
        return tuple(found)

    def forget(self, cluster: str) -> None:
        """Read the manifests of a cluster again on their next use. If the table does not answer
        then, those that were read last apply."""
        with self._lock:
            for key, known in self._known.items():
                if key[0] == cluster:
                    self._known[key] = replace(known, until=known.until - FRESH_FOR)

    def unread(self, cluster: str, resources: Collection[str]) -> frozenset[str]:
        """Name the invalid manifests of some kinds, as `KIND NAMESPACE/NAME`. Their objects may
        still exist in the cluster, and must not be treated as orphans."""
        return frozenset(
            f"{one.resource} {one.namespace}/{one.name}".replace(" /", " ")
            for one in self._read(cluster).stored or ()
            if one.resource in resources and not self._reading(cluster, one).written
        )

    def has_deleted(self, cluster: str, resources: Collection[str]) -> bool:
        """Whether a manifest of some kinds was deleted in the last 30 days."""
        return any(one.resource in resources for one in self._read(cluster).deleted)

    def faulty(self, cluster: str) -> int:
        """Count the manifests, of any kind, that have an error."""
        stored = self._read(cluster).stored or ()
        return sum(bool(self._reading(cluster, one).problems) for one in stored)

    def _policy(self, cluster: str, stored: StoredManifest) -> ClusterPolicy:
        for written in self._reading(cluster, stored).written:
            if isinstance(written.manifest, Cluster):
                return cluster_policy(written.manifest)
        return CAUTIOUS

    def _read(self, cluster: str, resource: str = "") -> _Known:
        known, now = self._known.get((cluster, resource)), self._clock.now()
        if known is not None and now < known.until:
            return known
        # Without the lock: reads for several clusters run in parallel if the table is slow.
        try:
            found = self._manifests.of(cluster, resource, deleted=True)
        except (CloudUnavailable, CloudRefused) as error:
            before = known.stored if known is not None else None
            self._reports.manifest_problem(cluster, "", MANIFESTS_NOT_READ(error=error))
            read = _Known(before, now + RETRY_AFTER, error)
        else:
            stored = tuple(one for one in found if one.deleted_at is None)
            deleted = tuple(one for one in found if one.deleted_at is not None)
            read = _Known(stored, now + FRESH_FOR, deleted=deleted)
        with self._lock:
            self._known[cluster, resource] = read
            current = {one for known in self._known.values() for one in known.stored or ()}
            self._readings = {one: made for one, made in self._readings.items() if one in current}
        return read

    def _reading(self, cluster: str, stored: StoredManifest) -> Reading:
        """Validate a manifest, and report its errors, once for each version."""
        with self._lock:
            if stored not in self._readings:
                self._readings[stored] = self._make_sense_of(cluster, stored)
            return self._readings[stored]

    def _make_sense_of(self, cluster: str, stored: StoredManifest) -> Reading:
        # The valid part of a policy applies; other manifests apply only as a whole.
        read = read_salvaged if stored.resource == _POLICY else read_stored
        reading = read(stored.body, stored.title)
        author = ""
        if stored.written_by != __version__:
            author = f" (written by Leeway {stored.written_by}, read by {__version__})"
        for problem in reading.problems:
            reason = MANIFEST_INVALID(problem=str(problem).removesuffix("."), author=author)
            self._reports.manifest_problem(cluster, stored.title, reason)
        return reading


def deleted_pools(manifests: StoredManifests, cluster: str) -> Mapping[str, datetime]:
    """Return when pools were deleted that do not exist any more, by name: by a fresh read, since a
    pool may have been applied again.

    Raises:
        CloudUnavailable, CloudRefused: the manifests could not be read.
    """
    found = manifests.of(cluster, POOL, deleted=True)
    return {one.name: one.deleted_at for one in found if one.deleted_at is not None}
