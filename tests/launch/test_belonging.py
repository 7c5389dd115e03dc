"""Which subnets, security groups and node roles a cluster may use."""

from collections.abc import Mapping

import pytest
from leeway.launch.belonging import (
    Network,
    SecurityGroup,
    Subnet,
    check_role,
    check_security_groups,
    check_subnets,
)
from leeway.launch.intent import LaunchOutcome
from leeway.launch.node_settings import NotLaunchable
from leeway.launch.resolve_pools import NodeCluster
from leeway.selection.offers.catalog import Catalog

from tests.fakes.node_clusters import role_arn
from tests.launch.launching import World, order
from tests.launch.pools import node_class, pool

NETWORK = Network("vpc-1", frozenset({"subnet-of-eks"}), frozenset({"sg-of-eks"}))
OWN = [
    {"kubernetes.io/cluster/prod": "shared"},
    {"kubernetes.io/cluster/prod": "shared", "kubernetes.io/cluster/payments": "shared"},
    {"leeway.sh/cluster/prod": ""},
    {"aws:eks:cluster-name": "prod"},
    {"eks:cluster-name": "prod"},
    {"eks:eks-cluster-name": "prod"},
    {"karpenter.sh/discovery": "prod"},
]
OTHERS = [
    {"kubernetes.io/cluster/payments": "owned"},
    {"leeway.sh/cluster/payments": ""},
    {"aws:eks:cluster-name": "payments"},
    {"eks:cluster-name": "payments", "Name": "prod"},
]


def subnet(tags: Mapping[str, str], vpc: str = "vpc-1", name: str = "subnet-1") -> Subnet:
    return Subnet(name, "us-east-1a", 9, vpc, tags)


@pytest.mark.parametrize(
    "one",
    [
        *(subnet(tags, "vpc-2") for tags in OWN),
        subnet({}, "vpc-2", "subnet-of-eks"),
        subnet({}),
        subnet({"karpenter.sh/discovery": "production"}),
    ],
)
def test_a_subnet_of_the_cluster_is_used(one: Subnet) -> None:
    check_subnets("prod", NETWORK, "TERMS", [one])


@pytest.mark.parametrize("one", [*map(subnet, OTHERS), subnet({}, "vpc-2"), subnet({}, "")])
def test_a_subnet_of_another_cluster_or_vpc_is_refused(one: Subnet) -> None:
    with pytest.raises(NotLaunchable, match="subnet subnet-1 of TERMS does not belong to cluster"):
        check_subnets("prod", NETWORK, "TERMS", [subnet(OWN[0], name="subnet-0"), one])


def test_a_security_group_needs_a_tag_or_the_word_of_eks() -> None:
    for tags in OWN:
        check_security_groups("prod", NETWORK, "TERMS", [SecurityGroup("sg-1", tags)])
    check_security_groups("prod", NETWORK, "TERMS", [SecurityGroup("sg-of-eks")])
    for tags in ({}, *OTHERS, {"karpenter.sh/discovery": "production"}):
        with pytest.raises(NotLaunchable, match=r"add the tag leeway\.sh/cluster/prod"):
            check_security_groups("prod", NETWORK, "TERMS", [SecurityGroup("sg-1", tags)])


@pytest.mark.parametrize(
    ("joins", "tags", "problem"),
    [
        (["prod"], {}, ""),
        (["prod"], {"kubernetes.io/cluster/payments": "owned"}, ""),
        (["payments", "prod"], {"leeway.sh/cluster/prod": "yes"}, ""),
        ([], {"leeway.sh/cluster/prod": "yes"}, ""),
        ([], {}, "no access entry for nodes there; `leeway adopt prod` adds one"),
        (["payments"], {}, "nodes with it can join payments"),
        (["payments", "prod"], {}, "nodes with it can join payments"),
        (["payments", "prod"], {"leeway.sh/cluster/payments": ""}, "nodes with it can join"),
    ],
)
def test_a_node_role_joins_this_cluster_alone_or_is_tagged_for_it(
    joins: list[str], tags: Mapping[str, str], problem: str
) -> None:
    if not problem:
        check_role("prod", "PLACE", role_arn("nodes"), joins, tags)
        return
    with pytest.raises(NotLaunchable, match=f"role nodes of PLACE .*{problem}"):
        check_role("prod", "PLACE", role_arn("nodes"), joins, tags)


def payments(world: World) -> None:
    """Another cluster that Leeway manages, with its node role and its profile."""
    own = world.clusters.known["prod"]
    world.clusters.known["payments"] = NodeCluster(own.details, "1.34", network=Network("vpc-1"))
    world.clusters.entries["payments"] = {"payments-nodes"}
    world.profiles.by_role["payments-nodes"] = ["payments-nodes"]


def launched(world: World, catalog: Catalog, **spec: object) -> LaunchOutcome:
    given = node_class(**spec)
    return world.launch_nodes.launch(order(catalog, pool(), given))


@pytest.mark.parametrize(
    "spec", [{"instanceProfile": "payments-nodes", "role": None}, {"role": "payments-nodes"}]
)
def test_manifests_of_a_cluster_launch_no_nodes_with_the_role_of_another_one(
    world: World, catalog: Catalog, spec: dict[str, object]
) -> None:
    payments(world)
    outcome = launched(world, catalog, **spec)
    assert not world.fleets.requests
    (reason,) = {one.cause.message for one in outcome.without_node}
    assert "role payments-nodes of EC2NodeClass default" in reason
    assert "does not belong to cluster prod: nodes with it can join payments" in reason
    assert launched(world, catalog).complete, "its own role still launches"


def test_a_role_that_two_managed_clusters_share_needs_a_tag(world: World, catalog: Catalog) -> None:
    payments(world)
    world.clusters.entries["payments"].add("prod-nodes")
    assert not launched(world, catalog).complete
    world.profiles.tags["prod-nodes"] = {"leeway.sh/cluster/prod": ""}
    assert launched(world, catalog).complete


@pytest.mark.parametrize("what", ["subnetSelectorTerms", "securityGroupSelectorTerms"])
def test_manifests_of_a_cluster_use_no_network_of_another_one(
    world: World, catalog: Catalog, what: str
) -> None:
    name = "subnet-payments" if what.startswith("subnet") else "sg-payments"
    world.networks.known[name] = Subnet(name, "us-east-1a", 500, "vpc-1")
    world.networks.names[name] = "payments"
    world.networks.tags = {**world.networks.tags, name: {"kubernetes.io/cluster/payments": "owned"}}
    if what.startswith("subnet"):
        del world.networks.names[name]
    outcome = launched(world, catalog, **{what: [{"id": name}]})
    assert not world.fleets.requests
    (reason,) = {one.cause.message for one in outcome.without_node}
    assert f"{name} of EC2NodeClass default, spec.{what} does not belong to cluster prod" in reason


def test_where_iam_cannot_be_reached_a_profile_counts_as_the_role_of_its_name(
    world: World, catalog: Catalog
) -> None:
    payments(world)
    world.profiles.unreachable = True
    given = {"instanceProfile": "payments-nodes", "role": None}
    assert not launched(world, catalog, **given).complete
    assert launched(world, catalog, **{**given, "instanceProfile": "prod-nodes"}).complete


def test_a_profile_that_does_not_exist_is_named(world: World, catalog: Catalog) -> None:
    outcome = launched(world, catalog, instanceProfile="never-was", role=None)
    (reason,) = {one.cause.message for one in outcome.without_node}
    assert "IAM has no instance profile never-was with a role" in reason
