"""All objects of one kind: listed once, then changed by the events of watches."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from http.client import NOT_FOUND
from typing import Any

from lightkube import ApiError
from msgspec import MsgspecError, Raw, Struct, field
from msgspec.json import Decoder

from leeway.kubernetes.connection import (
    PAGE,
    Connection,
    is_unknown_path,
    list_pages,
    raise_for_status,
)
from leeway.kubernetes.decoders import ListMeta, ObjectList, read_json, without_nulls
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused, ClusterUnavailable
from leeway.provisioning.kept_objects import KINDS, KeptObjects, key_in
from leeway.selection.reading.objects import Document, bound_node, is_finished
from leeway.selection.reading.schemas import SCHEMAS

PATHS = {
    "Pod": "/api/v1/pods",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "LimitRange": "/api/v1/limitranges",
    "Node": "/api/v1/nodes",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
"""The kinds in the order of their lists. Pods are first: a pod that is bound to a newer node still
counts as waiting, and the node as empty. In the other order, a node would be missing whose pods do
not wait any more.
"""

OPTIONAL = frozenset({"NodeClaim"})
"""Kinds that a cluster may not have. Provisioning works without them."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

# In one thread, on import: see leeway.kubernetes.decoders.
_DECODERS: Mapping[str, Decoder[Any]] = {kind: Decoder(SCHEMAS[kind]) for kind in sorted(KINDS)}


class _Event(Struct):
    type: str
    object: Raw


class _Metadata(Struct):
    name: str
    namespace: str = ""
    resource_version: str = field(name="resourceVersion", default="")


class _Named(Struct):
    metadata: _Metadata


class _Bookmark(Struct):
    metadata: ListMeta


class _Termination(Struct):
    finished_at: datetime | None = field(name="finishedAt", default=None)


class _ContainerState(Struct):
    terminated: _Termination | None = None


class _Container(Struct):
    state: _ContainerState | None = None


class _Containers(Struct):
    statuses: list[_Container] | None = field(name="containerStatuses", default=None)


class _Deletion(Struct):
    timestamp: datetime | None = field(name="deletionTimestamp", default=None)


class _EndedPod(Struct):
    metadata: _Deletion
    status: _Containers | None = None


_PAGES = Decoder(ObjectList[Raw])
_NAMED_PAGES = Decoder(ObjectList[_Named])
_EVENTS, _BOOKMARKS, _NAMES = Decoder(_Event), Decoder(_Bookmark), Decoder(_Named)
_ANY = Decoder(dict[str, Any])
_ENDED_PODS = Decoder(_EndedPod)


class _Missing(ClusterUnavailable):
    """The API server does not have the kind."""


