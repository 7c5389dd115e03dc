"""User impersonation.

Rules: Kubernetes' impersonation filter. The headers `Impersonate-User`, `-Group`, `-Uid` and
`-Extra-KEY` name the impersonated user. The caller needs the permission `impersonate` for each of
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.authentication import User
from leeway_sandbox.kubernetes.authorization import Authorizer

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

_ACCOUNT = "system:serviceaccount:"
_EXTRA = "impersonate-extra-"
_ANONYMOUS = "system:anonymous"
_AUTHENTICATION = "authentication.k8s.io"

type Headers = CIMultiDictProxy[str]
# Group, resource, namespace and name for the permission `impersonate`.
type _Asked = tuple[str, str, str, str]


def acting_user(authorizer: Authorizer, user: User, headers: Headers) -> User:
    """Return the user, or the impersonated one; 403 without the permission."""
    asked = list(_asked(headers))
    if not asked:
        return user
    name = headers.get("Impersonate-User", "")
    if not name:
        text = ", ".join(f"{resource} {one}" for _, resource, _, one in asked)
        message = f"Internal error occurred: requested {text} without impersonating a user name"
        raise errors.ApiError(500, "InternalError", message, {"causes": [{"message": message}]})
    for one in asked:
        _check(authorizer, user, one)
    return User(name, _groups(name, headers.getall("Impersonate-Group", [])))


def _asked(headers: Headers) -> Iterator[_Asked]:
    if name := headers.get("Impersonate-User", ""):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        if name.startswith(_ACCOUNT) and account:
            yield "", "serviceaccounts", namespace, account
        else:
            yield "", "users", "", name
    for group in headers.getall("Impersonate-Group", []):
        yield "", "groups", "", group
    if uid := headers.get("Impersonate-Uid"):
        yield _AUTHENTICATION, "uids", "", uid
    for key, value in headers.items():
        if key.lower().startswith(_EXTRA):
            extra = unquote(key[len(_EXTRA) :]).lower()
            yield _AUTHENTICATION, f"userextras/{extra}", "", value


def _check(authorizer: Authorizer, user: User, asked: _Asked) -> None:
    group, resource, namespace, name = asked
    if authorizer.allows(user, "impersonate", group, resource, namespace, name):
        return
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    plural = f"{resource}.{group}" if group else resource
    message = (
        f'{plural} "{name}" is forbidden: User "{user.name}" cannot impersonate resource '
        f'"{resource}" in API group "{group}" {scope}'
    )
    details = {"name": name, **({"group": group} if group else {}), "kind": resource}
    raise errors.ApiError(403, "Forbidden", message, details)


def _groups(name: str, given: list[str]) -> tuple[str, ...]:
    """Return the groups: those of the headers or of the service account, and the system group."""
    groups = list(given)
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if not groups and name.startswith(_ACCOUNT) and account:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    known = "system:unauthenticated" if name == _ANONYMOUS else "system:authenticated"
    return tuple(dict.fromkeys((*groups, known)))
