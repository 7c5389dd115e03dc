"""Manifests that users keep in the API server of their cluster, and their copies in the table.

Once a minute `reconcile` lists them, and keeps the valid ones in the table as the last known ones.
Functions read only the table, so an API server that does not answer changes nothing. Only a
complete list removes a manifest. If Leeway does not understand why manifests are gone, it keeps
them, says so, and launches nothing new.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import Protocol

from leeway import __version__
from leeway.clock import Clock
from leeway.manifests.configuration import (
    MANIFEST,
    MANIFEST_INVALID,
    POOL,
    StoredManifest,
    StoredManifests,
)
from leeway.manifests.reading import KINDS, LARGEST, Kind, Written, interpret
from leeway.manifests.status import Document, ReadObject
from leeway.ports.aws import CloudRefused
from leeway.reasons import Reason, ReasonCode, clause, counted
from leeway.switched import switch_of, switched_block
from leeway.table import Record, RecordChanged, Table
from leeway.typed_json import Aware

TAKE = "leeway.sh/take"
"""The label or annotation of a ScaledObject that Leeway takes over from KEDA: `true`."""
SCALED_OBJECT = "scaledobject.keda.sh"

MANIFESTS_HELD = ReasonCode(
    "ManifestsHeld",
    "{what} are gone from the API server of cluster {cluster}. Leeway keeps the last ones and "
    "launches nothing new. Bring them back, or confirm that they are to go: `leeway delete {first} "
    "--cluster {cluster}`, and so for each of the {count}.",
    "manifests-are-held",
)
KARPENTER_IS_RUNNING = ReasonCode(
    "KarpenterIsRunning",
    "Karpenter runs in cluster {cluster}: its Lease in namespace {namespace} was renewed at {at}. "
    "The NodePools of the API server are Karpenter's, and Leeway launches nothing from them.",
    "karpenter-runs-beside-leeway",
)


class Home(StrEnum):
    """Where the users of a cluster keep its manifests."""

    CLUSTER = "cluster"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class ManifestHome:
    """Where a cluster's manifests are, as `leeway adopt` recorded it. `held` is why Leeway launches
    nothing new. `missing` is since when complete lists lack copies, by their title. Only
    `reconcile` writes both."""

    cluster: str
    version: int
    home: Home
    held: Reason | None = None
    missing: Mapping[str, Aware] = field(default_factory=dict)


HOME = Record(ManifestHome, "MANIFESTS#{cluster}", "HOME", versioned=True)


def home_of(table: Table, cluster: str) -> ManifestHome:
    """Read where the manifests of a cluster are: the table, if nobody has said."""
    found = table.list(HOME, cluster=cluster)
    return found[0] if found else ManifestHome(cluster, 0, Home.TABLE)


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease, and when it was renewed last. Who releases it renews it once more."""

    namespace: str
    renewed_at: datetime
    lasts: timedelta


class ClusterApi(Protocol):
    """The API server of one cluster."""

    def objects(self, kind: Kind) -> Sequence[Document] | None:
        """List all objects of a kind that Leeway reads (`is_read`); None if the API server does not
        have the kind.

        Raises:
            ClusterUnavailable, ClusterRefused: the list is not complete.
        """
        ...

    def karpenter_leases(self) -> Sequence[Lease]:
        """Read the Leases with which Karpenter elects its leader.

        Raises:
            ClusterUnavailable, ClusterRefused: they cannot be read.
        """
        ...


ALIVE_FOR = timedelta(seconds=60)
"""How long after its last renewal a Lease counts as renewed, beside the time that it says itself:
clocks differ, a leader that is late may still buy, and so may one that has released its Lease."""

LONGEST_LEASE = timedelta(minutes=5)
"""What a Lease says of its own time counts up to this: a forged one does not block for ever."""


