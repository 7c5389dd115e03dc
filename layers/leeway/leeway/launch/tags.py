"""The tags of what a launch creates.

Karpenter sets `kubernetes.io/cluster/<name>` and, since 1.0, `eks:eks-cluster-name`; Leeway sets
both. It does not set Karpenter's `karpenter.sh/nodepool`: Karpenter terminates instances with that
tag which it does not know.
"""

from collections.abc import Mapping

from leeway.instances.owners import INTENT_TAG, OWNED_PREFIX, OWNER_TAG, POOL_TAG, SETTINGS_TAG
from leeway.launch import reasons
from leeway.launch.node_settings import NodeSettings
from leeway.launch.problems import NotLaunchable

CLUSTER_TAG = "eks:eks-cluster-name"
MOST_TAGS = 50
"""Tags of one resource. Source: EC2 user guide, "Tag restrictions"."""

# Keys by which AWS, Karpenter and Leeway find out whose an instance is.
_RESERVED = (
    "aws:",
    "eks:",
    "leeway.sh/",
    "karpenter.sh/nodeclaim",
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
    OWNED_PREFIX,
)


def user_tags(settings: NodeSettings) -> Mapping[str, str]:
    """Return the tags of the manifests: those of the node class replace those of the Cluster.

    Raises:
        NotLaunchable: a key is reserved, or there are too many.
    """
    merged: dict[str, str] = {}
    for setting in settings.tags:
        for key in setting.value:
            if key.lower().startswith(_RESERVED):
                raise NotLaunchable(reasons.TAG_RESERVED(key=key, place=setting.place))
        merged |= setting.value
    most = MOST_TAGS - len(_of_leeway("", "", "", ""))
    if len(merged) > most:
        raise NotLaunchable(
            reasons.TOO_MANY_TAGS(
                pool=settings.pool, count=len(merged), most=most, place=settings.tags[-1].place
            )
        )
    return merged


def cluster_tags(cluster: str) -> Mapping[str, str]:
    """Return the tags of everything that Leeway creates for a cluster."""
    return {CLUSTER_TAG: cluster, f"{OWNED_PREFIX}{cluster}": "owned", OWNER_TAG: "leeway"}


def instance_tags(
    cluster: str, pool: str, intent: str, launch_settings: str, own: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the tags of instances and volumes. `own` are the user's: they may set `Name`."""
    of_leeway = _of_leeway(cluster, pool, intent, launch_settings)
    return {"Name": f"{cluster}-{pool}", **own, **of_leeway}


def _of_leeway(cluster: str, pool: str, intent: str, launch_settings: str) -> Mapping[str, str]:
    known = {POOL_TAG: pool, INTENT_TAG: intent, SETTINGS_TAG: launch_settings}
    return {**cluster_tags(cluster), **known}
