"""Which labels the kubelet registers, by the rules of NodeRestriction."""

import pytest
from leeway.bootstrap.node import kubelet_may_set, split


@pytest.mark.parametrize(
    "key",
    [
        "team",
        "example.com/team",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/anything",
        "kubelet.kubernetes.io/anything",
        "own.node.kubernetes.io/anything",
        "beta.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "notkubernetes.io/x",
        "topology.k8s.aws/zone-id",
        "karpenter.sh/capacity-type",
    ],
)
def test_a_kubelet_may_set(key: str) -> None:
    assert kubelet_may_set(key)


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/anything",
        "k8s.io/anything",
        "node-role.kubernetes.io/worker",
        "topology.kubernetes.io/anything",
        "node-restriction.kubernetes.io/team",
        "own.node-restriction.kubernetes.io/team",
        "kops.k8s.io/instancegroup",
        "beta.kubernetes.io/anything",
    ],
)
def test_a_kubelet_may_not_set(key: str) -> None:
    assert not kubelet_may_set(key)


def test_labels_of_pools_and_of_node_restriction_are_left_to_admission() -> None:
    parts = split(
        {
            "team": "a",
            "karpenter.sh/nodepool": "web",
            "karpenter.sh/capacity-type": "spot",
            "karpenter.k8s.aws/instance-family": "m5",
            "leeway.sh/pool": "web",
            "node-restriction.kubernetes.io/x": "y",
            "node.kubernetes.io/x": "y",
        }
    )
    assert list(parts.kubelet) == ["leeway.sh/launched", "node.kubernetes.io/x", "team"]
    assert list(parts.admission) == [
        "karpenter.k8s.aws/instance-family",
        "karpenter.sh/capacity-type",
        "karpenter.sh/nodepool",
        "leeway.sh/pool",
        "node-restriction.kubernetes.io/x",
    ]
