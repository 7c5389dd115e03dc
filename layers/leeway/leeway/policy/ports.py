"""policy.ports"""

from typing import Protocol

from leeway.policy.rules import ClusterPolicy


class ClusterPolicies(Protocol):
    """What users wrote about their clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return the cluster's policy, at most a minute old; the defaults where there is none."""
        ...
