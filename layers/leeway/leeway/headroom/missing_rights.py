"""Names the command that grants a right which `leeway:headroom` lacks in a namespace."""

from leeway.headroom.reasons import OBJECT_REFUSED, RIGHT_MISSING
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused
from leeway.reasons import Reason

GROUP = "leeway:headroom"
BUFFER_ROLE = "leeway-headroom-buffer"
TARGET_ROLE = "leeway-headroom-target"
"""ClusterRoles of rbac/leeway.yaml. A RoleBinding in a namespace grants them there: the first for
pause pods, the second for scaling the objects that users run there."""

_DENIED = "denied the request"
"""Part of the answers of admission webhooks and policies, which no role changes."""


def refusal_reason(refused: ClusterRefused, role: str, namespace: str) -> Reason:
    """Return the reason of a refusal. If RBAC refused and `role` is not empty, it contains the
    command that grants the role in the namespace."""
    error = str(refused)
    if not isinstance(refused, ClusterForbidden) or not role or _DENIED in error:
        return OBJECT_REFUSED(error=error)
    command = (
        f"kubectl create rolebinding {role} --clusterrole={role} --group={GROUP}"
        f" --namespace={namespace}"
    )
    return RIGHT_MISSING(error=error, namespace=namespace, command=command)
