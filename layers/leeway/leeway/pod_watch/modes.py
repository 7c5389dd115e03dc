"""Reads from the stored manifests which clusters have pools, and whether they are watched."""

from leeway.manifests.configuration import POOL, Configuration
from leeway.pod_watch.ports import WatchMode


class ConfiguredModes:
    """The WatchModes Protocol, on stored manifests."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def mode_of(self, cluster: str) -> WatchMode:
        """Return the mode of a cluster. A pool whose manifest is invalid can launch nothing, and
        does not count. Deleted pools may have left nodes, which are given back."""
        if not self._configuration.manifests(cluster, (POOL,)):
            deleted = self._configuration.has_deleted(cluster, (POOL,))
            return WatchMode.BY_THE_MINUTE if deleted else WatchMode.NOT_AT_ALL
        watches = self._configuration.policy_of(cluster).watches_pods
        return WatchMode.BY_WATCH if watches else WatchMode.BY_THE_MINUTE
