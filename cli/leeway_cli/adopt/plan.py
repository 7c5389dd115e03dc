"""Reads a cluster, its groups and Leeway's stack, and plans what `leeway adopt` changes."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml
from leeway.aws.node_sources import EksNodeClusters
from leeway.launch.belonging import OWN_PREFIX
from leeway.manifests.configuration import StoredManifest
from leeway.manifests.in_cluster import Home
from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.reading import read_stored
from leeway.wiring.clients import client, clock
from leeway_sandbox.installed import ROOT

from leeway_cli.adopt.changes import Plan, Wanted, desired_settings, difference
from leeway_cli.adopt.reachability import functions_network, reachability
from leeway_cli.adopt.services import Connected
from leeway_cli.adopt.settings.groups import chosen_groups
from leeway_cli.adopt.settings.leeway_stack import LeewayStack, ManagedCluster, version_difference
from leeway_cli.adopt.settings.objects import (
    ClusterObject,
    cluster_objects,
    is_limited,
    policies_missing,
)
from leeway_cli.errors import BadInputError, aws_errors, kubernetes_errors

RBAC = ROOT / "rbac"
"""The folder of this checkout."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of a user. Without `groups` all groups of the cluster are chosen."""

    groups: tuple[str, ...] = ()
    node_roles: tuple[str, ...] = ()
    rbac: Path = RBAC
    updates_stack: bool = True
    manifests: Home | None = None


def plan_adoption(connected: Connected, choices: Choices) -> Plan:
    """Plan the adoption of a cluster.

    Raises:
        BadInputError: the folder of RBAC cannot be read, or a group cannot be chosen.
        CannotBeDoneError: AWS or the API server does not answer or refuses.
    """
    services, stack, cluster = connected.services, connected.stack, connected.cluster
    objects = read_objects(choices.rbac)
    with kubernetes_errors():
        has_policies = services.objects.has_policies()
    if not has_policies:
        objects = tuple(one for one in objects if not is_limited(one))
    groups = _groups(connected, choices.groups)
    with aws_errors(services.stack.where):
        stored = services.stack.manifests().of(cluster.name)
    roles, warnings = tuple(sorted(set(choices.node_roles))), tuple[str, ...]()
    if not roles:
        named, warnings = roles_of(cluster.name, stack, stored)
        with aws_errors(f"access entries of the clusters of stack {stack.name}"):
            eks = EksNodeClusters(partial(client, "eks"), clock(), stack.clusters)
            joined = {one: eks.joined_with(one, cluster.name) for one in named}
        roles, shared = without_other_clusters(cluster.name, joined)
        warnings = (*warnings, *shared)
    wanted = Wanted(
        cluster.name, stack, objects, groups, roles, windows_roles(roles, stored), choices.manifests
    )
    desired = [
        one
        for one in desired_settings(wanted)
        if choices.updates_stack or not isinstance(one, ManagedCluster)
    ]
    found = difference(cluster.name, desired, services.read(desired))
    with aws_errors(f"subnets of stack {stack.name}"):
        network = functions_network(stack, partial(client, "ec2"))
    access = reachability(cluster.endpoint, network)
    if not has_policies:
        warnings += (policies_missing(cluster.name),)
    blockers = [version_difference(stack, objects), access.blocker, *found.blockers]
    return replace(
        found,
        blockers=tuple(one for one in blockers if one is not None),
        warnings=tuple(one for one in (*warnings, access.warning) if one is not None),
    )


def read_objects(folder: Path) -> tuple[ClusterObject, ...]:
    """Read the objects that Leeway installs in a cluster.

    Raises:
        BadInputError: the folder has no YAML, or a document that Leeway does not install.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise BadInputError(
            f"{folder}: it has no file *.yaml. Set --rbac to the folder rbac of Leeway."
        )
    documents = []
    for file in sorted(files, key=lambda file: file.name != "leeway.yaml"):
        try:
            parsed = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadInputError(
                f"{file}: {error}. Set --rbac to the folder rbac of Leeway."
            ) from error
        documents += [one for one in parsed if one is not None]
    try:
        return cluster_objects(documents)
    except (ValueError, AttributeError) as error:
        raise BadInputError(
            f"{folder}: {error}. Set --rbac to the folder rbac of Leeway."
        ) from error


def _groups(connected: Connected, asked: Sequence[str]) -> tuple[str, ...]:
    with aws_errors(f"groups of cluster {connected.cluster.name}"):
        scaling = connected.services.scaling
        found = scaling.named(asked) if asked else scaling.groups_of(connected.cluster.name)
    return chosen_groups(asked, found, connected.cluster.name, connected.region)


def roles_of(
    cluster: str, stack: LeewayStack, stored: Iterable[StoredManifest]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the roles of NodeRoleArns that node classes name, and which classes name none."""
    by_name = {arn.rpartition("/")[2]: arn for arn in stack.node_roles}
    roles: set[str] = set()
    warnings = []
    for title, role, _ in _named_roles(stored):
        if role in by_name:
            roles.add(by_name[role])
        else:
            warnings.append(
                f"The node class {title} of cluster {cluster} names no role of NodeRoleArns. If "
                "its nodes have no access entry yet, set --node-role."
            )
    return tuple(sorted(roles)), tuple(warnings)


def without_other_clusters(
    cluster: str, joined: Mapping[str, Collection[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the roles whose nodes can join no other cluster, and a warning for each other one.
    `joined` has the clusters that nodes of a role can join. Whoever writes manifests of a cluster
    names roles, and must not choose who joins."""
    own = tuple(role for role, names in joined.items() if {*names} <= {cluster})
    warnings = [
        f"Nodes with role {role} can join {', '.join(sorted({*names} - {cluster}))}, so its access "
        f"entry in cluster {cluster} is not created. If they may join both, set --node-role, and "
        f"tag the role {OWN_PREFIX}{cluster}."
        for role, names in joined.items()
        if role not in own
    ]
    return own, tuple(warnings)


def windows_roles(roles: Iterable[str], stored: Iterable[StoredManifest]) -> frozenset[str]:
    """Return those of some roles that only node classes of Windows name. Windows nodes need a
    group that entries of type EC2_LINUX do not have. Source: EKS API, `CreateAccessEntry`."""
    families: dict[str, set[bool]] = {}
    for _, role, windows in _named_roles(stored):
        families.setdefault(role, set()).add(windows)
    return frozenset(arn for arn in roles if families.get(arn.rpartition("/")[2]) == {True})


def _named_roles(stored: Iterable[StoredManifest]) -> Iterator[tuple[str, str, bool]]:
    """Yield the title and the role of each node class, and whether its nodes run Windows."""
    for one in stored:
        if one.resource != "ec2nodeclass.karpenter.k8s.aws":
            continue
        try:
            spec = json.loads(one.body).get("spec")
        except (ValueError, AttributeError):
            continue  # `leeway get` reports a damaged manifest
        read = read_stored(one.body, one.title).written
        meant = read[0].manifest if read else None
        family = meant.spec.family if isinstance(meant, EC2NodeClass) else None
        role = str(spec.get("role", "")) if isinstance(spec, Mapping) else ""
        yield one.title, role, family is not None and family.windows
