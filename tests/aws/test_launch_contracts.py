"""The ports of launches, each held to its contract: on the sandbox's AWS, and in memory."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.fleets import Ec2Fleets, Ec2LaunchTemplates
from leeway.aws.node_sources import AwsImages, Ec2Networks, EksNodeClusters, IamInstanceProfiles
from leeway.aws.table import DynamoTable
from leeway.bootstrap.node import ClusterDetails
from leeway.clock import SystemClock
from leeway.disruption.current_launches import CurrentLaunches
from leeway.disruption.drift import launch_drift_of
from leeway.instances.facts import INTENT_TAG, OWNER_TAG, POOL_TAG
from leeway.launch.belonging import Network, SecurityGroup, Subnet
from leeway.launch.fleet_errors import Cause, cause_of
from leeway.launch.fleets import (
    FleetAnswer,
    FleetInstance,
    FleetRequest,
    Fleets,
    Override,
    TemplateOverrides,
)
from leeway.launch.images import Image, ImageVariant
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.launch.node_settings import cluster_tags
from leeway.launch.resolve_pools import (
    Images,
    InstanceProfile,
    InstanceProfiles,
    Networks,
    NodeCluster,
    NodeClusters,
    NodeSources,
    NoWayToIam,
)
from leeway.launch.templates import LaunchTemplate, LaunchTemplates, OwnedLaunchTemplates
from leeway.manifests.base import SecurityGroupTerm, SubnetTerm
from leeway.manifests.node_class import AmiTerm
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.selection.offers.catalog import Catalog
from leeway.table import Table

from tests.aws.stored import TABLE
from tests.fakes.capacity_reservations import CapacityReservationsInMemory
from tests.fakes.fleets import FleetsInMemory, Shortage
from tests.fakes.images import ImagesInMemory
from tests.fakes.launch_templates import LaunchTemplatesInMemory
from tests.fakes.networks import NetworksInMemory
from tests.fakes.node_clusters import InstanceProfilesInMemory, NodeClustersInMemory, role_arn
from tests.fakes.table import TableInMemory
from tests.launch.conftest import catalog
from tests.launch.pools import node_class, pool
from tests.manifests.texts import manifests
from tests.sandbox.aws.fleet_calls import AL2023, image, profile, subnets
from tests.sandbox.aws.started import Sandbox

__all__ = ["catalog"]

_numbers = count(1)
ZONES = ("us-east-1a", "us-east-1b")
OF_KARPENTER = "contract_1234567890123456789"
KARPENTERS_PATH = "/karpenter/us-east-1/contract/uid/"
"""An instance profile as Karpenter creates it for a node class."""

FEW = 11
"""Free addresses of the small subnet: AWS keeps five of the 16 of a /28."""


@dataclass
class Embedded:
    """The sandbox's AWS."""

    aws: Sandbox
    in_zone: dict[str, str]
    small: str
    group: str
    ami: str
    vpc: str

    def __post_init__(self) -> None:
        client = partial(partial, self.aws.client)
        self.fleets: Fleets = Ec2Fleets(client("ec2"))
        self.templates: LaunchTemplates = Ec2LaunchTemplates(client("ec2"))
        self.networks: Networks = Ec2Networks(client("ec2"))
        self.images: Images = AwsImages(client("ec2"), client("ssm"))
        self.profiles: InstanceProfiles = IamInstanceProfiles(client("iam"), SystemClock())
        self.clusters: NodeClusters = EksNodeClusters(client("eks"), SystemClock())
        self.owned: OwnedLaunchTemplates = Ec2LaunchTemplates(client("ec2"))
        self.table: Table = DynamoTable(client("dynamodb"), TABLE)

    def lack(self, *shortages: Shortage) -> None:
        faults = [
            {
                "service": "ec2",
                "action": "Launch",
                "instance_type": one.instance_type,
                "zone": one.zone,
                "capacity_type": one.capacity_type,
                "error": one.code,
            }
            for one in shortages
        ]
        self.aws.control("PUT", "faults", {"faults": faults})

    def end(self, instance: str) -> None:
        self.aws.client("ec2").terminate_instances(InstanceIds=[instance])

    def lose(self) -> None:
        fault = {"service": "ec2", "action": "CreateFleet", "drop": True, "count": 1}
        self.aws.control("PUT", "faults", {"faults": [fault]})


