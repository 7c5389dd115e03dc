"""The Protocols of pod watches."""

from typing import Protocol

from leeway.pod_watch.holding import WatchMode


class WatchModes(Protocol):
    """How clusters are configured, at most a minute ago."""

    def mode_of(self, cluster: str) -> WatchMode:
        """Return the mode of a cluster.

        Raises:
            CloudUnavailable, CloudRefused: its manifests have never been read.
        """
        ...
