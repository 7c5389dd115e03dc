"""Handles reviews: the identity of the caller, and the permissions of the caller or of others."""

from __future__ import annotations

import re

from leeway_sandbox.kubernetes.authentication import User
from leeway_sandbox.kubernetes.authorization import Authorizer
from leeway_sandbox.kubernetes.errors import ApiError
from leeway_sandbox.kubernetes.objects import Object

_PATH = re.compile(
    r"/apis/(?P<group>authorization|authentication)\.k8s\.io/v1"
    r"/(?P<plural>\w+reviews)"
)
_GROUP = "authorization.k8s.io"


def is_review(path: str) -> bool:
    """Whether a path is the path of a review."""
    return _PATH.fullmatch(path) is not None


def answer(authorizer: Authorizer, user: User, path: str, body: Object) -> Object | None:
    """Answer a review; None for an unknown kind."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    spec = body.get("spec") or {}
    match (found["group"], found["plural"]):
        case ("authentication", "selfsubjectreviews"):
            info = {"username": user.name, "groups": list(user.groups)}
            about = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
            return {**about, "metadata": {}, "status": {"userInfo": info}}
        case ("authorization", "selfsubjectaccessreviews"):
            return _answer("SelfSubjectAccessReview", spec, _verdict(authorizer, user, spec))
        case ("authorization", "subjectaccessreviews"):
            _check(authorizer, user, found["plural"])
            other = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
            return _answer("SubjectAccessReview", spec, _verdict(authorizer, other, spec))
    return None


def _check(authorizer: Authorizer, user: User, plural: str) -> None:
    """Refuse a caller who may not ask about others. The role system:basic-user of a real cluster
    lets everybody ask about themselves."""
    if authorizer.allows(user, "create", _GROUP, plural, "", ""):
        return
    message = (
        f'{plural}.{_GROUP} is forbidden: User "{user.name}" cannot create resource '
        f'"{plural}" in API group "{_GROUP}" at the cluster scope'
    )
    raise ApiError(403, "Forbidden", message, {"group": _GROUP, "kind": plural})


def _answer(kind: str, spec: Object, status: Object) -> Object:
    about = {"kind": kind, "apiVersion": f"{_GROUP}/v1", "metadata": {}}
    return {**about, "spec": spec, "status": status}


def _verdict(authorizer: Authorizer, user: User, spec: Object) -> Object:
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec.get("nonResourceAttributes") or {}
        allowed = authorizer.allows_path(user, path.get("verb", ""), path.get("path", ""))
        return {"allowed": allowed}
    resource = "/".join(filter(None, (asked.get("resource"), asked.get("subresource"))))
    group, namespace, name = (asked.get(one, "") for one in ("group", "namespace", "name"))
    verb = asked.get("verb", "")
    return {"allowed": authorizer.allows(user, verb, group, resource, namespace, name)}
