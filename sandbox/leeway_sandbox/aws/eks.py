"""EKS: access entries, and the endpoint and CA of the sandbox's clusters in DescribeCluster.

moto has no access entries, and its clusters have invented endpoints. The sandbox's Kubernetes
verifies a token by its access key. So it needs, for each access key, the user and the groups that
the access entry of the key's role gives at that time.
"""

import base64
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.eks.models import Cluster, eks_backends
from moto.eks.responses import EKSResponse
from pydantic import BaseModel, ConfigDict

from leeway_sandbox.aws.cloud import ACCOUNT, Cloud

CONFIG_MAP = "CONFIG_MAP"
MODES = (CONFIG_MAP, "API_AND_CONFIG_MAP", "API")
"""EKS switches only to a later mode."""
STANDARD = "STANDARD"
NODE_TYPES = {"EC2_LINUX", "EC2_WINDOWS"}
RESERVED = ("system:", "eks:", "aws:", "amazon:", "iam:")
"""Prefixes of groups that EKS refuses in an entry."""


class Refused(ServiceException):
    """An error of EKS."""

    def __init__(self, code: str, message: str, status: int = HTTPStatus.BAD_REQUEST):
        super().__init__(code, message)
        self.status = status


class Eks(EKSResponse):
    """moto's EKS with access entries and authentication modes."""

    def __init__(self) -> None:
        super().__init__()
        self.automated_parameter_parsing = True

    def create_cluster(self) -> ActionResult:
        """Create a cluster with its authentication mode and the defaults of its endpoint."""
        answer = super().create_cluster()
        cluster = self._cluster("name")
        config = self._get_param("accessConfig") or {}
        set_mode(cluster, config.get("authenticationMode", CONFIG_MAP))
        complete_endpoint(cluster, self.region)
        return answer

    def update_cluster_config(self) -> ActionResult:
        """Change the authentication mode; moto changes the rest of the configuration."""
        config = self._get_param("accessConfig")
        if not config:
            answer = super().update_cluster_config()
            complete_endpoint(self._cluster("name"), self.region)
            return ActionResult({"update": _update("EndpointAccessUpdate")}) if answer else answer
        cluster, wanted = self._cluster("name"), config["authenticationMode"]
        now = mode_of(cluster)
        if MODES.index(wanted) <= MODES.index(now):
            raise Refused(
                "InvalidParameterException",
                f"Unsupported authentication mode update from {now} to {wanted}",
            )
        set_mode(cluster, wanted)
        return ActionResult({"update": _update("AccessConfigUpdate")})

    def describe_update(self) -> ActionResult:
        """Return that an update succeeded: the sandbox makes updates at once."""
        self._cluster("name")
        return ActionResult({"update": _update("AccessConfigUpdate", self._get_param("updateId"))})

    def list_access_entries(self) -> ActionResult:
        """List the principals of a cluster's entries."""
        return ActionResult({"accessEntries": sorted(self._entries())})

    def describe_access_entry(self) -> ActionResult:
        """Return one entry."""
        return ActionResult({"accessEntry": self._entry()})

    def create_access_entry(self) -> ActionResult:
        """Create an entry; refuse a second one for a principal."""
        principal = self._get_param("principalArn")
        kind, groups = self._get_param("type") or STANDARD, self._get_param("kubernetesGroups")
        if principal in self._entries():
            raise Refused(
                "ResourceInUseException",
                "The specified access entry resource is already in use on this cluster.",
                HTTPStatus.CONFLICT,
            )
        if kind != STANDARD and groups:
            raise Refused(
                "InvalidParameterException",
                f"The kubernetesGroups cannot be specified for access entry type {kind}.",
            )
        _check_groups(groups)
        cluster, username = self._cluster(), self._get_param("username")
        entry = create_entry(cluster, principal, kind, groups or [], username)
        entry["tags"] = self._get_param("tags") or {}
        self._changed(cluster)
        return ActionResult({"accessEntry": entry})

    def update_access_entry(self) -> ActionResult:
        """Replace the groups of an entry."""
        entry, groups = self._entry(), self._get_param("kubernetesGroups")
        if groups is not None:
            _check_groups(groups)
            entry["kubernetesGroups"] = groups
        entry["modifiedAt"] = utcnow()
        self._changed(self._cluster())
        return ActionResult({"accessEntry": entry})

    def delete_access_entry(self) -> ActionResult:
        """Delete an entry."""
        del self._entries()[self._entry()["principalArn"]]
        self._changed(self._cluster())
        return EmptyResult()

    def _changed(self, cluster: Cluster) -> None:
        for observer in _observers:
            observer(cluster)

    def _cluster(self, parameter: str = "clusterName") -> Cluster:
        return self.eks_backend.describe_cluster(name=self._get_param(parameter))

    def _entries(self) -> dict[str, dict[str, Any]]:
        cluster = self._cluster()
        if mode_of(cluster) == CONFIG_MAP:
            raise Refused(
                "InvalidRequestException",
                "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] "
                "to perform this operation.",
            )
        return entries_of(cluster)

    def _entry(self) -> dict[str, Any]:
        entry = self._entries().get(self._get_param("principalArn"))
        if entry is None:
            raise Refused(
                "ResourceNotFoundException",
                "The specified principalArn could not be found. You can view your available access "
                "entries with 'list-access-entries'.",
                HTTPStatus.NOT_FOUND,
            )
        return entry


_observers: list[Callable[[Cluster], None]] = []


def install(observer: Callable[[Cluster], None]) -> None:
    """Call `observer` after each change of the entries of a cluster."""
    _observers.append(observer)


