"""Keeps clusters open for as long as each is where it was.

A function that is called every minute lives for hours, and a cluster may be made anew meanwhile
under the same name: at another address, with another authority.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.ports.aws import CloudUnavailable, ClusterEndpoint, Clusters

ASKED_EVERY = timedelta(minutes=5)
"""How long a cluster is taken to be where it was."""

ASKED_AGAIN_AFTER = timedelta(seconds=30)
"""The same where nobody could be asked. A drain wants its cluster at every pass, and asking a table
or a service in vain takes seconds."""


@dataclass(frozen=True, slots=True)
class _Opened[C]:
    endpoint: ClusterEndpoint
    cluster: C
    until: datetime


class OpenClusters[C]:
    """Opens clusters; `ask` knows where each is, and `open_at` opens one that is there."""

    def __init__(
        self, ask: Clusters, open_at: Callable[[ClusterEndpoint], C], clock: Clock
    ) -> None:
        self._ask = ask
        self._open_at = open_at
        self._clock = clock
        self._opened: dict[str, _Opened[C]] = {}

    def named(self, name: str) -> C:
        """Return a cluster, opened anew if it has moved. Where nobody can be asked now, it is taken
        to be where it was.

        Raises:
            CloudUnavailable: nobody could be asked, and it was never open.
            CloudRefused: there is no such cluster, or it has no endpoint yet.
        """
        known, now = self._opened.get(name), self._clock.now()
        if known is not None and now < known.until:
            return known.cluster
        try:
            endpoint = self._ask.endpoint(name)
        except CloudUnavailable:
            if known is None:
                raise
            self._opened[name] = replace(known, until=now + ASKED_AGAIN_AFTER)
            return known.cluster
        if known is not None and known.endpoint == endpoint:
            cluster = known.cluster
        else:
            cluster = self._open_at(endpoint)
        self._opened[name] = _Opened(endpoint, cluster, now + ASKED_EVERY)
        return cluster
