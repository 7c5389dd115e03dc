"""Ends what Karpenter left on a node whose instance is terminated: its NodeClaim and finalizers.

`leeway switch` leaves NodeClaims as they are. Both the NodeClaim and the Node have the finalizer
`karpenter.sh/termination`, which keeps a deleted object until its controller removes it. Karpenter
does so after it has ended the instance. Source: Karpenter, nodeclaim lifecycle and node
termination controllers.
"""

import json
from typing import Any

from leeway.execution.retrying import Conflicts
from leeway.kubernetes.connection import ApiError, Connection, is_unknown_path, raise_unless_object
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.table import RecordChanged

TERMINATION = "karpenter.sh/termination"
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"


def release_claim(connection: Connection, node: dict[str, Any]) -> None:
    """Delete the NodeClaim of a Node that is being deleted, then the finalizers of both. The Node
    goes last: while it exists, the next clean-up finds what this one has not done.

    `node` is the answer to the deletion: another object if the Node is gone.

    Raises:
        ClusterUnavailable, ClusterRefused: the next clean-up goes on.
    """
    metadata = node.get("metadata") or {}
    if node.get("kind") != "Node" or TERMINATION not in (metadata.get("finalizers") or ()):
        return
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "NodeClaim" and owner["apiVersion"].startswith("karpenter.sh/"):
            path, uid = f"{_CLAIMS}/{owner['name']}", owner["uid"]
            if _request(connection, "DELETE", path, {"preconditions": {"uid": uid}}) is not None:
                _finalize(connection, path, uid)
    _finalize(connection, f"/api/v1/nodes/{metadata['name']}", metadata["uid"])


def _finalize(connection: Connection, path: str, uid: str) -> None:
    """Remove Karpenter's finalizer from an object that is being deleted, and no other one."""

    conflicts = Conflicts(path, ClusterUnavailable)
    while True:
        with conflicts:
            found = (_request(connection, "GET", path) or {}).get("metadata") or {}
            finalizers = found.get("finalizers") or []
            ours = found.get("uid") == uid and "deletionTimestamp" in found
            if not (ours and TERMINATION in finalizers):
                return
            left = [one for one in finalizers if one != TERMINATION]
            patch = {"metadata": {"resourceVersion": found["resourceVersion"], "finalizers": left}}
            done = _request(connection, "PATCH", path, patch) is not None
            if not done and _request(connection, "GET", path):
                raise RecordChanged(path)
            return


def _request(
    connection: Connection, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Make one request; None if the object is gone, or is another one now."""

    def send(one: Connection) -> dict[str, Any]:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        response = one.plain.request(method, path, json=body, headers={"Content-Type": content})
        raise_unless_object(response)
        found: dict[str, Any] = json.loads(response.content)
        return found

    try:
        return connection.call(send)
    except ApiError:
        return None
    except ClusterUnavailable as error:
        if is_unknown_path(error):
            return None
        raise
