"""Discovery: versions, groups, resources, and the part of OpenAPI that kubectl needs.

The OpenAPI document has only paths, with the parameters that kubectl requires before it lets the
server validate fields. It has no schemas.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from leeway_sandbox.kubernetes.objects import Object
from leeway_sandbox.kubernetes.registry import KINDS, Kind

_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0-leeway-sandbox",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
# Subresources whose body has another kind than their object.
_SUBRESOURCE_KINDS = {
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}
_REVIEWS = {
    "authorization.k8s.io/v1": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
    "authentication.k8s.io/v1": (("selfsubjectreviews", "SelfSubjectReview"),),
}


def _groups() -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for group, version, _ in KINDS:
        if group and f"{group}/{version}" not in groups.setdefault(group, []):
            groups[group].append(f"{group}/{version}")
    for group_version in _REVIEWS:
        groups.setdefault(group_version.partition("/")[0], []).append(group_version)
    return dict(sorted(groups.items()))


def answer(path: str) -> Object | None:
    """Return the discovery document of a path, or None."""
    path = path.rstrip("/")
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        client = {"clientCIDR": "0.0.0.0/0", "serverAddress": "cluster"}
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [client],
        }
    if path == "/apis":
        groups = [_group(name, versions) for name, versions in _groups().items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path == "/api/v1":
        resources = list(_resources("v1"))
        return {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}
    if path.startswith("/openapi/v3"):
        return _open_api(path.removeprefix("/openapi/v3").strip("/"))
    parts = path.split("/")
    if parts[1:2] != ["apis"] or len(parts) not in (3, 4):
        return None
    if len(parts) == len(["", "apis", "group"]):
        versions = _groups().get(parts[2])
        group = _group(parts[2], versions) if versions else None
        return {"kind": "APIGroup", "apiVersion": "v1", **group} if group else None
    group_version = f"{parts[2]}/{parts[3]}"
    found = list(_resources(group_version))
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": found,
    }


def _group(name: str, group_versions: list[str]) -> Object:
    versions = [{"groupVersion": one, "version": one.partition("/")[2]} for one in group_versions]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(group_version: str) -> Iterator[Object]:
    if group_version == "v1":
        yield {
            "name": "bindings",
            "singularName": "binding",
            "namespaced": True,
            "kind": "Binding",
            "verbs": ["create"],
        }
    for plural, kind_name in _REVIEWS.get(group_version, ()):
        yield {
            "name": plural,
            "singularName": kind_name.lower(),
            "namespaced": False,
            "kind": kind_name,
            "verbs": ["create"],
        }
    for kind in sorted(KINDS.values(), key=lambda one: one.plural):
        if kind.api_version == group_version:
            yield from _kind_resources(kind)


def _kind_resources(kind: Kind) -> Iterator[Object]:
    resource: Object = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if "create" in kind.verbs:
        digest = hashlib.sha256(f"{kind.api_version}/{kind.kind}".encode()).hexdigest()
        resource["storageVersionHash"] = digest[:11] + "="
    yield resource
    for name, verbs in sorted(kind.subresources.items()):
        group, version, of = _SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, kind.kind))
        subresource: Object = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": of,
            "verbs": list(verbs),
        }
        if (group, version) != (kind.group, kind.version):
            subresource |= {"group": group, "version": version}
        yield subresource


def _open_api(group_version: str) -> Object | None:
    if not group_version:
        paths = sorted({_root(kind) for kind in KINDS.values()})
        return {"paths": {one: {"serverRelativeURL": f"/openapi/v3/{one}"} for one in paths}}
    root = "/" + group_version
    served = [kind for kind in KINDS.values() if group_version == _root(kind)]
    if not served:
        return None
    paths_of = {}
    for kind in served:
        middle = "/namespaces/{namespace}" if kind.namespaced else ""
        operation = {
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                for name in ("dryRun", "fieldManager", "fieldValidation", "force")
            ],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": {
                "group": kind.group,
                "version": kind.version,
                "kind": kind.kind,
            },
        }
        paths_of[f"{root}{middle}/{kind.plural}"] = {"post": operation}
        paths_of[f"{root}{middle}/{kind.plural}/{{name}}"] = {
            "patch": operation,
            "put": operation,
        }
    info = {"title": "Kubernetes", "version": _VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths_of}


def _root(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
