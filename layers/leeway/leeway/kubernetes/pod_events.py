"""Kubernetes Events over HTTP: the PodEvents Protocol, and Events about other objects."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leeway.kubernetes.connection import (
    FIELD_MANAGER,
    ApiError,
    Connection,
    raise_unless_object,
    read_error,
)
from leeway.kubernetes.translate import is_segment
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused
from leeway.printable import printable

if TYPE_CHECKING:  # `reconcile` writes Events, too, and would import provisioning for this name
    from leeway.provisioning.tell import PodEvent

LONGEST_MESSAGE = 1024
"""Characters of an Event's message. Source: Kubernetes API, EventsV1."""


class HttpPodEvents:
    """Events about the pods of one cluster. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, event: "PodEvent") -> None:
        """Create an Event in the namespace of the pod, as `write_event` does.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        if not is_segment(event.namespace):
            raise ClusterRefused(f"{printable(event.namespace)} is not the name of a namespace")
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": event.namespace,
            "name": event.pod,
            "uid": event.uid,
        }
        said = (event.reason, event.message)
        write_event(self._connection, event.namespace, event.name, about, *said)


def write_event(
    connection: Connection,
    namespace: str,
    name: str,
    about: Mapping[str, Any],
    reason: str,
    message: str,
    type_: str = "Warning",
) -> None:
    """Create a core/v1 Event about an object. An Event that exists, and a namespace
    that has gone or terminates, are no errors.

    Raises:
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": about,
        "reason": reason,
        "message": printable(message)[:LONGEST_MESSAGE],
        "type": type_,
        "source": {"component": "leeway"},
        "reportingComponent": "leeway",
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        connection.call(lambda one: _create(one, namespace, body))
    except ApiError:
        return  # the Event exists (409), or the namespace has gone (404)
    except ClusterForbidden as error:
        cause = error.__cause__
        reasons = read_error(cause).causes if isinstance(cause, ApiError) else ()
        if not any(one == "NamespaceTerminating" for one, _ in reasons):
            raise


def _create(connection: Connection, namespace: str, body: dict[str, Any]) -> None:
    response = connection.plain.post(
        f"/api/v1/namespaces/{namespace}/events",
        params={"fieldManager": FIELD_MANAGER},
        json=body,
    )
    raise_unless_object(response)
