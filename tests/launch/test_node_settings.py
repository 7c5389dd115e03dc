"""A pool's EC2 settings come from its node class, or from the Cluster's defaults."""

from collections.abc import Callable, Mapping

import pytest
from leeway.launch.belonging import Subnet
from leeway.launch.node_settings import (
    MOST_TAGS,
    NodeSettings,
    NotLaunchable,
    Setting,
    instance_tags,
    user_tags,
)
from leeway.launch.resolve_pools import (
    InstanceProfile,
    PoolResolver,
    choose_profile,
    choose_security_groups,
    choose_subnets,
    node_role,
    security_group_terms,
    subnet_terms,
)

from tests.fakes.node_clusters import role_arn
from tests.launch.launching import World
from tests.launch.pools import NODE_CLASS, document, node_class, settings

DEFAULTS = {
    "nodeRole": "default-nodes",
    "subnetSelectorTerms": [{"id": "subnet-0a"}],
    "securityGroupSelectorTerms": [{"name": "nodes"}],
    "tags": {"team": "platform", "cost": "1"},
}
CLUSTER = document("Cluster", "prod", {"defaults": DEFAULTS})


def test_a_node_class_has_precedence_over_the_defaults() -> None:
    found = settings(node_class(tags={"cost": "2"}), CLUSTER)
    assert subnet_terms(found).place == "EC2NodeClass default, spec.subnetSelectorTerms"
    assert node_role(found) == Setting("prod-nodes", "EC2NodeClass default, spec.role")
    assert user_tags(found) == {"team": "platform", "cost": "2"}


def test_a_pool_whose_node_class_is_not_given_has_the_defaults() -> None:
    found = settings(CLUSTER)
    terms = subnet_terms(found)
    assert [one.id for one in terms.value] == ["subnet-0a"]
    assert terms.place == "Cluster prod, spec.defaults.subnetSelectorTerms"
    assert [one.name for one in security_group_terms(found).value] == ["nodes"]
    assert node_role(found) == Setting("default-nodes", "Cluster prod, spec.defaults.nodeRole")


def test_an_instance_profile_of_the_node_class_replaces_the_default_role() -> None:
    found = settings(node_class(role=None, instanceProfile="own-profile"), CLUSTER)
    assert found.profile is not None
    assert (found.profile.value, found.role) == ("own-profile", None)


@pytest.mark.parametrize(
    ("field", "ask"),
    [
        ("subnetSelectorTerms", subnet_terms),
        ("securityGroupSelectorTerms", security_group_terms),
        ("role", node_role),
    ],
)
def test_a_missing_setting_is_an_error_that_names_manifest_and_field(
    field: str, ask: Callable[[NodeSettings], object]
) -> None:
    assert field in NODE_CLASS
    with pytest.raises(NotLaunchable) as caught:
        ask(settings(node_class(**{field: None})))
    assert caught.value.reason.code == "PoolSettingWrong"
    assert f"spec.{field}" in str(caught.value)
    assert "EC2NodeClass default" in str(caught.value)
    assert "spec.defaults." in str(caught.value)


def test_each_zone_has_the_subnet_with_the_most_free_addresses() -> None:
    subnets = [
        Subnet("subnet-1", "us-east-1a", 10),
        Subnet("subnet-2", "us-east-1a", 200),
        Subnet("subnet-3", "us-east-1b", 0),
        Subnet("subnet-4", "us-east-1c", 1),
    ]
    choice = choose_subnets("PLACE", subnets)
    assert choice.by_zone == {"us-east-1a": "subnet-2", "us-east-1c": "subnet-4"}
    (left_out,) = choice.left_out
    assert left_out.code == "SubnetWithoutAddresses"
    assert "subnet-3" in left_out.message
    assert "PLACE" in left_out.message


def test_a_subnet_that_ec2_found_full_is_replaced_by_another_one_of_its_zone() -> None:
    subnets = [Subnet("subnet-1", "us-east-1a", 10), Subnet("subnet-2", "us-east-1a", 200)]
    choice = choose_subnets("PLACE", subnets, exhausted={"subnet-2"})
    assert choice.by_zone == {"us-east-1a": "subnet-1"}


def test_terms_that_match_nothing_are_errors_that_name_the_terms() -> None:
    role = Setting("nodes", "EC2NodeClass default, spec.role")
    failing: list[tuple[Callable[[], object], str]] = [
        (lambda: choose_subnets("PLACE", []), "no subnet matches PLACE"),
        (lambda: choose_security_groups("PLACE", []), "no security group matches PLACE"),
        (lambda: choose_profile(role, []), f"the role nodes of {role.place}"),
        (lambda: choose_profile(role, []), "no instance profile of your own"),
    ]
    for choose, named in failing:
        with pytest.raises(NotLaunchable) as caught:
            choose()
        assert named in str(caught.value)


