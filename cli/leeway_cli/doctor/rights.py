"""The rights in a cluster that the objects of rbac/ give to Leeway's groups."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from leeway.headroom.reconciler import GROUP
from leeway.retirement.surge import GROUPS as SURGE_GROUPS
from leeway.retirement.surge import ROLE as SURGE_ROLE

_BINDINGS = frozenset({"ClusterRoleBinding", "RoleBinding"})


@dataclass(frozen=True, slots=True)
class Right:
    """One right of a group. `resource` may have a subresource, as `pods/eviction`; `namespace` is
    empty if it holds in the whole cluster. `role` is the ClusterRole that grants it; `name` is the
    only object that it is about, empty for all."""

    group: str
    verb: str
    api_group: str
    resource: str
    namespace: str = ""
    role: str = ""
    name: str = ""


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
        if subject["kind"] == "Group":
            yield from _granted(role, subject["name"], namespace)


def _granted(role: Mapping[str, Any], group: str, namespace: str) -> Iterator[Right]:
    of = role["metadata"]["name"]
    for rule in role["rules"]:
        for api_group, resource, verb, name in product(
            rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""])
        ):
            yield Right(group, verb, api_group, resource, namespace, of, name)


def rights_in_namespaces(
    objects: Iterable[Mapping[str, Any]], needed: Iterable[tuple[str, str]]
) -> tuple[Right, ...]:
    """Return the rights that Leeway's groups need in the namespaces of users. `needed` are the
    names of ClusterRoles, each with a namespace; users bind them (docs/headroom.md, docs/surge.md).
    """
    roles = {one["metadata"]["name"]: one for one in objects if one["kind"] == "ClusterRole"}
    return tuple(
        right
        for role, namespace in dict.fromkeys(needed)
        if role in roles
        for group in (SURGE_GROUPS if role == SURGE_ROLE else (GROUP,))
        for right in _granted(roles[role], group, namespace)
    )
