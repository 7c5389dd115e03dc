"""Audit records of what the scheduler writes, in the form a real API server logs them.

They are kept as the objects they speak of and put into words only when somebody reads them.
"""

from __future__ import annotations

import collections
import time
import uuid
from pathlib import Path
from typing import Any

from sandbox.kubernetes import registry
from sandbox.kubernetes.objects import Object, encode, name_of, namespace_of, uid_of

_USER = "system:kube-scheduler"


class AuditLog:
    """The newest records, numbered; with a path, each is a line of JSON there as well."""

    def __init__(self, path: Path | None, kept: int) -> None:
        self._path = path
        self._records: collections.deque[tuple[float, str, Object]] = collections.deque(maxlen=kept)
        self._count = 0

    def unschedulable(self, pod: Object) -> None:
        """Record that the scheduler marked a pod as fitting nowhere (`patch pods/status`)."""
        self._add("patch", pod)

    def bound(self, pod: Object) -> None:
        """Record that the scheduler bound a pod (`create pods/binding`)."""
        self._add("create", pod)

    def since(self, number: int) -> dict[str, Any]:
        """Return the records from a number on as `audit.k8s.io/v1` Events."""
        first = self._count - len(self._records)
        records = list(self._records)[max(0, number - first) :]
        return {"next": self._count, "items": [_event(*record) for record in records]}

    def _add(self, verb: str, pod: Object) -> None:
        record = (time.time(), verb, pod)
        self._records.append(record)
        self._count += 1
        if self._path is not None:
            with self._path.open("ab") as log:
                log.write(encode(_event(*record)) + b"\n")


def _event(at: float, verb: str, pod: Object) -> Object:
    subresource = "status" if verb == "patch" else "binding"
    namespace, name = namespace_of(pod), name_of(pod)
    reference = {
        "resource": "pods",
        "namespace": namespace,
        "name": name,
        "apiVersion": "v1",
        "subresource": subresource,
    }
    if verb == "patch":
        status: Object = {"metadata": {}, "code": 200}
        conditions = [
            one for one in pod["status"]["conditions"] if one.get("reason") == "Unschedulable"
        ]
        asked: Object = {"status": {"conditions": conditions}}
        answered = registry.POD.typed(pod)
    else:
        status = {"metadata": {}, "status": "Success", "code": 201}
        reference["uid"] = uid_of(pod)
        asked = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": uid_of(pod)},
            "target": {"kind": "Node", "name": pod["spec"]["nodeName"]},
        }
        answered = {"kind": "Status", "apiVersion": "v1", **status}
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{uid_of(pod)}/{verb}/{at}")),
        "stage": "ResponseComplete",
        "requestURI": f"/api/v1/namespaces/{namespace}/pods/{name}/{subresource}",
        "verb": verb,
        "user": {"username": _USER, "uid": "3", "groups": ["system:authenticated"]},
        "sourceIPs": ["10.0.0.1"],
        "userAgent": "kube-scheduler/v0.0.0 (linux/amd64) kubernetes/$Format/scheduler",
        "objectRef": reference,
        "responseStatus": status,
        "requestObject": asked,
        "responseObject": answered,
        "requestReceivedTimestamp": _micro(at),
        "stageTimestamp": _micro(at),
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": f'RBAC: allowed by ClusterRoleBinding "{_USER}" of '
            f'ClusterRole "{_USER}" to User "{_USER}"',
        },
    }


def _micro(at: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{whole}.{int(at % 1 * 1_000_000):06d}Z"
