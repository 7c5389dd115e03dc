"""Keeps connections to clusters open while their endpoints are the same.

A function that runs every minute stays warm for hours. A cluster may be recreated meanwhile with
the same name, another endpoint and another certificate authority.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.ports.aws import CloudUnavailable, ClusterEndpoint, Clusters

REFRESH_AFTER = timedelta(minutes=5)
"""How long an endpoint counts as unchanged."""

RETRY_AFTER = timedelta(seconds=30)
"""The same after a read that failed. A drain opens its cluster in every pass, and a failed read of
the table or of EKS takes seconds."""


@dataclass(frozen=True, slots=True)
class _Open[C]:
    endpoint: ClusterEndpoint
    cluster: C
    until: datetime


class OpenClusters[C]:
    """Opens clusters: `clusters` returns endpoints, `connect` connects to one."""

    def __init__(
        self, clusters: Clusters, connect: Callable[[ClusterEndpoint], C], clock: Clock
    ) -> None:
        self._clusters = clusters
        self._connect = connect
        self._clock = clock
        self._open: dict[str, _Open[C]] = {}

    def get(self, name: str) -> C:
        """Return an open cluster; connect again if its endpoint has changed. If the endpoint can't
        be read, the last one is used.

        Raises:
            CloudUnavailable: the endpoint can't be read, and the cluster was never open.
            CloudRefused: the cluster does not exist, or it has no endpoint yet.
        """
        known, now = self._open.get(name), self._clock.now()
        if known is not None and now < known.until:
            return known.cluster
        try:
            endpoint = self._clusters.endpoint(name)
        except CloudUnavailable:
            if known is None:
                raise
            self._open[name] = replace(known, until=now + RETRY_AFTER)
            return known.cluster
        if known is not None and known.endpoint == endpoint:
            cluster = known.cluster
        else:
            cluster = self._connect(endpoint)
        self._open[name] = _Open(endpoint, cluster, now + REFRESH_AFTER)
        return cluster