def entries_of(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the entries of a cluster by their principals, to read and to change."""
    entries: dict[str, dict[str, Any]] = vars(cluster).setdefault("access_entries", {})
    return entries


def create_entry(
    cluster: Cluster, principal: str, kind: str, groups: list[str], username: str | None = None
) -> dict[str, Any]:
    """Create an entry, as DescribeAccessEntry returns it."""
    now = utcnow()
    entry = entries_of(cluster)[principal] = {
        "clusterName": cluster.name,
        "principalArn": principal,
        "kubernetesGroups": ["system:nodes"] if kind in NODE_TYPES else groups,
        "type": kind,
        "username": username or principal,
        "tags": {},
        "createdAt": now,
        "modifiedAt": now,
    }
    return entry


def mode_of(cluster: Cluster) -> str:
    """Return the authentication mode of a cluster."""
    return str(getattr(cluster, "access_config", {}).get("authenticationMode", CONFIG_MAP))


def set_mode(cluster: Cluster, mode: str) -> None:
    """Set the authentication mode of a cluster."""
    vars(cluster)["access_config"] = {"authenticationMode": mode}


def complete_endpoint(cluster: Cluster, region: str) -> None:
    """Add the defaults of EKS to the endpoint's settings, and the VPC of its subnets."""
    given, ec2 = cluster.resources_vpc_config or {}, ec2_backends[ACCOUNT][region]
    known = [one for zone in ec2.subnets.values() for one in zone.values()]
    named = [one.vpc_id for one in known if one.id in (given.get("subnetIds") or ())]
    default = ec2.get_default_vpc()
    defaults = {
        "vpcId": next(iter(named), default.id if default else ""),
        "endpointPublicAccess": True,
        "endpointPrivateAccess": False,
        "publicAccessCidrs": ["0.0.0.0/0"],
    }
    cluster.resources_vpc_config = {**defaults, **given}


def _update(kind: str, identifier: str = "") -> dict[str, Any]:
    return {"id": identifier or str(uuid.uuid4()), "status": "Successful", "type": kind}


def _check_groups(groups: list[str] | None) -> None:
    for group in groups or ():
        if group.startswith(RESERVED):
            raise Refused(
                "InvalidParameterException",
                f"The kubernetes group name {group} is invalid, it cannot start with "
                f"{group.partition(':')[0]}:",
            )


log = logging.getLogger(__name__)

TIMEOUT = 20.0
"""Seconds for an answer of the cluster's control API."""


class Session(BaseModel):
    """The user of an access key. `role` is the ARN of its role; without one, `groups` are fixed."""

    model_config = ConfigDict(extra="forbid")

    username: str
    secret: str
    role: str | None = None
    groups: list[str] = []


class Entry(BaseModel):
    """An access entry."""

    model_config = ConfigDict(extra="forbid")

    principal: str
    groups: list[str] = []
    type: str = STANDARD


class Access(BaseModel):
    """The access entries of a cluster to create, and the sessions that exist, by access key."""

    model_config = ConfigDict(extra="forbid")

    cluster: str
    entries: list[Entry]
    sessions: dict[str, Session]


class ClusterAccess:
    """Sends the users of each cluster to its control API; `controls` has the URLs by cluster."""

    def __init__(self, region: str, controls: Mapping[str, str], headers: Mapping[str, str]):
        self._region = region
        self._controls = controls
        self._headers = {"Content-Type": "application/json", **headers}
        self._sessions: dict[str, Session] = {}
        self._http = urllib3.PoolManager(maxsize=1, retries=False)

    def set(self, access: Access) -> None:
        """Create entries, and remember sessions.

        Raises:
            ValueError: there is no such cluster.
            OSError: its API does not take the users.
        """
        cluster = eks_backends[ACCOUNT][self._region].clusters.get(access.cluster)
        if cluster is None:
            raise ValueError(f"EKS has no cluster {access.cluster}.")
        self._sessions.update(access.sessions)
        for one in access.entries:
            create_entry(cluster, one.principal, one.type, one.groups)
        self._send(cluster)

    def changed(self, cluster: Cluster) -> None:
        """Send the users again, after a change of the entries."""
        try:
            self._send(cluster)
        except OSError as error:
            log.warning("Cluster %s did not take its access entries: %s", cluster.name, error)

    def _send(self, cluster: Cluster) -> None:
        control = self._controls.get(cluster.name)
        if control is None:
            return
        url, body = f"{control}/_sandbox/access", json.dumps(self._users(cluster))
        try:
            answer = self._http.request(
                "PUT", url, body=body, headers=self._headers, timeout=TIMEOUT
            )
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error
        if answer.status != HTTPStatus.OK:
            raise OSError(f"HTTP {answer.status}: {answer.data[:200]!r}")

    def _users(self, cluster: Cluster) -> dict[str, Any]:
        entries = entries_of(cluster)
        granted = {
            key: session.groups
            if session.role is None
            else entries.get(session.role, {}).get("kubernetesGroups")
            for key, session in self._sessions.items()
        }
        return {
            key: {
                "username": self._sessions[key].username,
                "secret": self._sessions[key].secret,
                "groups": groups,
            }
            for key, groups in granted.items()
            if groups is not None
        }


VERSION = "1.34"


def link_cluster(cloud: Cloud, name: str, endpoint: str, ca_file: Path) -> None:
    """Create or change a cluster with this endpoint; raises OSError if the CA cannot be read."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    eks = eks_backends[ACCOUNT][cloud.region]
    if name not in eks.clusters:
        eks.create_cluster(
            name,
            role_arn=f"arn:aws:iam::{ACCOUNT}:role/{name}-cluster",
            resources_vpc_config={"subnetIds": []},
            version=VERSION,
        )
        complete_endpoint(eks.clusters[name], cloud.region)
        set_mode(eks.clusters[name], "API")
    cluster = eks.clusters[name]
    cluster.endpoint = endpoint
    cluster.certificate_authority = {"data": authority}
