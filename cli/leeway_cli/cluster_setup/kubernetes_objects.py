"""The objects of a cluster that Leeway installs, by its API server."""

from typing import Any

from leeway.kubernetes.connection import FIELD_MANAGER, Connection, raise_unless_object
from leeway.kubernetes.decoders import without_nulls
from leeway.ports.kubernetes import ClusterRefused
from lightkube import ApiError

from leeway_cli.cluster_setup.projection import as_found
from leeway_cli.cluster_setup.settings import ClusterObject

_APPLY = "application/apply-patch+yaml"
_SHARED = ("pods", "services", "secrets")
"""What a namespace is searched for before release deletes it. Kubernetes itself puts a ConfigMap
and a ServiceAccount into each namespace."""


class KubernetesObjects:
    """The Objects Protocol, and changes. Every method raises the errors of `ports.kubernetes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, wanted: ClusterObject) -> ClusterObject | None:
        """Read an object, reduced to the fields that `wanted` has; None if it does not exist."""
        found = self._request("GET", wanted.path)
        return None if found is None else as_found(wanted, found)

    def apply(self, wanted: ClusterObject) -> None:
        """Apply an object as field manager `leeway`, by force."""
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self._request("PATCH", wanted.path, params=params, content=_APPLY, body=wanted.body)

    def delete(self, wanted: ClusterObject) -> None:
        """Delete an object; a missing one is not an error."""
        self._request("DELETE", wanted.path)

    def is_empty(self, namespace: ClusterObject) -> bool:
        """Whether a namespace has no object of a kind that its deletion would end."""
        return not any(
            (self._request("GET", f"{namespace.path}/{kind}", params={"limit": "1"}) or {}).get(
                "items"
            )
            for kind in _SHARED
        )

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        content: str = "application/json",
        body: Any = None,
    ) -> dict[str, Any] | None:
        """Make one request; None if the API server answers that the object does not exist."""

        def send(connection: Connection) -> dict[str, Any]:
            response = connection.plain.request(
                method, path, params=params, json=body, headers={"Content-Type": content}
            )
            raise_unless_object(response)
            answer: dict[str, Any] = without_nulls(response.json())
            return answer

        try:
            return self._connection.call(send)
        except ApiError as error:
            if error.response.status_code == 404 and method in {"GET", "DELETE"}:
                return None
            raise ClusterRefused(str(error)) from error
