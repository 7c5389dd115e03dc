"""Who may call the API server: authentication mode and access entries of a cluster in EKS."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.reasons import clause

from leeway_cli.adopt.reachability import Endpoint
from leeway_cli.adopt.settings.setting import AwsCall, Kind, listed
from leeway_cli.errors import CannotBeDoneError

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services

POLL_SECONDS = 2.0
"""Between two reads of an update. EKS needs a minute or two for it."""
STANDARD = "STANDARD"
NODE_TYPES = frozenset({"EC2_LINUX", "EC2_WINDOWS"})
"""Types of access entries with which self-managed nodes join. Source: EKS API,
`CreateAccessEntry`."""


class Mode(StrEnum):
    """How a cluster authenticates IAM principals. Source: EKS API, `AccessConfigResponse`."""

    CONFIG_MAP = "CONFIG_MAP"
    BOTH = "API_AND_CONFIG_MAP"
    API = "API"


@dataclass(frozen=True, slots=True)
class Authentication(Kind):
    """The authentication mode of the cluster. EKS never switches back from a newer mode."""

    mode: Mode
    setting: Literal["authentication"] = "authentication"

    @property
    def title(self) -> str:
        return f"authentication mode {self.mode}"

    @property
    def stays(self) -> str | None:
        return (
            f"The authentication mode of the cluster stays {self.mode}: EKS cannot switch it back."
        )

    def over(self, now: Self | None) -> Self:
        """Both newer modes have access entries."""
        return now if now is not None and now.mode is not Mode.CONFIG_MAP else self

    def reason(self, cluster: str, now: Self | None) -> str:
        return (
            f"Cluster {cluster} has the authentication mode CONFIG_MAP, which has no access "
            "entries."
        )

    def consent(self, cluster: str, now: Self | None, current: Mapping[str, Any]) -> str | None:
        return (
            f"The authentication mode of cluster {cluster} changes to {self.mode}. EKS cannot "
            "switch it back."
        )

    def call(self, cluster: str, now: Self | None) -> str:
        return f"eks:UpdateClusterConfig name={cluster} authenticationMode={self.mode}"

    def write(self, services: "Services", now: Self | None) -> None:
        services.eks.switch_mode(services.cluster, self.mode)


@dataclass(frozen=True, slots=True)
class AccessEntry(Kind):
    """The access entry of an IAM role. `type` is one of EKS's types; the groups of an entry that is
    not STANDARD are EKS's own, and empty here."""

    principal: str
    groups: frozenset[str] = frozenset()
    type: str = STANDARD
    setting: Literal["access-entry"] = "access-entry"

    @property
    def key(self) -> str:
        return f"{self.setting}/{self.principal}"

    @property
    def title(self) -> str:
        return f"access entry of {self.principal}"

    @property
    def is_of_nodes(self) -> bool:
        """Whether nodes can join with this entry."""
        return self.type in NODE_TYPES

    def over(self, now: Self | None) -> Self:
        """The groups of an existing entry stay, and an existing entry of nodes stays whole."""
        if now is None:
            return self
        if self.type != STANDARD:
            return now if now.is_of_nodes else self
        return type(self)(self.principal, self.groups | now.groups, now.type)

    def blocker(self, cluster: str, now: Self) -> str | None:
        if now.type == self.type == STANDARD:
            return None
        expected = self.type if now.type == STANDARD else STANDARD
        return (
            f"The access entry of {now.principal} has the type {now.type}, which EKS cannot change "
            f"to {expected}. Delete it with `aws eks delete-access-entry --cluster-name {cluster} "
            f"--principal-arn {now.principal}`."
        )

    def reason(self, cluster: str, now: Self | None) -> str:
        if now is None:
            return f"Cluster {cluster} has no access entry for {self.principal}."
        return (
            f"The access entry of {self.principal} does not have the group "
            f"{listed(self.groups - now.groups)}."
        )

    def consent(self, cluster: str, now: Self | None, current: Mapping[str, Any]) -> str | None:
        if now is None:
            return None
        return (
            f"The access entry of {now.principal} exists with the groups {listed(now.groups)}; it "
            f"also gets {listed(self.groups - now.groups)}."
        )

    def call(self, cluster: str, now: Self | None) -> AwsCall:
        operation = "CreateAccessEntry" if now is None else "UpdateAccessEntry"
        given: dict[str, Any] = {"type": self.type} if now is None else {}
        if self.type == STANDARD:
            given["kubernetesGroups"] = sorted(self.groups)
        return AwsCall("eks", operation, {**self._name(cluster), **given})

    def removal(self, cluster: str) -> AwsCall:
        return AwsCall("eks", "DeleteAccessEntry", self._name(cluster))

    def _name(self, cluster: str) -> dict[str, str]:
        return {"clusterName": cluster, "principalArn": self.principal}


