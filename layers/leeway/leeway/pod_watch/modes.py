"""Reads from the stored manifests which clusters have pools, and whether they are watched."""

from leeway.manifests.configuration import Configuration
from leeway.pod_watch.ports import WatchMode

POOL_KINDS = ("nodepool.karpenter.sh", "provisioner.karpenter.sh")


class ConfiguredModes:
    """The WatchModes Protocol, on stored manifests."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def mode_of(self, cluster: str) -> WatchMode:
        """Return the mode of a cluster. A pool whose manifest is invalid can launch nothing, and
        does not count."""
        if not self._configuration.manifests(cluster, POOL_KINDS):
            return WatchMode.NOT_AT_ALL
        watches = self._configuration.policy_of(cluster).watches_pods
        return WatchMode.BY_WATCH if watches else WatchMode.BY_THE_MINUTE