def profiles(*names: str) -> list[InstanceProfile]:
    return [InstanceProfile(name, role_arn("nodes")) for name in names]


def test_the_profile_with_the_name_of_the_role_is_preferred() -> None:
    role = Setting("nodes", "")
    assert choose_profile(role, profiles("eks-1", "nodes")).name == "nodes"
    assert choose_profile(role, profiles("eks-2", "eks-1")).name == "eks-1"


def test_instances_have_the_tags_of_the_cluster_and_of_the_user() -> None:
    tags = instance_tags("prod", "web", "i1", "v1 tags=0", {"team": "a", "Name": "mine"})
    assert tags == {
        "Name": "mine",
        "team": "a",
        "eks:eks-cluster-name": "prod",
        "kubernetes.io/cluster/prod": "owned",
        "leeway.sh/owner": "leeway",
        "leeway.sh/nodepool": "web",
        "leeway.sh/intent": "i1",
        "leeway.sh/launch-settings": "v1 tags=0",
    }
    assert instance_tags("prod", "web", "i1", "", {})["Name"] == "prod-web"


@pytest.mark.parametrize(
    "key",
    ["aws:x", "AWS:x", "eks:cluster-name", "kubernetes.io/cluster/other", "leeway.sh/intent"],
)
def test_a_tag_that_would_change_the_owner_of_an_instance_is_refused(key: str) -> None:
    with pytest.raises(NotLaunchable, match=r"EC2NodeClass default, spec\.tags is reserved"):
        user_tags(settings(node_class(tags={key: "x"})))


def test_as_many_tags_as_ec2_accepts_beside_those_of_leeway() -> None:
    most = {f"t{n}": "x" for n in range(43)}
    for own in (most, {**most, "Name": "x"}):
        given = user_tags(settings(node_class(tags=own)))
        assert len(instance_tags("prod", "web", "intent", "hash", given)) == MOST_TAGS
    with pytest.raises(NotLaunchable, match="EC2 accepts 43 beside those of Leeway"):
        user_tags(settings(node_class(tags={f"t{n}": "x" for n in range(44)})))


CLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"
FIRST, SECOND = "prod_1111111111111111111", "prod_2222222222222222222"


def of_karpenter(node_class: str, cluster: str = "prod") -> tuple[str, Mapping[str, str]]:
    """The path and the tags of an instance profile that Karpenter has made for a class."""
    path = f"/karpenter/us-east-1/{cluster}/{node_class}/"
    return path, {CLASS_TAG: node_class, "eks:eks-cluster-name": cluster}


@pytest.mark.parametrize(
    ("marked", "chosen"),
    [
        ({"eks-08c968da-2d88-0096-4c82-1ee57490a6af": ("/", {}), "own": ("/", {})}, ["own"]),
        ({FIRST: of_karpenter("default"), "own": ("/", {})}, ["own", FIRST]),
        ({FIRST: of_karpenter("other"), SECOND: of_karpenter("default")}, [SECOND]),
        ({FIRST: of_karpenter("default", "stage"), SECOND: of_karpenter("default")}, [SECOND]),
        ({FIRST: ("/", {CLASS_TAG: "default"}), SECOND: ("/", {CLASS_TAG: "other"})}, [FIRST]),
        ({"own_123456789012345678": ("/", {})}, ["own_123456789012345678"]),
        ({FIRST: ("/karpenter/us-east-1/prod/uid/", {})}, []),
        ({FIRST: of_karpenter("other")}, []),
        ({"eks-08c968da-2d88-0096-4c82-1ee57490a6af": ("/", {})}, []),
    ],
)
def test_a_profile_that_is_deleted_with_a_group_or_another_class_is_never_chosen(
    marked: dict[str, tuple[str, Mapping[str, str]]], chosen: list[str]
) -> None:
    world = World()
    world.profiles.by_role["prod-nodes"] = [*marked]
    world.profiles.marked = marked
    resolver, found = PoolResolver(world.deps.sources, "prod"), settings(node_class())
    if chosen:
        assert resolver.instance_profiles(found) == (*chosen,)
        assert resolver.instance_profile(found) == chosen[0]
    else:
        with pytest.raises(NotLaunchable, match="Karpenter those of other node classes"):
            resolver.instance_profile(found)
