"""EKS's clusters and access entries, by boto3."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.reasons import clause

from leeway_cli.cluster_setup.ports import EksCluster
from leeway_cli.cluster_setup.reachability import Endpoint
from leeway_cli.cluster_setup.settings import STANDARD, AccessEntry, Mode
from leeway_cli.errors import CannotBeDoneError

POLL_SECONDS = 2.0
"""Between two reads of an update. EKS needs a minute or two for it."""


class Eks:
    """The Clusters Protocol, and changes; `client` makes boto3's EKS client. Every method raises
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
        return EksCluster(name, status, version, Mode(mode), endpoint)

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

    def create_entry(self, cluster: str, entry: AccessEntry) -> None:
        """Create an access entry."""
        groups = {"kubernetesGroups": sorted(entry.groups)} if entry.type == STANDARD else {}
        self._client().create_access_entry(
            clusterName=cluster, principalArn=entry.principal, type=entry.type, **groups
        )

    def update_entry(self, cluster: str, entry: AccessEntry) -> None:
        """Replace the groups of an access entry."""
        self._client().update_access_entry(
            clusterName=cluster,
            principalArn=entry.principal,
            kubernetesGroups=sorted(entry.groups),
        )

    def delete_entry(self, cluster: str, entry: AccessEntry) -> None:
        """Delete an access entry."""
        self._client().delete_access_entry(clusterName=cluster, principalArn=entry.principal)

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