@dataclass
class InMemory:
    """The fakes."""

    in_zone: dict[str, str] = field(
        default_factory=lambda: {zone: f"subnet-{zone[-1]}" for zone in ZONES}
    )
    small: str = "subnet-small"
    group: str = "sg-1"
    ami: str = "ami-1"
    vpc: str = "vpc-1"

    def __post_init__(self) -> None:
        templates = LaunchTemplatesInMemory()
        self.templates = templates
        self.fleets = FleetsInMemory(templates.existing.__contains__, free={self.small: FEW})
        known = {name: Subnet(name, zone, 4000, self.vpc) for zone, name in self.in_zone.items()}
        known[self.small] = Subnet(self.small, "us-east-1a", FEW, self.vpc)
        tagged = {name: {"discovery": "prod"} for name in self.in_zone.values()}
        tagged[self.group] = {"discovery": "prod", "leeway.sh/cluster/contract": ""}
        self.networks = NetworksInMemory(known, tagged, {self.group: "contract-nodes"})
        created = datetime(2026, 11, 1, tzinfo=UTC)
        named = Image(self.ami, "amazon-eks-node-al2023-x", "x86_64", created, "/dev/xvda")
        self.images = ImagesInMemory({AL2023: self.ami}, {self.ami: named})
        self.profiles = InstanceProfilesInMemory(
            {"contract-nodes": ["contract-nodes", OF_KARPENTER]},
            {"contract-nodes": {"leeway.sh/cluster/contract": ""}},
            marked={OF_KARPENTER: (KARPENTERS_PATH, {"karpenter.k8s.aws/ec2nodeclass": "default"})},
        )
        details = ClusterDetails("contract", "https://contract.example.com", "Q0E=", "10.0.0.0/16")
        arn = "arn:aws:eks:us-east-1:123456789012:cluster/contract"
        network = Network(self.vpc, frozenset(self.in_zone.values()))
        self.clusters = NodeClustersInMemory(
            {"contract": NodeCluster(details, "1.34", arn, network)},
            {"contract": {"contract-nodes"}},
        )
        self.owned = templates
        self.table = TableInMemory(SystemClock())

    def lack(self, *shortages: Shortage) -> None:
        self.fleets.shortages = list(shortages)

    def end(self, instance: str) -> None:
        self.fleets.ended.add(instance)

    def lose(self) -> None:
        self.fleets.lost = 1


type World = Embedded | InMemory


