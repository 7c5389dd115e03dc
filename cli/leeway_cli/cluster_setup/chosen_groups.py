"""Chooses the Auto Scaling groups that `leeway adopt` brings under care."""

from collections.abc import Sequence

from leeway.reasons import Reason

from leeway_cli.cluster_setup.ports import ScalingGroup
from leeway_cli.cluster_setup.reasons import GROUP_NOT_FOUND, GROUP_OF_NODE_GROUP


def chosen_groups(
    asked: Sequence[str], found: Sequence[ScalingGroup], region: str
) -> tuple[str, ...] | Reason:
    """Return the names of the groups, sorted: those that a user asked for, or else all groups of
    the cluster except those of managed node groups; or why a group cannot be chosen.

    `found` are the groups that were asked for and exist, or all groups of the cluster.
    """
    if not asked:
        return tuple(sorted(one.name for one in found if not one.node_group))
    by_name = {one.name: one for one in found}
    for name in asked:
        if name not in by_name:
            return GROUP_NOT_FOUND(group=name, region=region)
        if node_group := by_name[name].node_group:
            return GROUP_OF_NODE_GROUP(group=name, node_group=node_group)
    return tuple(sorted(set(asked)))