def read_access(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read the settings in EKS among those that are asked for."""
    asked = [*asked]
    principals = [one.principal for one in asked if isinstance(one, AccessEntry)]
    if not principals and not any(isinstance(one, Authentication) for one in asked):
        return
    mode = services.eks.cluster(services.cluster).mode
    yield Authentication(mode)
    if mode is not Mode.CONFIG_MAP:
        yield from services.eks.entries(services.cluster, principals)


@dataclass(frozen=True, slots=True)
class EksCluster:
    """A cluster by DescribeCluster. `status` is EKS's, `version` that of Kubernetes, `arn` empty
    if it is not known."""

    name: str
    status: str
    version: str
    mode: Mode
    endpoint: Endpoint
    arn: str = ""


class Eks:
    """EKS's clusters and access entries; `client` makes boto3's EKS client. Every method raises
    botocore's errors."""

    def __init__(self, client: Callable[[], Any], sleep: Callable[[float], None] = time.sleep):
        self._client = client
        self._sleep = sleep

    def cluster(self, name: str) -> EksCluster:
        """Read a cluster by DescribeCluster.

        Raises:
            CannotBeDoneError: the region has no such cluster.
        """
        client = self._client()
        try:
            found = client.describe_cluster(name=name)["cluster"]
        except ClientError as error:
            if code_of(error) == "ResourceNotFoundException":
                raise CannotBeDoneError(
                    f"Region {client.meta.region_name} has no EKS cluster {name}. Check the name, "
                    "AWS_REGION and the account."
                ) from error
            raise
        config = found.get("resourcesVpcConfig") or {}
        endpoint = Endpoint(
            cluster=name,
            url=found.get("endpoint") or "",
            vpc=config.get("vpcId") or "",
            public=bool(config.get("endpointPublicAccess", True)),
            private=bool(config.get("endpointPrivateAccess", False)),
            cidrs=tuple(config.get("publicAccessCidrs") or ()),
        )
        mode = (found.get("accessConfig") or {}).get("authenticationMode", Mode.CONFIG_MAP)
        status, version = found.get("status", ""), found.get("version", "")
        return EksCluster(name, status, version, Mode(mode), endpoint, found.get("arn", ""))

    def entries(self, cluster: str, principals: Iterable[str]) -> list[AccessEntry]:
        """Read the access entries of these roles, by DescribeAccessEntry; a role without an entry
        is left out. The cluster's mode must have access entries."""
        found = (self._entry(cluster, principal) for principal in principals)
        return [entry for entry in found if entry is not None]

    def _entry(self, cluster: str, principal: str) -> AccessEntry | None:
        try:
            found = self._client().describe_access_entry(
                clusterName=cluster, principalArn=principal
            )["accessEntry"]
        except ClientError as error:
            if code_of(error) == "ResourceNotFoundException":
                return None
            raise
        kind = found.get("type", STANDARD)
        groups = found.get("kubernetesGroups", ()) if kind == STANDARD else ()
        return AccessEntry(found["principalArn"], frozenset(groups), kind)

    def switch_mode(self, cluster: str, mode: Mode) -> None:
        """Change the authentication mode and wait until EKS has done it.

        Raises:
            CannotBeDoneError: the update failed.
        """
        config = {"authenticationMode": mode.value}
        client = self._client()
        update = client.update_cluster_config(name=cluster, accessConfig=config)["update"]
        while True:
            update = client.describe_update(name=cluster, updateId=update["id"])["update"]
            if update["status"] == "Successful":
                return
            if update["status"] in {"Failed", "Cancelled"}:
                errors = [one.get("errorMessage", "") for one in update.get("errors", ())]
                problem = clause(" ".join(errors) or update["status"])
                raise CannotBeDoneError(
                    f"EKS did not change the authentication mode of cluster {cluster}: {problem}."
                )
            self._sleep(POLL_SECONDS)
