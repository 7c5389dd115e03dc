"""Chooses the Auto Scaling groups that `leeway adopt` brings under care."""

from collections.abc import Sequence

from leeway_cli.cluster_setup.ports import ScalingGroup


def chosen_groups(
    asked: Sequence[str], found: Sequence[ScalingGroup], region: str
) -> tuple[str, ...] | str:
    """Return the names of the groups, sorted: those that a user asked for, or else all groups of
    the cluster except those of managed node groups; or why a group cannot be chosen.

    `found` are the groups that were asked for and exist, or all groups of the cluster.
    """
    if not asked:
        return tuple(sorted(one.name for one in found if not one.node_group))
    by_name = {one.name: one for one in found}
    for name in asked:
        if name not in by_name:
            return (
                f"Auto Scaling has no group {name} in region {region}. Check --group and "
                "AWS_REGION."
            )
        if node_group := by_name[name].node_group:
            return (
                f"Group {name} belongs to the managed node group {node_group}, which EKS drains "
                f"and whose tags and hooks EKS owns. Leave out --group {name}."
            )
    return tuple(sorted(set(asked)))
