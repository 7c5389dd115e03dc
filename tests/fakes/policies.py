"""The stored policies."""

from dataclasses import dataclass, field

from leeway.policy.rules import ClusterPolicy


@dataclass
class OnePolicy:
    """The ClusterPolicies Protocol: one policy for every cluster."""

    policy: ClusterPolicy = field(default_factory=ClusterPolicy)

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy

    def resume(self) -> None:
        """Have the default policy, which does not pause."""
        self.policy = ClusterPolicy()
