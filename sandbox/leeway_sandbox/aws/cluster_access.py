"""Tells a cluster who its access entries let in, as EKS does.

The sandbox's Kubernetes verifies a token by its access key. So it needs, for each access key, the
user and the groups that the access entry of the key's role gives at that time.
"""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import urllib3
from moto.eks.models import Cluster, eks_backends
from pydantic import BaseModel, ConfigDict

from leeway_sandbox.aws.access_entries import STANDARD, create_entry, entries_of
from leeway_sandbox.aws.cloud import ACCOUNT

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
