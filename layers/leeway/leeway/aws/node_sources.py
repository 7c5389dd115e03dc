"""What nodes are launched with, by boto3: subnets and security groups, AMIs and the SSM parameters
that name them, capacity reservations, EKS's clusters as nodes need them, instance profiles of IAM.

EKS's and IAM's answers rarely change: a warm function does not ask for them each minute."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from leeway.aws.ec2 import UNKNOWN_RESERVATION, tag_filters
from leeway.aws.errors import aws_errors, code_of
from leeway.bootstrap.node import UserDataError, described
from leeway.clock import Clock
from leeway.launch.belonging import Network, SecurityGroup, Subnet
from leeway.launch.images import Image
from leeway.launch.reservations import LINUX, CapacityReservation
from leeway.launch.resolve_pools import InstanceProfile, NodeCluster, NoWayToIam
from leeway.manifests.base import CapacityReservationTerm, SecurityGroupTerm, SubnetTerm
from leeway.manifests.node_class import AmiTerm
from leeway.parallel import in_parallel
from leeway.ports.aws import CloudRefused
from leeway.selection.offers.reservations import BLOCK, ReservedCapacity


class Ec2Networks:
    """The Networks Protocol; `client` makes boto3's EC2 client when it is first used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def subnets(self, terms: Sequence[SubnetTerm]) -> list[Subnet]:
        """List the subnets that match at least one of the terms."""
        ids = [one.id for one in terms if one.id]
        queries = [tag_filters(one.tags) for one in terms if one.tags]
        if ids:
            queries.append([{"Name": "subnet-id", "Values": ids}])
        with aws_errors():
            paginator = self._client().get_paginator("describe_subnets")
        found = {
            one["SubnetId"]: Subnet(
                one["SubnetId"],
                one["AvailabilityZone"],
                one["AvailableIpAddressCount"],
                one["VpcId"],
                _tags(one),
            )
            for query in queries
            for one in _described(paginator, "Subnets", query)
        }
        return [found[name] for name in sorted(found)]

    def security_groups(self, terms: Sequence[SecurityGroupTerm]) -> list[SecurityGroup]:
        """List the security groups that match at least one of the terms."""
        queries = [tag_filters(one.tags) for one in terms if one.tags]
        for name, values in (
            ("group-id", [one.id for one in terms if one.id]),
            ("group-name", [one.name for one in terms if one.name]),
        ):
            if values:
                queries.append([{"Name": name, "Values": values}])
        with aws_errors():
            paginator = self._client().get_paginator("describe_security_groups")
        found = {
            one["GroupId"]: SecurityGroup(one["GroupId"], _tags(one))
            for query in queries
            for one in _described(paginator, "SecurityGroups", query)
        }
        return [found[name] for name in sorted(found)]


def _tags(described: Mapping[str, Any]) -> dict[str, str]:
    return {one["Key"]: one.get("Value", "") for one in described.get("Tags", ())}