def running_karpenter(cluster: str, leases: Sequence[Lease], now: datetime) -> Reason | None:
    """Return that Karpenter is alive, None if no Lease of it is renewed."""
    for one in leases:
        # A time far in the future is forged, and a sum with it may be out of range.
        if abs(now - one.renewed_at) < max(ALIVE_FOR, min(one.lasts, LONGEST_LEASE)):
            at = f"{one.renewed_at.astimezone(UTC):%H:%M:%S} UTC"
            return KARPENTER_IS_RUNNING(cluster=cluster, namespace=one.namespace, at=at)
    return None


def name_in_cluster(cluster: str) -> str:
    """Return the name that the Cluster manifest of a cluster has in its API server, which takes
    only lowercase letters, digits and `-`."""
    return cluster.lower().replace("_", "-").rstrip("-")


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy that was made. `problems` are invalid manifests, `held` is why nothing is removed,
    `objects` are those that were read and are not being deleted."""

    problems: tuple[Reason, ...] = ()
    held: Reason | None = None
    objects: tuple[ReadObject, ...] = ()


@dataclass(frozen=True, slots=True)
class Copying:
    """What one copy changes in the table: writes with the versions that they replace, and removals.

    `problems` are invalid manifests, whose last valid copies stay. `held`: why nothing is removed.
    `missing`: since when complete lists lack other copies, by their title. `objects`: all that were
    read.
    """

    writes: tuple[tuple[StoredManifest, int], ...] = ()
    removals: tuple[StoredManifest, ...] = ()
    problems: tuple[Reason, ...] = ()
    held: Reason | None = None
    missing: Mapping[str, datetime] = field(default_factory=dict)
    objects: tuple[ReadObject, ...] = ()


COPY_FOR = timedelta(seconds=20)
"""How long one copy reads the API server and begins writes; the next one continues."""

MISSING_FOR = timedelta(minutes=1)
"""The time between the first and the last list that lack a manifest, before it is removed: while a
CRD is deleted, Kubernetes deletes the objects first, and a list of what is left is complete."""

MOST_MISSING = 500
"""Missing manifests that are remembered, and removed, at a time: the record of them is small."""

type Key = tuple[str, str, str]
"""Resource, namespace and name of a manifest; the namespace is empty if its kind has none."""

MOST_IN_NAMESPACE, MOST_TRIGGERS, MOST_BYTES = 100, 500, 256 * 1024
"""Objects of each kind, cron triggers and bytes that are read of a namespace. Who may write there
must neither fill the table nor take the time of runs that are for all clusters."""

_LIMITS = (
    f"Leeway reads at most {MOST_IN_NAMESPACE} objects of each kind, {MOST_TRIGGERS} cron triggers "
    f"and {MOST_BYTES // 1024} KB of a namespace"
)


def plan_copy(
    cluster: str,
    stored: Sequence[StoredManifest],
    listed: Mapping[str, Sequence[Document] | None],
    now: datetime,
    missing: Mapping[str, datetime],
) -> Copying:
    """Compare the manifests of an API server with the table. `listed` has all objects of each kind
    by its name, such as `nodepool.karpenter.sh`; None for a kind that the API server lacks.
    `missing` is what the copy before returned. An object that is being deleted is missing."""
    before = {(one.resource, one.namespace, one.name): one for one in stored}
    copies = {key: one for key, one in before.items() if one.in_cluster and one.deleted_at is None}
    found = {
        _key_of(resource, document, cluster): document
        for resource, documents in listed.items()
        for document in documents or ()
        if not (document.get("metadata") or {}).get("deletionTimestamp")
    }
    bodies = {key: _body(document, cluster) for key, document in found.items()}
    unread, dropped = _beyond_limits(bodies, copies)
    writes: list[tuple[StoredManifest, int]] = []
    problems: list[Reason] = []
    objects: list[ReadObject] = []
    without_room: list[ReadObject] = []
    for key, document in found.items():
        resource, namespace, name = key
        if key in unread:
            problem = f"{resource}/{name}: namespace {namespace} is full: {_LIMITS}"
            without_room.append(ReadObject(resource, document, problem))
            continue
        title = f"{str(document.get('kind')).lower()} {document['metadata'].get('name')}"
        new, problem = _judged(before.get(key), title, bodies[key], cluster, now)
        writes += new
        objects.append(ReadObject(resource, document, clause(problem)))
        if problem:
            problems.append(MANIFEST_INVALID(problem=clause(problem), author=""))
    problems += _full_namespaces(unread)
    # Last, because a run writes few Events: those without room may be thousands of one namespace.
    objects += without_room
    seen = found.keys() - dropped
    held = _held(cluster, [*copies.values()], listed, seen)
    if held:
        # When the others are back, what is still missing counts anew: it may come back, too.
        return Copying(tuple(writes), (), tuple(problems), held, objects=tuple(objects))
    lacking = [one for key, one in copies.items() if key not in seen]
    # Those of the cluster first: somebody who removes many of a namespace must not delay them.
    lacking.sort(key=lambda one: one.namespace != "")
    removals, since = _removals(lacking, missing, now)
    return Copying(tuple(writes), removals, tuple(problems), missing=since, objects=tuple(objects))


def _beyond_limits(
    bodies: Mapping[Key, Document], copies: Mapping[Key, StoredManifest]
) -> tuple[Set[Key], Set[Key]]:
    """Return the objects for which their namespaces have no room, and those of them whose copies
    have none either. The room of a copy is its own: new objects and larger ones share the rest. An
    object takes at least the room of its copy, which stays if the object is invalid."""
    taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
    copied = {key: _needs(key, json.loads(copy.as_written)) for key, copy in copies.items()}
    room: dict[Key, Counter[str]] = {}
    for key, needs in copied.items():
        with_it = taken[key[1]] + needs
        if _fits(with_it):
            taken[key[1]], room[key] = with_it, needs
    unread = set()
    for key, body in bodies.items():
        needs = copied.get(key, Counter()) | _needs(key, body)
        with_it = taken[key[1]] - room.get(key, Counter()) + needs
        if _fits(with_it):
            taken[key[1]] = with_it
        else:
            unread.add(key)
    return unread, unread - room.keys()


_TRIGGERS, _BYTES = "triggers", "bytes"


def _needs(key: Key, body: Document) -> Counter[str]:
    """Return how much of each limit of its namespace an object takes."""
    resource, namespace, _ = key
    if not namespace:
        return Counter()
    spec = body.get("spec")
    triggers = spec.get("triggers") if isinstance(spec, Mapping) else None
    count = len(triggers) if isinstance(triggers, list) else 0
    return Counter({resource: 1, _TRIGGERS: count, _BYTES: len(json.dumps(body))})


def _fits(taken: Counter[str]) -> bool:
    most = {_TRIGGERS: MOST_TRIGGERS, _BYTES: MOST_BYTES}
    return all(count <= most.get(what, MOST_IN_NAMESPACE) for what, count in taken.items())


def _full_namespaces(unread: Set[Key]) -> Iterator[Reason]:
    """Yield one reason for each namespace, however many of its objects are not read."""
    of_namespace: defaultdict[str, list[Key]] = defaultdict(list)
    for key in sorted(unread):
        of_namespace[key[1]].append(key)
    for namespace, keys in of_namespace.items():
        resource, _, name = keys[0]
        problem = (
            f"{_LIMITS}, and does not read {counted(len(keys), 'object')} of namespace "
            f"{namespace}, such as {resource}/{name}"
        )
        yield MANIFEST_INVALID(problem=problem, author="")


def _judged(
    before: StoredManifest | None, title: str, body: Document, cluster: str, now: datetime
) -> tuple[list[tuple[StoredManifest, int]], str]:
    """Return what is written for an object, and why it is invalid."""
    if (
        before is not None
        and before.in_cluster
        and before.deleted_at is None
        # Another version may refuse the same manifest, or convert it differently.
        and before.written_by == __version__
        and json.loads(before.as_written) == body
    ):
        return [], ""
    read = _read(title, body, cluster)
    if isinstance(read, str):
        return [], read
    new = StoredManifest(
        resource=read.kind.resource,
        namespace=read.namespace,
        name=read.name,
        body=read.body,
        # Not 1: a version that was read before a deletion must not match the new manifest.
        version=before.version + 1
        if before and not before.deleted_at
        else int(now.timestamp() * 1000),
        written_by=__version__,
        written_at=now,
        original=read.original,
        in_cluster=True,
    )
    if size := _too_large(cluster, new):
        return [], f"{new.title}: {size}"
    return [(new, before.version if before else 0)], ""


def _removals(
    lacking: Sequence[StoredManifest], missing: Mapping[str, datetime], now: datetime
) -> tuple[tuple[StoredManifest, ...], Mapping[str, datetime]]:
    """Return which copies are removed, and since when the others are missing."""
    since = {_long_title(one): missing.get(_long_title(one), now) for one in lacking[:MOST_MISSING]}
    removals = tuple(
        one for one in lacking if now - since.get(_long_title(one), now) >= MISSING_FOR
    )
    for one in removals:
        del since[_long_title(one)]
    return removals, since


def _long_title(one: StoredManifest) -> str:
    return f"{one.resource} {one.namespace}/{one.name}"


def _key_of(resource: str, document: Document, cluster: str) -> Key:
    metadata = document.get("metadata") or {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace") or "")
    is_cluster = resource == "cluster.leeway.sh" and name == name_in_cluster(cluster)
    return resource, namespace, cluster if is_cluster else name


def _body(document: Document, cluster: str) -> Document:
    """Return what the table keeps of an object."""
    metadata = document.get("metadata") or {}
    kept = {
        name: {key: text for key, text in metadata[name].items() if key != _LAST_APPLIED}
        for name in ("labels", "annotations")
        if metadata.get(name)
    }
    named = {name: metadata[name] for name in ("name", "namespace") if metadata.get(name)}
    if document.get("kind") == "Cluster" and named.get("name") == name_in_cluster(cluster):
        named["name"] = cluster
    whole = {name: value for name, value in document.items() if name != "status"}
    return {**whole, "metadata": {**named, **kept}}


def _read(title: str, body: Document, cluster: str) -> Written | str:
    """Validate an object; return why it is invalid."""
    if body.get("kind") == "Cluster" and body["metadata"].get("name") != cluster:
        return f"{title}: metadata.name: expected {name_in_cluster(cluster)} in cluster {cluster}"
    size = len(json.dumps(body))
    if size > LARGEST:
        return f"{title}: too large: {size:,} bytes; the limit is {LARGEST:,}"
    reading = interpret(body, title, warn=False)
    if reading.problems:
        return "; ".join(map(str, reading.problems[:3]))
    return reading.written[0]


LARGEST_STORED = 396 * 1024
"""The most bytes of a manifest as the table stores it, which quotes its JSON once more. An item of
DynamoDB has at most 400 KB, with its key."""


def _too_large(cluster: str, manifest: StoredManifest) -> str:
    """Say that a manifest is too large for the table; nothing if it is not."""
    body = MANIFEST.write(manifest, {"cluster": cluster}, manifest.written_at).body or ""
    size = len(body.encode() if isinstance(body, str) else body)
    if size <= LARGEST_STORED:
        return ""
    return f"too large: {size:,} bytes as the table stores it; the limit is {LARGEST_STORED:,}"


_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _held(
    cluster: str,
    copies: Sequence[StoredManifest],
    listed: Mapping[str, Sequence[Document] | None],
    seen: Set[Key],
) -> Reason | None:
    """Return why nothing is removed: a kind with manifests is gone, or all pools at once are."""
    gone = {one.resource for one in copies if listed.get(one.resource) is None}
    pools = [one for one in copies if one.resource == POOL]
    if pools and not any(resource == POOL for resource, _, _ in seen):
        gone.add(POOL)
    if not gone:
        return None
    titles = [one.title for one in copies if one.resource in gone]
    what = f"All manifests of the kind {' and '.join(sorted(gone))}"
    return MANIFESTS_HELD(what=what, cluster=cluster, first=titles[0], count=len(titles))


def launch_block(
    table: Table, open_cluster: Callable[[str], ClusterApi], cluster: str, now: datetime
) -> Reason | None:
    """Return why nothing is launched from the manifests of a cluster's API server, None if nothing
    speaks against it. Called right before a launch: Karpenter may have started since.

    Raises:
        CloudUnavailable, CloudRefused, ClusterUnavailable, ClusterRefused: it is not known.
    """
    if (switched := switched_block(switch_of(table, cluster), cluster)) is not None:
        return switched
    home = home_of(table, cluster)
    if home.held is not None:
        return home.held
    # Copies stay in the table when a person changes the home, and they are Karpenter's pools.
    if home.home is Home.TABLE and not any(
        one.in_cluster for one in StoredManifests(table).of(cluster, POOL)
    ):
        return None
    return running_karpenter(cluster, open_cluster(cluster).karpenter_leases(), now)


class ManifestCopies:
    """Copies the manifests of clusters whose users keep them in the API server."""

    def __init__(
        self, table: Table, open_cluster: Callable[[str], ClusterApi], clock: Clock
    ) -> None:
        self._table = table
        self._stored = StoredManifests(table)
        self._open_cluster = open_cluster
        self._clock = clock

    def copy(self, cluster: str) -> Copied | None:
        """Copy the manifests of a cluster; None if they are not in its API server, or if another
        copy has written meanwhile.

        The table is read before the API server, and each write replaces the version that was read:
        of two copies at a time, the one that has read the API server earlier does not overwrite.

        Raises:
            CloudUnavailable, CloudRefused, ClusterUnavailable, ClusterRefused: nothing was copied.
        """
        until = self._clock.now() + COPY_FOR
        home = home_of(self._table, cluster)
        if home.home is Home.TABLE:
            return None
        stored = self._stored.of(cluster, deleted=True)
        api = self._open_cluster(cluster)
        listed = {resource: _list(api, resource) for resource in READ}
        planned = plan_copy(cluster, stored, listed, self._clock.now(), home.missing)
        new = replace(home, held=planned.held, missing=planned.missing)
        if not self._still_at(new, home):
            return None
        changes = [
            (one, partial(self._stored.write, cluster, one, replaces))
            for one, replaces in planned.writes
        ] + [(one, partial(self._stored.delete_manifest, cluster, one)) for one in planned.removals]
        # Those of the cluster first: who may write in a namespace could keep a copy busy.
        changes.sort(key=lambda change: change[0].namespace != "")
        in_time = takewhile(lambda _: self._clock.now() < until, changes)
        refused = [
            reason for one, change in in_time if (reason := _refused(one.title, change)) is not None
        ]
        return Copied((*planned.problems, *refused), planned.held, planned.objects)

    def _still_at(self, new: ManifestHome, home: ManifestHome) -> bool:
        """Whether the home is still what was read, and write what changes. If a person has changed
        it since, or another copy, nothing may be written any more."""
        if new == home:
            return home_of(self._table, home.cluster) == home
        try:
            self._table.put(HOME, replace(new, version=home.version + 1))
        except RecordChanged:
            return False
        return True


def _refused(title: str, change: Callable[[], None]) -> Reason | None:
    """Write or remove a manifest. Return that the table refuses it: the others go on."""
    try:
        change()
    except RecordChanged:
        return None  # another copy was first; the next one compares again
    except CloudRefused as error:
        problem = f"{title}: the table refuses it: {clause(error)}"
        return MANIFEST_INVALID(problem=problem, author="")
    return None


READ = tuple(dict.fromkeys(one.resource for one in KINDS if not one.current))
"""The kinds that are read, as `cluster.leeway.sh`."""


def _list(api: ClusterApi, resource: str) -> Sequence[Document] | None:
    """List the objects of a kind in the newest version that the API server has."""
    for kind in reversed([one for one in KINDS if one.resource == resource and not one.current]):
        found = api.objects(kind)
        if found is not None:
            return [one for one in found if is_read(kind, one)]
    return None


def is_read(kind: Kind, document: Document) -> bool:
    """Whether Leeway reads an object: of ScaledObjects, those that it takes over."""
    if kind.resource != SCALED_OBJECT:
        return True
    metadata = document.get("metadata") or {}
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    return marks.get(TAKE) == "true"