class KeptKind:
    """The objects of `kind`, which it puts into `objects`.

    `version` is the resource version up to which all changes are known; None before a list, or if a
    watch can't go on from there. Resource versions of one kind are compared as numbers. Source:
    Kubernetes API, "Resource versions" (comparable since 1.35; etcd's revisions before). If an API
    server has others, the objects are listed each time. `absent`: the API server does not have the
    kind, or no role lets Leeway read it.
    """

    def __init__(self, kind: str, objects: KeptObjects) -> None:
        self.path = PATHS[kind]
        self.version: int | None = None
        self.absent = False
        self._kind = kind
        self._decoder = _DECODERS[kind]
        self._objects = objects
        self._unbound: dict[str, str] = {}

    def list_all(self, connection: Connection) -> None:
        """List all objects. Errors of an optional kind are noted among the objects.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        if self.absent:
            return
        self.version = None
        try:
            self._list_kind(connection)
        except (ClusterUnavailable, ClusterRefused) as error:
            if self._kind not in OPTIONAL:
                raise
            # A missing right is no problem: the API server checks it before it knows the kind.
            self.absent = isinstance(error, _Missing | ClusterForbidden)
            for key in self._objects.keys(self._kind):
                self._remove(key)
            if not self.absent:
                self._objects.note_unreadable(self._kind, str(error))

    def _list_kind(self, connection: Connection) -> None:
        try:
            version = connection.call(self._list)
        except ApiError as error:
            missing = error.response.status_code == NOT_FOUND
            raise (_Missing if missing else ClusterUnavailable)(str(error)) from error
        except ClusterUnavailable as error:
            if is_unknown_path(error):
                raise _Missing(str(error)) from error
            raise
        self.version = _number(version)

    def _list(self, connection: Connection) -> str:
        listed: set[str] = set()
        version = ""
        for first, page in list_pages(partial(self._list_page, connection), {}, PAGE):
            if first:
                listed = set()
            listed.update(self._put(raw) for raw in page.items)
            version = page.metadata.resourceVersion
        for key in self._objects.keys(self._kind):
            if key not in listed:
                self._remove(key)
        return version

    def _list_page(self, connection: Connection, parameters: dict[str, str]) -> ObjectList[Raw]:
        response = connection.plain.request("GET", self.path, params=parameters)
        raise_for_status(response)
        page = read_json(response.content, _PAGES)
        if page.kind != f"{self._kind}List":
            raise ValueError(f"expected a {self._kind}List, got {page.kind[:60]}")
        return page

    def apply(self, lines: Sequence[bytes]) -> None:
        """Apply events of a watch. Events up to `version` are known already: they are ignored.

        Raises:
            ClusterUnavailable: the watch sent an error, for example because its start is too old.
            MsgspecError, ValueError: an event can't be read.
        """
        for line in lines:
            event = _EVENTS.decode(line)
            if event.type == "ERROR":
                raise ClusterUnavailable(f"watch: {bytes(event.object)[:200]!r}")
            if event.type == "BOOKMARK":
                bookmark = read_json(event.object, _BOOKMARKS)
                self._advance(bookmark.metadata.resourceVersion)
                continue
            named = read_json(event.object, _NAMES)
            if not self._advance(named.metadata.resource_version):
                continue
            if event.type == "DELETED":
                self._remove(key_in(self._kind, _identity(named)), event.object)
            else:
                self._put(event.object)

    def _advance(self, version: str) -> bool:
        number = _number(version)
        if number is None or self.version is None:
            raise ValueError(f"expected a resource version, got {version[:60]!r}")
        if number <= self.version:
            return False
        self.version = number
        return True

    def _put(self, raw: Raw) -> str:
        try:
            document = read_json(raw, self._decoder)
        except MsgspecError as error:
            document = _loosely(raw)
            self._objects.put_unreadable(self._kind, document, str(error))
        else:
            ended_at = _ended_at(raw) if self._is_finished_pod(document) else None
            self._objects.put(self._kind, document, ended_at)
        key = key_in(self._kind, document)
        if self._kind == "Pod":
            self._unbound.pop(key, None)
            if not bound_node(document):
                self._unbound[key] = str(document["metadata"].get("resourceVersion") or "")
        return key

    def _remove(self, key: str, last: Raw | None = None) -> None:
        self._unbound.pop(key, None)
        ended_at = _ended_at(last) if last is not None and self._kind == "Pod" else None
        self._objects.remove(self._kind, key, ended_at)

    def _is_finished_pod(self, document: Document) -> bool:
        return self._kind == "Pod" and is_finished(document)

    def is_current(self, unbound: "UnboundPods", quiet: bool) -> bool:
        """Whether all events up to a list of the pods without a node are applied: a newer one is,
        or the watch is `quiet` and the same pods have no node."""
        if self.version is not None and unbound.version <= self.version:
            return True
        return quiet and self._unbound == unbound.versions


class UnboundPods:
    """The resource versions of all pods without a node by `namespace/name`, and the version of the
    list. The API server reads at least the state at the time of the request."""

    def __init__(self, connection: Connection) -> None:
        """Read them.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        self.versions: dict[str, str] = {}
        self.version = 0
        try:
            connection.call(self._read)
        except ApiError as error:
            raise ClusterUnavailable(str(error)) from error

    def _read(self, connection: Connection) -> None:
        selection = {"fieldSelector": "spec.nodeName="}
        for first, page in list_pages(partial(self._read_page, connection), selection, 10 * PAGE):
            if first:
                self.versions.clear()
            for item in page.items:
                key = key_in("Pod", _identity(item))
                self.versions[key] = item.metadata.resource_version
            self.version = _number(page.metadata.resourceVersion) or 0

    def _read_page(self, connection: Connection, parameters: dict[str, str]) -> ObjectList[_Named]:
        response = connection.plain.request(
            "GET", PATHS["Pod"], params=parameters, headers={"Accept": _METADATA_ONLY}
        )
        raise_for_status(response)
        return read_json(response.content, _NAMED_PAGES)


def _ended_at(pod: Raw) -> datetime | None:
    """Return when the last container of a pod ended, or, if that is not known, when the pod was to
    end; None without both."""
    try:
        ended = read_json(pod, _ENDED_PODS)
    except MsgspecError:
        return None
    statuses = (ended.status.statuses if ended.status else None) or ()
    terminated = (one.state.terminated if one.state else None for one in statuses)
    times = [one.finished_at if one else None for one in terminated]
    known = [at for at in times if at is not None and at.tzinfo is not None]
    if known and len(known) == len(times):
        return max(known)
    deletion = ended.metadata.timestamp
    return deletion if deletion is not None and deletion.tzinfo is not None else None


def _identity(named: _Named) -> Document:
    return {"metadata": {"name": named.metadata.name, "namespace": named.metadata.namespace}}


def _number(version: str) -> int | None:
    """Return a resource version as a number; None if it is not a decimal number above zero."""
    is_number = version.isascii() and version.isdecimal() and not version.startswith("0")
    return int(version) if is_number and len(version) <= 30 else None


def _loosely(raw: Raw) -> Document:
    """Read an object that does not have the shape of its kind: its metadata that is text, and its
    spec and status, whose fields may be of any shape.

    Raises:
        MsgspecError: it is no object with a name.
    """
    named = read_json(raw, _NAMES)
    document: dict[str, Any] = without_nulls(_ANY.decode(raw))
    status = document.get("status")
    spec = document.get("spec")
    metadata = {k: v for k, v in document["metadata"].items() if isinstance(v, str)}
    phase = status.get("phase") if isinstance(status, dict) else None
    return {
        "metadata": {**metadata, **_identity(named)["metadata"]},
        "spec": spec if isinstance(spec, dict) else {},
        "status": {"phase": phase if isinstance(phase, str) else ""},
    }
