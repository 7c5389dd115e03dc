"""What to do about a right that `leeway:headroom` lacks in a namespace."""

from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused

GROUP = "leeway:headroom"
BUFFER_ROLE = "leeway-headroom-buffer"
TARGET_ROLE = "leeway-headroom-target"
"""ClusterRoles of rbac/leeway.yaml, which a namespace adopts by a RoleBinding: one lets Leeway keep
pause pods there, the other lets it scale what users run there."""

_DENIED = "denied the request"
"""What admission webhooks and policies say, whom no role moves."""


def how_to_grant(refused: ClusterRefused, role: str, namespace: str) -> str:
    """Return a refusal, where a right is missing with the command that gives it: the role's."""
    refusal = str(refused)
    if not isinstance(refused, ClusterForbidden) or not role or _DENIED in refusal:
        return refusal
    command = f"kubectl create rolebinding {role} --clusterrole={role} --group={GROUP}"
    return f"{refusal}; namespace {namespace} grants it by: {command} --namespace={namespace}"
