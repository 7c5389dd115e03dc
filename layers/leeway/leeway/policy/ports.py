"""The policies of clusters, as a Protocol."""

from typing import Protocol

from leeway.policy.rules import ClusterPolicy


class ClusterPolicies(Protocol):
    """The policies that users wrote for their clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return the policy of a cluster, at most a minute old; the defaults if there is none.

        Raises:
            CloudUnavailable, CloudRefused: the policy cannot be read.
        """
        ...
