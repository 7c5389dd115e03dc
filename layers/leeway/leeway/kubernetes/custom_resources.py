"""The ClusterApi Protocol over HTTP: custom resources, and the Leases of Karpenter."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder

from leeway.kubernetes.connection import (
    FIELD_MANAGER,
    MERGE,
    ApiError,
    Connection,
    is_unknown_path,
    raise_for_status,
)
from leeway.kubernetes.events import write_event
from leeway.kubernetes.list_watch import ObjectList, list_objects, read_json
from leeway.manifests.in_cluster import Lease, is_read
from leeway.manifests.reading import Kind, find_kind
from leeway.manifests.status import StatusPatch
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable, Event

LEASE = "karpenter-leader-election"
NAMESPACES = ("kube-system", "karpenter")
"""Where Karpenter keeps its Lease: the namespace of its chart, by its documentation the first."""

STATUS_MANAGER = f"{FIELD_MANAGER}-status"
"""The field manager of every status: tools that compare manifests can leave it out by this name."""

_OBJECTS = Decoder(ObjectList[dict[str, Any]])


class _Spec(Struct):
    renewed: datetime | None = field(name="renewTime", default=None)
    seconds: int = field(name="leaseDurationSeconds", default=15)


class _Lease(Struct):
    kind: str
    spec: _Spec = field(default_factory=_Spec)


_LEASES = Decoder(_Lease)


class HttpClusterApi:
    """The custom resources of one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def objects(self, kind: Kind) -> list[dict[str, Any]] | None:
        """List all objects of a kind that Leeway reads; None if the API server does not have the
        kind. Of a page, only these are kept, and without what is not read."""
        path = f"/apis/{kind.api_version}/{kind.plural}"
        about = {"apiVersion": kind.api_version, "kind": kind.name}

        def kept(page: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**_lean(one), **about} for one in page if is_read(kind, one)]

        try:
            return self._connection.call(lambda one: list_objects(one, path, _OBJECTS, kept))
        except ClusterUnavailable as error:
            if is_unknown_path(error):
                return None
            raise
        except ApiError as error:
            raise ClusterRefused(f"{path}: {error}"[:300]) from error

    def patch_status(self, patch: StatusPatch) -> bool:
        """Patch the status of an object at the version that was read, and nothing else of it; False
        if the object has changed or is gone."""
        path = f"{_path_of(patch.document)}/status"
        version = patch.document["metadata"].get("resourceVersion")
        body = {"metadata": {"resourceVersion": version}, "status": patch.status}
        params = {"fieldManager": STATUS_MANAGER}
        try:
            self._connection.request("PATCH", path, params=params, body=body, content=MERGE)
        except ApiError as error:
            if error.response.status_code in (404, 409):
                return False
            raise ClusterRefused(f"{path}: {error}"[:300]) from error
        except ClusterUnavailable as error:
            if is_unknown_path(error):
                return False
            raise
        return True

    def write_event(self, event: Event) -> None:
        """Create an Event about a manifest."""
        write_event(self._connection, event)

    def karpenter_leases(self) -> tuple[Lease, ...]:
        """Read the Leases with which Karpenter elects its leader. One without a holder counts,
        too: a leader that stops gives its Lease back, and may still buy."""
        found = ((namespace, self._lease(namespace)) for namespace in NAMESPACES)
        return tuple(
            Lease(namespace, _in_zone(spec.renewed), _lasts(spec.seconds))
            for namespace, spec in found
            if spec is not None and spec.renewed is not None
        )

    def _lease(self, namespace: str) -> _Spec | None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}"

        def read(connection: Connection) -> _Spec:
            response = connection.plain.get(path)
            raise_for_status(response)
            return read_json(response.content, _LEASES).spec

        try:
            return self._connection.call(read)
        except ApiError as error:
            if error.response.status_code == 404:
                return None
            raise ClusterRefused(f"{path}: {error}"[:300]) from error


def _path_of(document: Mapping[str, Any]) -> str:
    """Return the path of an object that was listed."""
    kind = find_kind(document["apiVersion"], document["kind"])
    metadata = document["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if kind.namespaced else ""
    return f"/apis/{kind.api_version}{namespace}/{kind.plural}/{metadata['name']}"


def _lean(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out the field managers, which may be larger than the rest."""
    metadata = document.get("metadata") or {}
    rest = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**document, "metadata": rest}


def _in_zone(time: datetime) -> datetime:
    """Not as UTC: the last hours of the year 9999 may have no time there."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _lasts(seconds: int) -> timedelta:
    """Limited to a day: a time span has a largest value."""
    return timedelta(seconds=min(max(seconds, 0), 86_400))
