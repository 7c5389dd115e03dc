"""The Kubernetes objects that Leeway installs in a cluster.

An object of a cluster is compared by the fields that Leeway sets. The API server adds defaults,
managed fields and a status, and omits `false`, 0 and whatever is empty. Rules, subjects and
references are compared whole: an additional rule is a difference, and their order is none.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from leeway.headroom.pause_pods import LOWEST_PRIORITY, MANAGED_BY, priority_class_object
from leeway.headroom.reconciler import BUFFER_ROLE
from leeway.kubernetes.connection import FIELD_MANAGER, ApiError, Connection
from leeway.ports.kubernetes import ClusterRefused

from leeway_cli.adopt.settings.setting import Kind

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services

PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
"""The kinds of objects that Leeway installs, with their names in URLs."""
_PATH = re.compile(
    rf"/(?:api|apis/[a-z0-9.]+)/v1(?:/namespaces/leeway-headroom)?/({'|'.join(PLURALS.values())})"
    r"/(leeway-[a-z0-9-]+)"
)
"""The paths of the objects that adopt applies."""
_IMMUTABLE = {
    "ClusterRoleBinding": ("roleRef",),
    "RoleBinding": ("roleRef",),
    "PriorityClass": ("value", "preemptionPolicy"),
}
"""Fields that the API server refuses to change. Source: Kubernetes API reference."""
_APPLY = "application/apply-patch+yaml"
_SHARED = ("pods", "services", "secrets")
"""What a namespace is searched for before release deletes it. Kubernetes itself puts a ConfigMap
and a ServiceAccount into each namespace."""
_WHOLE = frozenset({"rules", "subjects", "roleRef"})
_LIMITED_KINDS = frozenset(
    {
        "Namespace",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
_LIMITED_ROLES = frozenset({BUFFER_ROLE, "leeway-headroom-priorities"})
_LABELS = (("app.kubernetes.io/name", "leeway"), (MANAGED_BY, "leeway"))


@dataclass(frozen=True, slots=True)
class ClusterObject(Kind):
    """A Kubernetes object. `content` is JSON with sorted keys: the object reduced to the fields
    that Leeway sets. `ours`: Leeway's label or field manager is on it."""

    path: str
    """The path of its URL."""
    kind: str
    name: str
    content: str
    ours: bool = field(default=True, compare=False)
    setting: Literal["object"] = "object"

    @property
    def key(self) -> str:
        return f"{self.setting}{self.path}"

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def body(self) -> dict[str, Any]:
        """The fields of the object that Leeway sets."""
        parsed: dict[str, Any] = json.loads(self.content)
        return parsed

    @property
    def is_of_adopt(self) -> bool:
        found = _PATH.fullmatch(self.path)
        return found is not None and found.groups() == (PLURALS.get(self.kind), self.name)

    def blocker(self, cluster: str, now: Self) -> str | None:
        was, becomes = now.body, self.body
        for name in _IMMUTABLE.get(self.kind, ()):
            if was.get(name) != becomes.get(name):
                return (
                    f"{self.title} exists with another {name}, which Kubernetes cannot change. "
                    f"Delete it with `kubectl delete {self.kind.lower()} {self.name}`."
                )
        return None

    def reason(self, cluster: str, now: Self | None) -> str:
        if now is None:
            return f"Cluster {cluster} has no {self.title}."
        return f"{self.title} differs from this version of Leeway."

    def consent(self, cluster: str, now: Self | None, current: Mapping[str, Any]) -> str | None:
        if now is None or now.ours:
            return None
        return (
            f"{now.title} exists without a label or field manager of Leeway; its content is "
            "replaced."
        )

    def call(self, cluster: str, now: Self | None) -> str:
        return f"PATCH {self.path}?fieldManager={FIELD_MANAGER}&force=true (server-side apply)"

    def removal(self, cluster: str) -> str:
        return f"DELETE {self.path}"

    def write(self, services: "Services", now: Self | None) -> None:
        services.objects.apply(self)

    def later(self, services: "Services") -> str | None:
        if self.kind != "Namespace" or services.objects.is_empty(self):
            return None
        return (
            f"The {self.title} stays: it has pods, services or secrets. Delete the Headroom "
            "manifests and wait a minute, then run the command again."
        )

    def remove(self, services: "Services") -> None:
        services.objects.delete(self)


