"""The labels that a pool may require or set, by the rules of Karpenter's schema."""

import difflib

from leeway.selection.labels import ALIASES, HOSTNAME, NODE_CLASS, NODEPOOL, WELL_KNOWN

_RESTRICTED = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws")
_FREE = ("node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io")

NOT_ACTED_ON = dict.fromkeys(
    (
        "karpenter.k8s.aws/instance-tenancy",
        "karpenter.k8s.aws/capacity-reservation-id",
        "karpenter.k8s.aws/capacity-reservation-type",
        "karpenter.k8s.aws/capacity-reservation-interruptible",
        "karpenter.k8s.aws/placement-group-id",
        "karpenter.k8s.aws/placement-group-partition",
    ),
    "ignored: Leeway does not support this label",
)
"""Labels that Karpenter supports and Leeway ignores, with the warning for each."""


def check_pool_label(key: str) -> str:
    """Refuse a label that a pool may not set.

    Raises:
        ValueError: a pool may not set it.
    """
    if key in {NODEPOOL, HOSTNAME} or ALIASES.get(key) == NODEPOOL:
        raise ValueError(f"expected another label: Leeway sets {key} on every node")
    if key in WELL_KNOWN or key in ALIASES or key in NOT_ACTED_ON or key == NODE_CLASS:
        return key
    domain, slash, _ = key.partition("/")
    if slash and domain.endswith(_RESTRICTED) and not domain.endswith(_FREE):
        near = difflib.get_close_matches(key, sorted(WELL_KNOWN), n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"expected a well-known label or a label of your own domain, got {key}{guess}"
        )
    return key
