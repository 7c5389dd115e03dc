"""Writes Kubernetes Events."""

from datetime import UTC, datetime

from leeway.kubernetes.connection import (
    FIELD_MANAGER,
    ApiError,
    Connection,
    raise_unless_object,
    read_error,
)
from leeway.kubernetes.translate import is_segment
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused, Event
from leeway.printable import printable

LONGEST_MESSAGE = 1024
"""Characters of an Event's message. Source: Kubernetes API, EventsV1."""

EVENT_SECONDS = 10.0


def write_event(connection: Connection, event: Event) -> None:
    """Create a core/v1 Event about an object. An Event that exists, and a namespace
    that has gone or terminates, are no errors.

    Raises:
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    about, now = event.about, datetime.now(UTC).replace(microsecond=0)
    namespace = about.namespace or "default"
    if not is_segment(namespace):
        raise ClusterRefused(f"{printable(namespace)} is not the name of a namespace")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "reason": event.reason,
        "message": printable(event.message)[:LONGEST_MESSAGE],
        "type": "Warning" if event.warning else "Normal",
        "source": {"component": "leeway"},
        "reportingComponent": "leeway",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    path = f"/api/v1/namespaces/{namespace}/events?fieldManager={FIELD_MANAGER}"
    try:
        connection.call(lambda c: raise_unless_object(c.post(path, body, EVENT_SECONDS)))
    except ApiError:
        return  # the Event exists (409), or the namespace has gone (404)
    except ClusterForbidden as error:
        cause = error.__cause__
        reasons = read_error(cause).causes if isinstance(cause, ApiError) else ()
        if not any(one == "NamespaceTerminating" for one, _ in reasons):
            raise