@pytest.fixture(scope="module")
def embedded(aws: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """The sandbox's AWS with subnets, a security group, a profile and a cluster. The small subnet,
    which may be full, would stop the launches of other modules: it is deleted after the last
    test."""
    ec2 = aws.client("ec2")
    in_zone = {zone: name for zone, name in subnets(aws).items() if zone in ZONES}
    (known,) = {
        one["VpcId"] for one in ec2.describe_subnets(SubnetIds=[*in_zone.values()])["Subnets"]
    }
    small = ec2.create_subnet(
        VpcId=known, CidrBlock="172.31.250.0/28", AvailabilityZone="us-east-1a"
    )["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="contract-nodes", Description="nodes", VpcId=known)[
        "GroupId"
    ]
    tags = [{"Key": "discovery", "Value": "prod"}]
    ec2.create_tags(Resources=[*in_zone.values(), group], Tags=tags)
    profile(aws, "contract-nodes")
    iam = aws.client("iam")
    iam.create_instance_profile(
        InstanceProfileName=OF_KARPENTER,
        Path=KARPENTERS_PATH,
        Tags=[{"Key": "karpenter.k8s.aws/ec2nodeclass", "Value": "default"}],
    )
    iam.add_role_to_instance_profile(InstanceProfileName=OF_KARPENTER, RoleName="contract-nodes")
    tag = {"Key": "leeway.sh/cluster/contract", "Value": ""}
    ec2.create_tags(Resources=[group], Tags=[tag])
    iam.tag_role(RoleName="contract-nodes", Tags=[tag])
    eks = aws.client("eks")
    eks.create_cluster(
        name="contract",
        version="1.34",
        roleArn="arn:aws:iam::123456789012:role/cluster",
        resourcesVpcConfig={"subnetIds": [*in_zone.values()]},
        kubernetesNetworkConfig={"serviceIpv4Cidr": "10.0.0.0/16"},
        accessConfig={"authenticationMode": "API"},
    )
    for role, kind in (("contract-nodes", "EC2_LINUX"), ("people", "STANDARD")):
        eks.create_access_entry(clusterName="contract", principalArn=role_arn(role), type=kind)
    authority = tmp_path_factory.mktemp("contract") / "ca.pem"
    authority.write_bytes(b"CA")
    link = {"endpoint": "https://contract.example.com", "ca_file": str(authority)}
    aws.control("PUT", "links", {"eks": {"contract": link}})
    yield Embedded(aws, in_zone, small, group, image(aws), known)
    filters = [{"Name": "subnet-id", "Values": [small]}]
    found = ec2.describe_instances(Filters=filters)["Reservations"]
    members = [one["InstanceId"] for each in found for one in each["Instances"]]
    if members:
        ec2.terminate_instances(InstanceIds=members)
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=members, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
    ec2.delete_subnet(SubnetId=small)


@pytest.fixture(params=["embedded", "in memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Both, one after the other."""
    if request.param == "in memory":
        yield InMemory()
    else:
        yield request.getfixturevalue("embedded")


def wanted_template(world: World, cluster: str = "contract") -> LaunchTemplate:
    """A launch template that Leeway needs for a cluster."""
    data = {
        "ImageId": world.ami,
        "IamInstanceProfile": {"Name": "contract-nodes"},
        "SecurityGroupIds": [world.group],
    }
    return LaunchTemplate(
        f"leeway-{cluster}-{next(_numbers)}", json.dumps(data), cluster_tags(cluster)
    )


def created(world: World, template: LaunchTemplate) -> str:
    """The id of a template after it was created."""
    return world.templates.ensure([template])[template.name]


def request_(
    world: World, intent: str, *types: str, amount: int = 1, spot: bool = True
) -> FleetRequest:
    """A request for instances of these types in two zones."""
    overrides = tuple(
        Override(kind, zone, subnet) for kind in types for zone, subnet in world.in_zone.items()
    )
    return FleetRequest(
        "spot" if spot else "on-demand",
        amount,
        (TemplateOverrides(created(world, wanted_template(world)), overrides),),
        {INTENT_TAG: intent, **cluster_tags("contract")},
    )


def new(name: str) -> str:
    return f"{name}-{next(_numbers)}"


def create(world: World, request: FleetRequest, token: str = "") -> FleetAnswer:
    return world.fleets.create(request, token or new("token"))


@pytest.mark.parametrize("spot", [True, False])
def test_a_fleet_launches_as_many_as_requested(world: World, spot: bool) -> None:
    intent = new("intent")
    request = request_(world, intent, "m5.large", "m6i.large", amount=3, spot=spot)
    answer = create(world, request)
    assert answer.errors == ()
    assert len({one.instance for one in answer.instances}) == 3
    for one in answer.instances:
        assert one.capacity_type == request.capacity_type
        assert (one.instance_type, one.zone) in {
            (override.instance_type, override.zone) for override in request.overrides
        }
    found = world.fleets.launched_by(intent)
    assert sorted(one.instance for one in found) == sorted(o.instance for o in answer.instances)
    assert {*found} == {*answer.instances}
    assert world.fleets.launched_by(new("intent")) == []


@pytest.mark.parametrize("spot", [True, False])
def test_the_lowest_priority_is_launched_first(world: World, spot: bool) -> None:
    plain = request_(world, new("intent"), "m5.large", "m5.24xlarge", spot=spot)
    (templates,) = plain.templates
    dear = templates.overrides[-1]
    overrides = tuple(
        replace(one, priority=0.25 if one == dear else 0.5) for one in templates.overrides
    )
    request = replace(plain, templates=(replace(templates, overrides=overrides),))
    assert request.prioritized
    (launched,) = create(world, request).instances
    assert (launched.instance_type, launched.zone) == (dear.instance_type, dear.zone)


def test_the_same_request_with_the_same_token_launches_once(world: World) -> None:
    intent = new("intent")
    request, token = request_(world, intent, "m5.large", amount=2), new("token")
    assert create(world, request, token) == create(world, request, token)
    assert len(world.fleets.launched_by(intent)) == 2


def test_another_request_with_the_same_token_is_refused(world: World) -> None:
    request, token = request_(world, new("intent"), "m5.large"), new("token")
    create(world, request, token)
    answer = create(world, replace(request, count=2), token)
    (error,) = answer.errors
    assert (answer.instances, error.code, error.override) == (
        (),
        "IdempotentParameterMismatch",
        None,
    )


def test_an_answer_that_is_lost_is_had_by_the_same_token(world: World) -> None:
    intent = new("intent")
    request, token = request_(world, intent, "m5.large"), new("token")
    world.lose()
    with pytest.raises(CloudUnavailable):
        create(world, request, token)
    (launched,) = world.fleets.launched_by(intent)
    assert create(world, request, token).instances == (launched,)
    assert len(world.fleets.launched_by(intent)) == 1


def test_a_zone_without_capacity_is_an_error_and_another_one_is_used(world: World) -> None:
    world.lack(Shortage(zone="us-east-1a"), Shortage(capacity_type="on-demand"))
    request = request_(world, new("intent"), "m5.large", amount=2)
    answer = create(world, request)
    assert [one.zone for one in answer.instances] == ["us-east-1b"] * 2
    for error in answer.errors:
        assert error.code == "InsufficientInstanceCapacity"
        assert error.override in request.overrides


def test_without_any_capacity_each_override_has_an_error(world: World) -> None:
    world.lack(Shortage())
    request = request_(world, new("intent"), "m5.large", "m6i.large")
    answer = create(world, request)
    assert answer.instances == ()
    assert {error.override for error in answer.errors} == {*request.overrides}
    assert {cause_of(error.code) for error in answer.errors} == {Cause.CAPACITY}


def test_a_subnet_with_too_few_addresses_launches_as_many_as_it_has(world: World) -> None:
    request = request_(world, new("intent"), "m5.large", amount=FEW + 3)
    override = Override("m5.large", "us-east-1a", world.small)
    small = replace(request.templates[0], overrides=(override,))
    answer = create(world, replace(request, templates=(small,)))
    assert len(answer.instances) == FEW
    (error,) = answer.errors
    assert cause_of(error.code) is Cause.SUBNET
    assert error.override == override


def test_a_template_that_does_not_exist_is_an_error_of_the_whole_request(world: World) -> None:
    request = request_(world, new("intent"), "m5.large")
    missing = replace(request.templates[0], template="lt-0123456789abcdef0")
    answer = create(world, replace(request, templates=(missing,)))
    (error,) = answer.errors
    assert answer.instances == ()
    assert error.override is None
    assert cause_of(error.code) is Cause.TEMPLATE


def term(**fields: Any) -> SubnetTerm:
    return SubnetTerm.model_validate(fields)


def group_term(**fields: Any) -> SecurityGroupTerm:
    return SecurityGroupTerm.model_validate(fields)


def test_subnets_are_found_by_id_and_by_tags(world: World) -> None:
    tagged = sorted(world.in_zone.values())
    one = tagged[0]
    cases = [
        ([term(tags={"discovery": "prod"})], tagged),
        ([term(tags={"discovery": "*"})], tagged),
        ([term(tags={"discovery": "other"})], []),
        ([term(tags={"discovery": "prod", "more": "x"})], []),
        ([term(id=one)], [one]),
        ([term(id="subnet-0123456789abcdef0")], []),
        ([term(id=world.small), term(tags={"discovery": "prod"})], sorted([*tagged, world.small])),
    ]
    for terms, expected in cases:
        assert [found.id for found in world.networks.subnets(terms)] == expected
    by_zone = {found.zone for found in world.networks.subnets(cases[0][0])}
    assert by_zone == {*world.in_zone}
    for found in world.networks.subnets(cases[0][0]):
        assert found.free > 0
        assert found.vpc == world.vpc
        assert found.tags.get("discovery") == "prod"


def test_security_groups_are_found_by_id_name_and_tags(world: World) -> None:
    cases = [
        ([group_term(tags={"discovery": "*"})], [world.group]),
        ([group_term(id=world.group), group_term(name="contract-nodes")], [world.group]),
        ([group_term(name="never-was")], []),
        ([group_term(id="sg-0123456789abcdef0")], []),
    ]
    for terms, expected in cases:
        assert [found.id for found in world.networks.security_groups(terms)] == expected
    assert world.networks.security_groups(cases[0][0]) == [
        SecurityGroup(world.group, {"discovery": "prod", "leeway.sh/cluster/contract": ""})
    ]


def test_parameters_that_do_not_exist_are_left_out(world: World) -> None:
    names = [AL2023, *(f"/aws/service/eks/never-was-{n}" for n in range(12))]
    assert world.images.parameters(names) == {AL2023: world.ami}
    assert world.images.parameters([]) == {}


def ami_term(**fields: Any) -> AmiTerm:
    return AmiTerm.model_validate(fields)


def test_images_are_found_by_id_parameter_and_name(world: World) -> None:
    for found in (
        world.images.images([ami_term(id=world.ami)]),
        world.images.images([ami_term(ssmParameter=AL2023)]),
    ):
        (only,) = found
        assert (only.id, only.architecture) == (world.ami, "x86_64")
        assert only.root_device == "/dev/xvda"
        assert not only.deprecated
    named = world.images.images([ami_term(name="amazon-eks-node-al2023-*")])
    assert world.ami in {one.id for one in named}
    for nothing in (ami_term(name="never-was-*"), ami_term(id="ami-0123456789abcdef0")):
        assert world.images.images([nothing]) == []


OLD = "ami-12c6146b"
"""A deprecated AMI of Amazon."""


def test_a_deprecated_image_of_another_account_is_found_by_each_kind_of_term(
    embedded: Embedded,
) -> None:
    ec2, ssm = embedded.aws.client("ec2"), embedded.aws.client("ssm")
    named = [{"Name": "image-id", "Values": [OLD]}]
    assert ec2.describe_images(Filters=named)["Images"] == [], "EC2 leaves it out"
    ec2.create_tags(Resources=[OLD], Tags=[{"Key": "golden", "Value": "eks"}])
    ssm.put_parameter(Name="/contract/golden", Value=OLD, Type="String")
    name = ec2.describe_images(ImageIds=[OLD])["Images"][0]["Name"]
    for term in ({"id": OLD}, {"name": name}, {"ssmParameter": "/contract/golden"}):
        (found,) = embedded.images.images([ami_term(**term)])
        assert (found.id, found.deprecated) == (OLD, True)
    assert [one.id for one in embedded.images.images([ami_term(tags={"golden": "eks"})])] == [OLD]


@pytest.mark.parametrize(
    ("term", "owners"),
    [
        ({"tags": {"golden": "eks"}}, None),
        ({"name": "golden-*"}, ["self", "amazon"]),
        ({"name": "golden-*", "owner": "123456789012"}, ["123456789012"]),
        ({"tags": {"golden": "eks"}, "owner": "self"}, ["self"]),
    ],
)
def test_only_a_name_without_an_owner_means_images_of_the_account_and_of_amazon(
    aws: Sandbox, term: dict[str, Any], owners: list[str] | None
) -> None:
    requested: list[dict[str, Any]] = []

    def record(params: dict[str, Any], **_: Any) -> None:
        requested.append(params)

    ec2 = aws.client("ec2")
    ec2.meta.events.register("provide-client-params.ec2.DescribeImages", record)
    AwsImages(lambda: ec2, partial(aws.client, "ssm")).images([ami_term(**term)])
    ec2.meta.events.unregister("provide-client-params.ec2.DescribeImages", record)
    assert [one.get("Owners") for one in requested] == [owners]


def test_profiles_are_found_by_their_role(world: World) -> None:
    own = InstanceProfile("contract-nodes", role_arn("contract-nodes"))
    found = world.profiles.profiles_of("contract-nodes")
    assert sorted(one.name for one in found) == ["contract-nodes", OF_KARPENTER]
    (other,) = [one for one in found if one != own]
    assert (other.path, other.role) == (KARPENTERS_PATH, own.role)
    read = world.profiles.profile(OF_KARPENTER)
    assert read == other
    assert read.tags == {"karpenter.k8s.aws/ec2nodeclass": "default"}
    assert world.profiles.profiles_of("never-was") == []
    assert world.profiles.profile("contract-nodes") == own
    assert world.profiles.profile("never-was") is None


def test_the_tags_of_a_role_are_read_by_its_name(world: World) -> None:
    assert world.profiles.tags_of("contract-nodes") == {"leeway.sh/cluster/contract": ""}
    assert world.profiles.tags_of("never-was") == {}


def test_a_node_joins_by_an_access_entry_of_its_role(world: World) -> None:
    joined_with = world.clusters.joined_with
    assert joined_with(role_arn("contract-nodes"), "contract") == ["contract"]
    assert joined_with(role_arn("people"), "contract") == [], "an entry of another type"
    assert joined_with(role_arn("never-was"), "contract") == []
    assert joined_with(role_arn("contract-nodes"), "never-was") in ([], ["contract"])


def test_a_role_of_two_managed_clusters_can_join_both(embedded: Embedded) -> None:
    eks = embedded.aws.client("eks")
    for name, mode in (("second", "API"), ("by-config-map", "CONFIG_MAP")):
        eks.create_cluster(
            name=name,
            roleArn=role_arn("cluster"),
            resourcesVpcConfig={"subnetIds": []},
            accessConfig={"authenticationMode": mode},
        )
    shared = role_arn("contract-nodes")
    eks.create_access_entry(clusterName="second", principalArn=shared, type="EC2_WINDOWS")
    managed = ("contract", "second", "by-config-map", "deleted")
    clusters = EksNodeClusters(partial(embedded.aws.client, "eks"), SystemClock(), managed)
    assert clusters.joined_with(shared, "contract") == ["contract", "second"]


def test_an_iam_that_cannot_be_reached_is_an_error_that_says_what_to_do() -> None:
    iam = boto3.client(
        "iam",
        endpoint_url="http://127.0.0.1:1",
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=Config(retries={"total_max_attempts": 1}),
    )
    profiles = IamInstanceProfiles(lambda: iam, SystemClock())
    with pytest.raises(NoWayToIam, match=r"set spec\.instanceProfile of the node class"):
        profiles.profiles_of("nodes")
    with pytest.raises(NoWayToIam):
        profiles.profile("nodes")
    assert profiles.tags_of("nodes") == {}


def test_a_cluster_is_read_as_nodes_need_it(world: World) -> None:
    found = world.clusters.node_cluster("contract")
    assert (found.version, found.details.name) == ("1.34", "contract")
    assert found.details.service_cidr == "10.0.0.0/16"
    assert found.details.endpoint == "https://contract.example.com"
    assert found.arn == "arn:aws:eks:us-east-1:123456789012:cluster/contract"
    assert found.network == Network(world.vpc, frozenset(world.in_zone.values()))
    with pytest.raises(CloudRefused, match="never-was"):
        world.clusters.node_cluster("never-was")


def intent_of(world: World, cluster: str, created: datetime) -> LaunchIntent:
    return LaunchIntent(
        id=new("intent"),
        cluster=cluster,
        pool="web",
        token="t",
        created_at=created,
        request=request_(world, "i", "m5.large"),
    )


def test_intents_are_read_as_they_were_written_the_oldest_first(world: World) -> None:
    cluster, now = new("cluster"), datetime.now(UTC)
    assert world.table.list(INTENT, cluster=cluster) == ()
    younger = intent_of(world, cluster, now)
    older = intent_of(world, cluster, now - timedelta(minutes=1))
    for one in (younger, older, intent_of(world, new("cluster"), now)):
        world.table.put(INTENT, one)
    assert world.table.list(INTENT, cluster=cluster) == (older, younger)
    answered = older.answered([FleetInstance("i-1", "m5.large", "us-east-1a", "spot")])
    world.table.put(INTENT, answered)
    assert world.table.list(INTENT, cluster=cluster) == (answered, younger)
    past = intent_of(world, cluster, now - timedelta(minutes=61))
    world.table.put(INTENT, past)
    assert past not in world.table.list(INTENT, cluster=cluster), "it is kept for an hour"


def test_a_template_is_created_once_with_the_tags_of_its_cluster(embedded: Embedded) -> None:
    wanted = wanted_template(embedded)
    made = created(embedded, wanted)
    assert created(embedded, wanted) == made
    found = embedded.aws.client("ec2").describe_launch_templates(LaunchTemplateIds=[made])
    (only,) = found["LaunchTemplates"]
    assert only["LatestVersionNumber"] == 1
    assert only["LaunchTemplateName"].startswith(wanted.name)
    assert {tag["Key"]: tag["Value"] for tag in only["Tags"]} == wanted.tags


def test_a_template_is_not_created_again_if_the_creation_of_another_one_fails(
    embedded: Embedded,
) -> None:
    cluster = new("throttled")
    wanted = [wanted_template(embedded, cluster) for _ in range(2)]
    fault = {"service": "ec2", "action": "CreateLaunchTemplate", "count": 1}
    throttled = {**fault, "error": "RequestLimitExceeded"}
    embedded.aws.control("PUT", "faults", {"faults": [throttled]})
    with pytest.raises(CloudUnavailable):
        embedded.templates.ensure(wanted)
    found = embedded.templates.ensure(wanted)
    assert sorted(one.id for one in embedded.owned.owned_by(cluster)) == sorted(found.values())


def test_a_template_that_somebody_else_created_is_not_used(embedded: Embedded) -> None:
    """With the name and the tags that Leeway would give it, it runs another program as root."""
    wanted, ec2 = wanted_template(embedded), embedded.aws.client("ec2")
    program = base64.b64encode(b"#!/bin/sh\nsteal").decode()
    tags = [{"Key": key, "Value": value} for key, value in wanted.tags.items()]
    foreign = ec2.create_launch_template(
        LaunchTemplateName=wanted.name,
        LaunchTemplateData={**json.loads(wanted.data), "UserData": program},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )["LaunchTemplate"]["LaunchTemplateId"]
    made = created(embedded, wanted)
    assert made != foreign
    overrides = (Override("m5.large", "us-east-1a", embedded.in_zone["us-east-1a"]),)
    request = FleetRequest("on-demand", 1, (TemplateOverrides(made, overrides),), {})
    (launched,) = create(embedded, request).instances
    shown = ec2.describe_instance_attribute(InstanceId=launched.instance, Attribute="userData")
    assert not shown["UserData"].get("Value")


def test_each_process_creates_templates_of_its_own(embedded: Embedded) -> None:
    wanted = wanted_template(embedded)
    other = Ec2LaunchTemplates(partial(embedded.aws.client, "ec2"))
    assert other.ensure([wanted]) != embedded.templates.ensure([wanted])


def test_a_launched_instance_and_its_volumes_have_the_tags_of_the_request(
    embedded: Embedded,
) -> None:
    request = request_(embedded, new("intent"), "m5.large")
    (launched,) = create(embedded, request).instances
    ec2 = embedded.aws.client("ec2")
    answer = ec2.describe_instances(InstanceIds=[launched.instance])
    shown = answer["Reservations"][0]["Instances"][0]
    volumes = [one["Ebs"]["VolumeId"] for one in shown["BlockDeviceMappings"]]
    assert volumes
    described = ec2.describe_volumes(VolumeIds=volumes)["Volumes"]
    for tagged in (shown, *described):
        tags = {tag["Key"]: tag["Value"] for tag in tagged["Tags"]}
        assert request.tags.items() <= tags.items()


def test_instances_are_described_together_and_unknown_ones_are_left_out(
    embedded: Embedded,
) -> None:
    request = request_(embedded, new("intent"), "m5.large", amount=2)
    launched = [one.instance for one in create(embedded, request).instances]
    described = Ec2Instances(partial(embedded.aws.client, "ec2"))
    found = described.describe_all([*launched, "i-0badbadbadbadbad0"])
    assert found == {name: described.describe(name) for name in launched}
    assert len(found) == 2


def test_owned_templates_are_listed_by_their_tags_and_deleted(world: World) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    ours, cluster = wanted_template(world), new("another")
    theirs = wanted_template(world, cluster)
    foreign = replace(ours, name=new("foreign"), tags={"leeway.sh/owner": "leeway"})
    ids = world.templates.ensure([ours, theirs, foreign])
    (found,) = world.owned.owned_by(cluster)
    assert found.id == ids[theirs.name]
    assert found.name.startswith(theirs.name)
    assert before < found.created_at < datetime.now(UTC) + timedelta(seconds=2)
    assert ids[ours.name] in {one.id for one in world.owned.owned_by("contract")}
    world.owned.delete_template(found.id)
    world.owned.delete_template(found.id)
    assert world.owned.owned_by(cluster) == []


def test_a_template_that_was_deleted_is_created_again_after_it_is_doubted(world: World) -> None:
    cluster = new("forgotten")
    wanted = wanted_template(world, cluster)
    made = created(world, wanted)
    world.templates.doubt([made])
    assert created(world, wanted) == made, "a template that exists is not created again"
    world.owned.delete_template(made)
    assert created(world, wanted) == made, "templates of its own are not read again"
    world.templates.doubt([made])
    again = created(world, wanted)
    assert again != made
    assert [one.id for one in world.owned.owned_by(cluster)] == [again]


def test_of_some_instances_those_that_start_or_run_are_alive(world: World) -> None:
    (launched,) = create(world, request_(world, new("intent"), "m5.large")).instances
    forgotten = "i-0bbbbbbbbbbbbbbbb"
    assert world.fleets.alive([launched.instance, forgotten]) == {launched.instance}
    world.end(launched.instance)
    assert world.fleets.alive([launched.instance, forgotten]) == frozenset()
    assert world.fleets.alive([]) == frozenset()


def test_a_launched_instance_drifts_by_what_ec2_says_of_it(
    embedded: Embedded, catalog: Catalog
) -> None:
    request = request_(embedded, new("intent"), "m5.large")
    tagged = replace(request, tags={**request.tags, OWNER_TAG: "leeway", POOL_TAG: "web"})
    (launched,) = create(embedded, tagged).instances
    found = Ec2Instances(partial(embedded.aws.client, "ec2")).describe(launched.instance)
    assert found is not None
    sources = NodeSources(
        embedded.networks,
        embedded.images,
        embedded.profiles,
        embedded.clusters,
        CapacityReservationsInMemory(),
    )

    def drift(**node_class_fields: Any) -> list[str]:
        launches = CurrentLaunches(sources)
        written = manifests(pool(), node_class(**node_class_fields))
        own = {launched.instance: found}
        read = launches.read("contract", written, catalog, own, datetime.now(UTC))
        assert read.problems == ()
        drifts = launch_drift_of(found, ImageVariant("x86_64"), read.of_pool["web"])
        return [" ".join(one.split()[:2]) for one in drifts]

    ec2 = embedded.aws.client("ec2")
    named = [{"Name": "group-name", "Values": ["default"]}]
    default = ec2.describe_security_groups(Filters=named)["SecurityGroups"][0]["GroupId"]
    own_tag = {"Key": "leeway.sh/cluster/contract", "Value": ""}
    ec2.create_tags(Resources=[default], Tags=[own_tag])
    others = ec2.describe_images(Owners=["amazon"])["Images"]
    other = next(
        one["ImageId"]
        for one in others
        if one["ImageId"] != embedded.ami and one["Architecture"] == "x86_64"
    )
    assert drift() == []
    assert drift(amiSelectorTerms=[{"id": other}]) == ["It runs"]
    assert drift(subnetSelectorTerms=[{"id": embedded.small}]) == ["Its subnet"]
    assert drift(securityGroupSelectorTerms=[{"name": "default"}]) == ["It has"]