def read_objects(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read the objects among the settings that are asked for."""
    for one in asked:
        if isinstance(one, ClusterObject) and (found := services.objects.read(one)) is not None:
            yield found


def cluster_objects(documents: Iterable[Mapping[str, Any]]) -> tuple[ClusterObject, ...]:
    """Return the objects of the files in rbac/, and the priority class of pause pods.

    Raises:
        ValueError: a document is of a kind that Leeway does not install, or it has no name.
    """
    return tuple(
        cluster_object(one) for one in [*documents, priority_class_object(LOWEST_PRIORITY)]
    )


def cluster_object(document: Mapping[str, Any]) -> ClusterObject:
    """Return one object as a setting.

    Raises:
        ValueError: the document is of a kind that Leeway does not install, or it has no name.
    """
    kind, version = document.get("kind"), document.get("apiVersion")
    name = (document.get("metadata") or {}).get("name")
    if kind not in PLURALS or not isinstance(version, str) or not isinstance(name, str):
        raise ValueError(f"expected one of {', '.join(PLURALS)} with a name, got {kind!r} {name!r}")
    namespace = document["metadata"].get("namespace")
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    folder = f"/namespaces/{namespace}" if namespace else ""
    path = f"{prefix}{folder}/{PLURALS[kind]}/{name}"
    return ClusterObject(path, kind, name, json.dumps(document, sort_keys=True))


def is_limited(one: ClusterObject) -> bool:
    """Whether an object is a policy, or gives a right to write pause pods, which only a policy
    limits."""
    return one.kind in _LIMITED_KINDS or one.name in _LIMITED_ROLES


def policies_missing(cluster: str) -> str:
    """Say what a cluster without admission policies means."""
    return (
        f"The API server of cluster {cluster} has no admission policies: it is older than "
        "Kubernetes 1.30. So leeway:drain and leeway:capacity can change every field of a Node, "
        "and Leeway gets no right to write pause pods: it keeps no headroom of its own. Update "
        f"the cluster, then run `leeway adopt {cluster}`."
    )


class KubernetesObjects:
    """The objects of one cluster. Every method raises the errors of `ports.kubernetes`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def has_policies(self) -> bool:
        """Whether the API server has admission policies, as Kubernetes has from 1.30 on."""
        served = self.request("GET", "/apis/admissionregistration.k8s.io/v1") or {}
        names = {one.get("name") for one in served.get("resources") or ()}
        return PLURALS["ValidatingAdmissionPolicy"] in names

    def read(self, wanted: ClusterObject) -> ClusterObject | None:
        """Read an object, reduced to the fields that `wanted` has; None if it does not exist."""
        found = self.request("GET", wanted.path)
        return None if found is None else as_found(wanted, found)

    def apply(self, wanted: ClusterObject) -> None:
        """Apply an object as field manager `leeway`, by force."""
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self.request("PATCH", wanted.path, params=params, content=_APPLY, body=wanted.body)

    def is_served(self, path: str) -> bool:
        """Whether a CRD exists and the API server serves its kind."""
        status = (self.request("GET", path) or {}).get("status") or {}
        served = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        return served.get("Established") == "True"

    def install(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object as field manager `leeway`, and take over no field of others."""
        self.request(
            "PATCH", path, params={"fieldManager": FIELD_MANAGER}, content=_APPLY, body=body
        )

    def delete(self, wanted: ClusterObject) -> None:
        """Delete an object; a missing one is not an error."""
        self.request("DELETE", wanted.path)

    def is_empty(self, namespace: ClusterObject) -> bool:
        """Whether a namespace has no object of a kind that its deletion would end."""
        return not any(
            (self.request("GET", f"{namespace.path}/{kind}", params={"limit": "1"}) or {}).get(
                "items"
            )
            for kind in _SHARED
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        content: str = "application/json",
        body: Any = None,
    ) -> dict[str, Any] | None:
        """Make one request; None if the API server answers that the object does not exist."""
        try:
            return self.connection.request(method, path, params=params, body=body, content=content)
        except ApiError as error:
            if error.response.status_code == 404 and method in {"GET", "DELETE"}:
                return None
            raise ClusterRefused(str(error)) from error


def as_found(wanted: ClusterObject, found: Mapping[str, Any]) -> ClusterObject:
    """Return an object of the cluster as a setting, reduced to the fields of `wanted`."""
    body = wanted.body
    whole = _WHOLE if "rules" in body or "roleRef" in body else frozenset[str]()
    reduced = {
        key: _compared(value, found.get(key), whole=key in whole)
        for key, value in body.items()
        if key in found or not value
    }
    content = json.dumps(reduced, sort_keys=True)
    return ClusterObject(wanted.path, wanted.kind, wanted.name, content, _is_ours(found))


def _compared(wanted: Any, found: Any, *, whole: bool = False) -> Any:
    """Return `wanted` if `found` says the same, else what is found of it."""
    if whole:
        return wanted if (_canonical(wanted) or None) == (_canonical(found) or None) else found
    match wanted, found:
        case dict(), dict():
            kept = {k: v for k, v in wanted.items() if k in found or not v}
            return {k: _compared(v, found.get(k)) for k, v in kept.items()}
        case list(), list() if len(wanted) == len(found):
            return [_compared(one, other) for one, other in zip(wanted, found, strict=True)]
    return wanted if not wanted and found is None else found


def _canonical(value: Any) -> Any:
    """Return a value without its empty fields, and with its lists sorted."""
    match value:
        case dict():
            return {key: _canonical(one) for key, one in value.items() if one}
        case list():
            return sorted(map(_canonical, value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


def _is_ours(found: Mapping[str, Any]) -> bool:
    metadata = found.get("metadata") or {}
    labels = metadata.get("labels") or {}
    return any(labels.get(key) == value for key, value in _LABELS) or any(
        entry.get("manager") == FIELD_MANAGER for entry in metadata.get("managedFields") or ()
    )
