"""The settings of a cluster under care, in the order in which they take effect.

The functions get their rights first, then the cluster gets its manifest and its place in
ClusterNames. The hooks come last: an instance waits for a hook, so Leeway must answer already.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.headroom.pause_pods import LOWEST_PRIORITY, priority_class_object

from leeway_cli.cluster_setup.settings import (
    AccessEntry,
    Authentication,
    ClusterManifest,
    ClusterObject,
    GroupHook,
    GroupTag,
    ManagedCluster,
    Mode,
    Setting,
    SpotRole,
    Transition,
)

HOOK_TIMEOUT = 300
"""Seconds. Leeway sends heartbeats while a drain takes longer; if Leeway does not run, an instance
waits for this time."""

HOOKS = {"leeway-drain": Transition.TERMINATING, "leeway-admit": Transition.LAUNCHING}

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


@dataclass(frozen=True, slots=True)
class LeewayStack:
    """Leeway's stack as CloudFormation describes it. `groups` are the Kubernetes groups of its
    roles by ARN; `roles_without_arn` are roles of `Metadata.AccessEntries` without an output.
    `subnets` are those of its functions, empty outside of a VPC; `parameters` are the names of all
    parameters. `status` is CloudFormation's, `version` that of Leeway, empty if it states none."""

    name: str
    table: str
    groups: Mapping[str, str]
    clusters: tuple[str, ...] = ()
    node_roles: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    roles_without_arn: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    status: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user wants to bring under care. `node_roles` are the ARNs of the roles with which
    Leeway launches nodes in this cluster; with `windows_roles` of them it launches Windows alone.
    """

    cluster: str
    stack: LeewayStack
    objects: tuple[ClusterObject, ...]
    groups: tuple[str, ...] = ()
    node_roles: tuple[str, ...] = ()
    windows_roles: frozenset[str] = frozenset()


def desired_settings(wanted: Wanted) -> tuple[Setting, ...]:
    """Return the settings that Leeway needs, in the order in which adopt writes them."""
    return (
        Authentication(Mode.BOTH),
        *wanted.objects,
        *desired_entries(wanted),
        *([SpotRole()] if wanted.node_roles else ()),
        ClusterManifest(wanted.cluster, manifest_of(wanted.cluster)),
        ManagedCluster(wanted.stack.name, wanted.cluster),
        *(GroupTag(group, wanted.cluster) for group in wanted.groups),
        *(hook for group in wanted.groups for hook in desired_hooks(group)),
    )


def desired_entries(wanted: Wanted) -> Iterator[AccessEntry]:
    """Return the access entry of each role of the stack with its group, and of each node role."""
    for arn, group in sorted(wanted.stack.groups.items()):
        yield AccessEntry(arn, frozenset({group}))
    for arn in sorted(wanted.node_roles):
        yield AccessEntry(arn, type="EC2_WINDOWS" if arn in wanted.windows_roles else "EC2_LINUX")


def desired_hooks(group: str) -> tuple[GroupHook, ...]:
    """Return Leeway's hooks of a group."""
    return tuple(GroupHook(group, name, when, HOOK_TIMEOUT) for name, when in HOOKS.items())


def manifest_of(cluster: str) -> str:
    """Return the Cluster manifest with which a cluster starts: every field has its default."""
    body = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": cluster},
        "spec": {},
    }
    return json.dumps(body, sort_keys=True)


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


def version_difference(stack: LeewayStack, objects: Sequence[ClusterObject]) -> str | None:
    """Return why the stack and these objects are of two versions; None if they fit together: each
    role's group has a binding, and each binding's group has a role."""
    bound = {
        subject["name"]
        for one in objects
        for subject in one.body.get("subjects", ())
        if subject.get("kind") == "Group"
    }
    granted = set(stack.groups.values())
    if stack.roles_without_arn:
        difference = f"it has no output with the ARN of {', '.join(stack.roles_without_arn)}"
    elif not granted:
        difference = "its template has no Metadata.AccessEntries"
    elif unbound := sorted(granted - bound):
        difference = f"no binding in rbac/ is for the group {', '.join(unbound)}"
    elif unused := sorted(bound - granted):
        difference = f"none of its roles has the group {', '.join(unused)}"
    else:
        return None
    return (
        f"Stack {stack.name} is of another version of Leeway: {difference}. Use the command line "
        "of the deployed version, or deploy this version first."
    )
