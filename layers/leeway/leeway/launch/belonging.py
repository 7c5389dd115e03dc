"""Which subnets, security groups and node roles belong to a cluster.

Whoever writes manifests of one cluster may name any of the account. So these have to be the
cluster's by something that a manifest cannot write: tags, or what EKS says.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from leeway.instances.facts import CLUSTER_TAGS, OWNED_PREFIX
from leeway.launch.node_settings import NotLaunchable


class NotOfCluster(NotLaunchable):
    """AWS has a resource that a manifest names, and it does not belong to the cluster."""


OWN_PREFIX = "leeway.sh/cluster/"
"""The prefix of a tag key that ends with the name of a cluster which may use the resource. The
value does not matter."""

DISCOVERY_TAG = "karpenter.sh/discovery"
"""Its value is by convention the name of the cluster. Source: Karpenter, "Getting Started"."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a cluster, as EKS describes it: `subnets` and `security_groups` are those of
    its control plane, the security group that EKS creates among them."""

    vpc: str = ""
    subnets: frozenset[str] = frozenset()
    security_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet of a VPC. `free` is its number of free IPv4 addresses."""

    id: str
    zone: str
    free: int
    vpc: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    """A security group of a VPC."""

    id: str
    tags: Mapping[str, str] = field(default_factory=dict)


def clusters_of(tags: Mapping[str, str]) -> frozenset[str]:
    """Return the clusters that the tags of a resource name."""
    by_key = {
        key.removeprefix(prefix)
        for key in tags
        for prefix in (OWNED_PREFIX, OWN_PREFIX)
        if key.startswith(prefix)
    }
    return frozenset(by_key | {tags[key] for key in CLUSTER_TAGS if key in tags})


def is_tagged_for(cluster: str, tags: Mapping[str, str]) -> bool:
    """Whether the tags of a resource say that a cluster may use it."""
    return cluster in clusters_of(tags) or tags.get(DISCOVERY_TAG) == cluster


def check_subnets(cluster: str, network: Network, place: str, subnets: Iterable[Subnet]) -> None:
    """Check that subnets belong to a cluster: their tags name it, EKS lists them, or they are in
    its VPC and their tags name no other cluster.

    Raises:
        NotOfCluster: one does not.
    """

    def belongs(one: Subnet) -> bool:
        if one.id in network.subnets or is_tagged_for(cluster, one.tags):
            return True
        return one.vpc == network.vpc and not clusters_of(one.tags)

    _check(cluster, "subnet", place, [one.id for one in subnets if not belongs(one)])


def check_security_groups(
    cluster: str, network: Network, place: str, groups: Iterable[SecurityGroup]
) -> None:
    """Check that security groups belong to a cluster: their tags name it, or EKS lists them.
    Databases trust groups of the same VPC, so the VPC does not count.

    Raises:
        NotOfCluster: one does not.
    """
    foreign = [
        one.id
        for one in groups
        if one.id not in network.security_groups and not is_tagged_for(cluster, one.tags)
    ]
    _check(cluster, "security group", place, foreign)


def why_not_reserved_for(cluster: str, tags: Mapping[str, str], *, named: bool) -> str:
    """Return why a cluster may not use a capacity reservation; empty if it may. Its tags name the
    cluster, or they name no cluster and a term names the reservation by its id or its tags. So a
    tag keeps a reservation for one cluster, and no term takes what is merely open."""
    if is_tagged_for(cluster, tags):
        return ""
    if others := clusters_of(tags):
        return f"its tags name cluster {', '.join(sorted(others))}"
    return "" if named else "no term names it by id or tags, and its tags name no cluster"


def _check(cluster: str, kind: str, place: str, foreign: Collection[str]) -> None:
    if foreign:
        some = ", ".join(sorted(foreign)[:3])
        raise NotOfCluster(
            f"{kind} {some} of {place} does not belong to cluster {cluster}: let somebody who may "
            f"tag it add the tag {OWN_PREFIX}{cluster}, or correct the terms"
        )


def check_role(
    cluster: str, place: str, role: str, joins: Collection[str], tags: Mapping[str, str]
) -> None:
    """Check that a node role belongs to a cluster: it can join this cluster and no other one that
    Leeway manages, or its tags name the cluster. `joins` are the clusters that nodes with this role
    can join.

    Raises:
        NotOfCluster: it does not.
    """
    if set(joins) == {cluster} or is_tagged_for(cluster, tags):
        return
    name = role.rpartition("/")[2]
    others = ", ".join(sorted(set(joins) - {cluster}))
    if others:
        why = f"nodes with it can join {others}"
    else:
        why = f"it has no access entry for nodes there; `leeway adopt {cluster}` adds one"
    raise NotOfCluster(
        f"role {name} of {place} does not belong to cluster {cluster}: {why}; to allow it, let "
        f"somebody who may tag roles add the tag {OWN_PREFIX}{cluster}"
    )
