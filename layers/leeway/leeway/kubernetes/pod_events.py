"""The PodEvents Protocol over HTTP."""

from datetime import UTC, datetime
from typing import Any

from lightkube import ApiError

from leeway.kubernetes.connection import FIELD_MANAGER, Connection, raise_unless_object
from leeway.kubernetes.names import is_segment
from leeway.ports.kubernetes import ClusterRefused
from leeway.printable import printable
from leeway.provisioning.ports import PodEvent

LONGEST_MESSAGE = 1024
"""Characters of an Event's message. Source: Kubernetes API, EventsV1."""


class HttpPodEvents:
    """Events about the pods of one cluster. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, event: PodEvent) -> None:
        """Create a core/v1 Event of type Warning in the namespace of the pod.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        if not is_segment(event.namespace):
            raise ClusterRefused(f"{printable(event.namespace)} is not the name of a namespace")
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": event.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": event.namespace,
                "name": event.pod,
                "uid": event.uid,
            },
            "reason": event.reason,
            "message": printable(event.message)[:LONGEST_MESSAGE],
            "type": "Warning",
            "source": {"component": "leeway"},
            "reportingComponent": "leeway",
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._connection.call(lambda connection: _create(connection, event.namespace, body))
        except ApiError as error:
            # The Event exists, or the namespace has gone with the pod, or terminates (403).
            if error.response.status_code not in (404, 409):
                raise ClusterRefused(str(error)) from error


def _create(connection: Connection, namespace: str, body: dict[str, Any]) -> None:
    response = connection.plain.post(
        f"/api/v1/namespaces/{namespace}/events",
        params={"fieldManager": FIELD_MANAGER},
        json=body,
    )
    raise_unless_object(response)
