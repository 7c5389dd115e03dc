"""The rights in a cluster that the objects of rbac/leeway.yaml give to Leeway's groups."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_BINDINGS = frozenset({"ClusterRoleBinding", "RoleBinding"})


@dataclass(frozen=True, slots=True)
class Right:
    """One right of a group. `resource` may have a subresource, as `pods/eviction`; `namespace` is
    empty if it holds in the whole cluster."""

    group: str
    verb: str
    api_group: str
    resource: str
    namespace: str = ""


def rights_of(objects: Iterable[Mapping[str, Any]]) -> tuple[Right, ...]:
    """Return the rights that bindings give to groups, each once, in their order."""
    given = tuple(objects)
    roles = {one["metadata"]["name"]: one for one in given if one["kind"] == "ClusterRole"}
    bindings = (one for one in given if one["kind"] in _BINDINGS)
    return tuple(dict.fromkeys(right for one in bindings for right in _bound(one, roles)))


def _bound(binding: Mapping[str, Any], roles: Mapping[str, Mapping[str, Any]]) -> Iterator[Right]:
    namespace = binding["metadata"].get("namespace", "")
    role = roles[binding["roleRef"]["name"]]
    for subject in binding["subjects"]:
        if subject["kind"] != "Group":
            continue
        for rule in role["rules"]:
            for api_group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(subject["name"], verb, api_group, resource, namespace)
