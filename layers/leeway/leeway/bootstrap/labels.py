"""Splits labels into those that a kubelet may set on its own node, and those that admission sets.

Sources: Kubernetes' NodeRestriction admission plugin, and the kubelet, which does not start with
`--node-labels` that the plugin would refuse.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from leeway.selection.labels import ARCH, HOSTNAME, INSTANCE_TYPE, OS, REGION, ZONE

_KUBERNETES = ("kubernetes.io", "k8s.io")
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED = frozenset(
    {
        ARCH,
        HOSTNAME,
        INSTANCE_TYPE,
        OS,
        REGION,
        ZONE,
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    }
)

# They name the pool and the capacity type of a node. See docs/adr/0044.
_CONTROL_PLANE = ("karpenter.sh", "karpenter.k8s.aws", "leeway.sh")


@dataclass(frozen=True, slots=True)
class SplitLabels:
    """Labels by the one that puts them on: the kubelet when it registers, or admission."""

    kubelet: Mapping[str, str]
    admission: Mapping[str, str]


def kubelet_may_set(key: str) -> bool:
    """Whether NodeRestriction lets a kubelet set this label on its own node."""
    domain = key.partition("/")[0] if "/" in key else ""
    if _within(domain, _KUBERNETES):
        return key in _ALLOWED or _within(domain, _ALLOWED_DOMAINS)
    return True


def control_plane_sets(key: str) -> bool:
    """Whether a label is Leeway's to put on, although a kubelet may set it: a node that registers
    with one of them would count as another pool's, or as admitted."""
    return "/" in key and _within(key.partition("/")[0], _CONTROL_PLANE)


def split(labels: Mapping[str, str]) -> SplitLabels:
    """Split labels, each part in the order of its keys."""
    by_kubelet = {
        key: value
        for key, value in sorted(labels.items())
        if kubelet_may_set(key) and not control_plane_sets(key)
    }
    rest = {key: value for key, value in sorted(labels.items()) if key not in by_kubelet}
    return SplitLabels(by_kubelet, rest)


def _within(domain: str, domains: tuple[str, ...]) -> bool:
    return any(domain == one or domain.endswith(f".{one}") for one in domains)
