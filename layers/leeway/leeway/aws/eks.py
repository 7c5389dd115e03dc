"""The endpoints of EKS clusters: from EKS by boto3, and cached in the table for all functions."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable, ClusterEndpoint, Clusters
from leeway.table import Record, RecordChanged, Table, UnreadableRecord


class EksClusters:
    """The Clusters Protocol; `client` returns boto3's EKS client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read a cluster's endpoint by DescribeCluster.

        Raises:
            CloudRefused: the cluster does not exist, or it has no endpoint yet.
        """
        with aws_errors():
            cluster = self._client().describe_cluster(name=name)["cluster"]
        url = cluster.get("endpoint")
        authority = cluster.get("certificateAuthority", {}).get("data")
        if not url or not authority:
            status = cluster.get("status")
            raise CloudRefused(f"cluster {name} has no endpoint yet; its status is {status}")
        return ClusterEndpoint(name, url, authority)


REFRESH_AFTER = timedelta(minutes=15)
"""How long all functions use a cached endpoint before one of them reads it from EKS again."""

CLAIM_LASTS = timedelta(seconds=30)
"""How long a claim to refresh an endpoint lasts. After that another function claims the refresh."""

KEPT_FOR = timedelta(days=1)
"""How long a cached endpoint is used while EKS is unavailable."""


@dataclass(frozen=True, slots=True)
class _Cached:
    """An endpoint that was read from EKS at `read_at`; the next refresh is due at `until`."""

    endpoint: ClusterEndpoint
    read_at: datetime
    until: datetime
    version: int


_ENDPOINT = Record(
    _Cached,
    "ENDPOINT#{cluster}",
    "ENDPOINT",
    versioned=True,
    kept_for=lambda cached: cached.read_at + KEPT_FOR,
)


class CachedClusters:
    """The Clusters Protocol over a cache in the table: in a storm a hundred functions start at
    once, and EKS allows far fewer calls per second.

    `source` reads an endpoint that is not cached; `endpoint_problem` returns why an address gets no
    token, or an empty string: functions send a token to the endpoint, so a cached address must be
    that of an EKS API server, even if something else wrote the item. One function refreshes an old
    item while the others use it: a cluster that was recreated with the same name in the last
    minutes is rarer than a storm.
    """

    def __init__(
        self,
        table: Table,
        source: Clusters,
        clock: Clock,
        endpoint_problem: Callable[[str], str],
    ) -> None:
        self._table = table
        self._source = source
        self._clock = clock
        self._endpoint_problem = endpoint_problem

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read a cluster's endpoint: one GetItem while the cached endpoint is fresh.

        Raises:
            CloudUnavailable: EKS is unavailable, and no endpoint of the last day is cached.
            CloudRefused: the cluster does not exist, it has no endpoint yet, or the endpoint is not
                an API server of EKS.
        """
        try:
            cached = self._table.get(_ENDPOINT, consistent=False, cluster=name)
            version = cached.version if cached else 0
        except UnreadableRecord as error:
            cached, version = None, error.item.version
        if cached is not None and self._endpoint_problem(cached.endpoint.url):
            cached = None
        now = self._clock.now()
        if cached is not None and now < cached.until:
            return cached.endpoint
        try:
            if cached is not None:
                version += 1
                claimed = replace(cached, until=now + CLAIM_LASTS, version=version)
                self._table.put(_ENDPOINT, claimed, cluster=name)
            found = self._source.endpoint(name)
            if problem := self._endpoint_problem(found.url):
                raise CloudRefused(f"cluster {name}: its endpoint gets no token: {problem}")
            now = self._clock.now()
            with suppress(RecordChanged):  # another function has read it, too
                read = _Cached(found, now, now + REFRESH_AFTER, version + 1)
                self._table.put(_ENDPOINT, read, cluster=name)
        except (CloudUnavailable, RecordChanged):  # or another function refreshes it
            if cached is None:
                raise
            return cached.endpoint
        return found