def _described(
    paginator: Any, content: str, filters: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    with aws_errors():
        found = [one for page in paginator.paginate(Filters=filters) for one in page[content]]
    yield from found


_PARAMETERS_IN_ONE_CALL = 10  # Source: SSM API reference, GetParameters


class AwsImages:
    """The Images Protocol; `ec2` and `ssm` make boto3's clients when they are first used."""

    def __init__(self, ec2: Callable[[], Any], ssm: Callable[[], Any]) -> None:
        self._ec2 = ec2
        self._ssm = ssm

    def parameters(self, names: Collection[str]) -> dict[str, str]:
        """Read parameters; those that do not exist are left out."""
        found: dict[str, str] = {}
        for some in batched(sorted(set(names)), _PARAMETERS_IN_ONE_CALL, strict=False):
            with aws_errors():
                answer = self._ssm().get_parameters(Names=list(some))
            found |= {one["Name"]: one["Value"] for one in answer["Parameters"]}
        return found

    def images(self, terms: Sequence[AmiTerm]) -> list[Image]:
        """List the AMIs that match at least one of the terms: by an id in any state, by other terms
        only available ones. EC2 leaves out the deprecated AMIs of other accounts unless they are
        requested, also those that a filter names by their ids. Source: EC2 API reference,
        DescribeImages."""
        named = self.parameters([one.ssm_parameter for one in terms if one.ssm_parameter])
        ids = sorted({*named.values(), *(one.id for one in terms if one.id)})
        queries = [_by_fields(one) for one in terms if one.name or one.tags]
        if ids:
            queries.append({"Filters": [{"Name": "image-id", "Values": ids}]})
        found = {image.id: image for query in queries for image in self._described(query)}
        return [found[name] for name in sorted(found)]

    def _described(self, query: Mapping[str, Any]) -> Iterator[Image]:
        with aws_errors():
            paginator = self._ec2().get_paginator("describe_images")
            pages = paginator.paginate(IncludeDeprecated=True, **query)
            described = [image for page in pages for image in page["Images"]]
        yield from map(_image, described)


def _by_fields(term: AmiTerm) -> dict[str, Any]:
    """A name without an owner means images of the account itself and of Amazon: anybody may publish
    an image with that name. Tags without an owner mean images of any account, because EC2 shows an
    account only its own tags. Source: Karpenter's AWS provider, `DescribeImageQueries`."""
    owners = [term.owner] if term.owner else ["self", "amazon"] if term.name else []
    name = [{"Name": "name", "Values": [term.name]}] if term.name else []
    available = {"Name": "state", "Values": ["available"]}
    filters = [*name, *tag_filters(term.tags), available]
    return {"Filters": filters, **({"Owners": owners} if owners else {})}


def _image(described: Mapping[str, Any]) -> Image:
    deprecated = described.get("DeprecationTime")
    return Image(
        id=described["ImageId"],
        name=described.get("Name", ""),
        architecture=described["Architecture"],
        created_at=_moment(described["CreationDate"]),
        root_device=described.get("RootDeviceName", ""),
        deprecated=deprecated is not None and _moment(deprecated) <= datetime.now(UTC),
        state=described.get("State", "available"),
    )


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


_ACTIVE = {"Name": "state", "Values": ["active"]}


class Ec2CapacityReservations:
    """The CapacityReservations Protocol; `client` makes boto3's EC2 client when it is first
    used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def matching(self, terms: Sequence[CapacityReservationTerm]) -> list[CapacityReservation]:
        """List the active ones that match at least one of the terms: one call for each id, and one
        for each other term. EC2 has no filter by id, and refuses a call with an unknown one."""
        found: dict[str, CapacityReservation] = {}
        for term in dict.fromkeys(map(_query, terms)):
            for item in self._described(dict(term)):
                one = _reservation(item)
                found[one.id] = one
        return [found[name] for name in sorted(found)]

    def _described(self, query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        parameters: dict[str, Any] = {"Filters": [_ACTIVE]}
        if name := query.get("id"):
            parameters["CapacityReservationIds"] = [name]
        else:
            parameters["Filters"] += tag_filters(dict(query["tags"]))
            for key, value in query["filters"]:
                parameters["Filters"].append({"Name": key, "Values": [value]})
        with aws_errors():
            pages = self._client().get_paginator("describe_capacity_reservations")
            try:
                for page in pages.paginate(**parameters):
                    yield from page.get("CapacityReservations", ())
            except ClientError as error:
                if code_of(error) != UNKNOWN_RESERVATION:
                    raise


def _query(term: CapacityReservationTerm) -> tuple[tuple[str, Any], ...]:
    """What is asked for a term, once for equal ones."""
    if term.id is not None:
        return (("id", term.id),)
    filters = {"owner-id": term.owner_id, "instance-match-criteria": term.instance_match_criteria}
    given = tuple((name, value) for name, value in filters.items() if value is not None)
    return (("tags", tuple(sorted(term.tags.items()))), ("filters", given))


def _reservation(described: Mapping[str, Any]) -> CapacityReservation:
    return CapacityReservation(
        capacity=ReservedCapacity(
            described["CapacityReservationId"],
            described.get("ReservationType", "default") == BLOCK,
            bool(described.get("Interruptible")),
        ),
        owner=described.get("OwnerId", ""),
        instance_type=described.get("InstanceType", ""),
        zone=described.get("AvailabilityZone", ""),
        free=described.get("AvailableInstanceCount", 0),
        total=described.get("TotalInstanceCount", 0),
        ends=described.get("EndDate"),
        platform=described.get("InstancePlatform", LINUX),
        fits=described.get("Tenancy", "default") == "default"
        and not described.get("PlacementGroupArn"),
        is_open=described.get("InstanceMatchCriteria") == "open",
        tags={one["Key"]: one.get("Value", "") for one in described.get("Tags") or ()},
    )


FOR = timedelta(minutes=5)
"""How long an answer counts."""


class Remembered[K: Hashable, V]:
    """Answers by their questions. Errors are not remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[K, tuple[datetime, V]] = {}

    def get(self, question: K, ask: Callable[[], V]) -> V:
        """Return the answer to a question; `ask` if there is none of the last five minutes."""
        now = self._clock.now()
        at, answer = self._answers.get(question, (None, None))
        if at is not None and answer is not None and timedelta(0) <= now - at < FOR:
            return answer
        answer = ask()
        self._answers[question] = (now, answer)
        return answer


_OF_NODES = {"EC2_LINUX", "EC2_WINDOWS"}
"""The types of access entries of nodes with a role of one's own. Source: EKS API,
CreateAccessEntry."""
_NO_ENTRY = {"ResourceNotFoundException", "InvalidRequestException"}
"""No such entry or cluster, or the cluster has no access entries, only its ConfigMap."""
_AT_ONCE = 8


class EksNodeClusters:
    """The NodeClusters Protocol; `client` makes boto3's EKS client when it is first used. `managed`
    are the clusters of the deployment."""

    def __init__(
        self, client: Callable[[], Any], clock: Clock, managed: Collection[str] = ()
    ) -> None:
        self._client = client
        self._managed = frozenset(managed)
        self._known: Remembered[tuple[str, str], bool] = Remembered(clock)

    def node_cluster(self, name: str) -> NodeCluster:
        """Read a cluster.

        Raises:
            CloudRefused: there is no such cluster, or nodes cannot join it yet.
        """
        with aws_errors():
            cluster = self._client().describe_cluster(name=name)["cluster"]
        network = cluster.get("resourcesVpcConfig") or {}
        groups = {network.get("clusterSecurityGroupId"), *(network.get("securityGroupIds") or ())}
        try:
            return NodeCluster(
                described(cluster),
                str(cluster.get("version", "")),
                str(cluster.get("arn", "")),
                Network(
                    vpc=network.get("vpcId") or "",
                    subnets=frozenset(network.get("subnetIds") or ()),
                    security_groups=frozenset(one for one in groups if one),
                ),
            )
        except UserDataError as error:
            raise CloudRefused(f"nodes cannot join cluster {name}: {error}") from error

    def joined_with(self, role: str, name: str) -> list[str]:
        """Return which clusters nodes with a role, by its ARN, can join by an access entry: of this
        cluster and the managed ones. It is read again after five minutes."""
        clusters = sorted({name, *self._managed})
        answers = in_parallel(partial(self._joins, role), clusters, _AT_ONCE)
        return [one for one, joins in zip(clusters, answers, strict=True) if joins]

    def _joins(self, role: str, name: str) -> bool:
        def ask() -> bool:
            with aws_errors():
                try:
                    answer = self._client().describe_access_entry(
                        clusterName=name, principalArn=role
                    )
                except ClientError as error:
                    if code_of(error) in _NO_ENTRY:
                        return False
                    raise
            return answer["accessEntry"].get("type") in _OF_NODES

        return self._known.get((name, role), ask)


class IamInstanceProfiles:
    """The InstanceProfiles Protocol; `client` makes boto3's IAM client when it is first used."""

    def __init__(self, client: Callable[[], Any], clock: Clock) -> None:
        self._client = client
        self._read: Remembered[str, InstanceProfile | NoWayToIam] = Remembered(clock)

    def profiles_of(self, role: str) -> list[InstanceProfile]:
        """List the instance profiles that have a role; none if there is no role."""
        with _iam():
            try:
                pages = self._client().get_paginator("list_instance_profiles_for_role")
                return [
                    _profile(one)
                    for page in pages.paginate(RoleName=role)
                    for one in page["InstanceProfiles"]
                ]
            except ClientError as error:
                if code_of(error) == "NoSuchEntity":
                    return []
                raise

    def profile(self, name: str) -> InstanceProfile | None:
        """Read an instance profile; None if it does not exist. That IAM cannot be reached is
        remembered, too: a connection attempt takes seconds."""

        def ask() -> InstanceProfile | NoWayToIam:
            try:
                with _iam():
                    answer = self._client().get_instance_profile(InstanceProfileName=name)
                    return _profile(answer["InstanceProfile"])
            except NoWayToIam as error:
                return error

        try:
            found = self._read.get(name, ask)
        except CloudRefused as error:
            if isinstance(error.__cause__, ClientError) and _is_missing(error.__cause__):
                return None
            raise
        if isinstance(found, NoWayToIam):
            raise found
        return found

    def tags_of(self, role: str) -> Mapping[str, str]:
        """Read the tags of a role; none if it does not exist, or if IAM cannot be reached."""
        try:
            with _iam():
                found = self._client().get_role(RoleName=role)["Role"]
        except NoWayToIam:
            return {}
        except CloudRefused as error:
            if isinstance(error.__cause__, ClientError) and _is_missing(error.__cause__):
                return {}
            raise
        return {one["Key"]: one["Value"] for one in found.get("Tags", ())}


def _profile(described: Mapping[str, Any]) -> InstanceProfile:
    roles = [one["Arn"] for one in described.get("Roles", ())]
    return InstanceProfile(
        described["InstanceProfileName"],
        roles[0] if roles else "",
        described.get("Path", "/"),
        {one["Key"]: one["Value"] for one in described.get("Tags", ())},
    )


def _is_missing(error: ClientError) -> bool:
    return code_of(error) == "NoSuchEntity"


@contextmanager
def _iam() -> Iterator[None]:
    with aws_errors():
        try:
            yield
        except (HTTPClientError, NoConnection) as error:
            raise NoWayToIam(f"{type(error).__name__}: {error}; {_NO_WAY}") from error


_NO_WAY = (
    "functions in a VPC reach IAM only through a NAT gateway, or in us-east-1 through the VPC "
    "endpoint com.amazonaws.iam: set spec.instanceProfile of the node class to a profile with the "
    "name of its role, and Leeway does not need IAM"
)
"""Source: IAM user guide, "Create a VPC endpoint for IAM"."""
