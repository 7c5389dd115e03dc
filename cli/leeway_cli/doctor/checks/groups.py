"""Auto Scaling groups: whether a node that goes gets a successor, and in time."""

from collections.abc import Iterator

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, GroupFacts, known
from leeway_cli.doctor.finding import Finding, fails, warns
from leeway_cli.doctor.mending import aws

_EFFECTS = {
    "Terminate": "A terminate hook then holds no instance, and Leeway detaches instances instead",
    "HealthCheck": "The group does not notice that an instance is gone, and does not replace it",
    "ReplaceUnhealthy": "The group does not replace instances that are gone",
    "AddToLoadBalancer": "New instances get no traffic from load balancers",
}
"""What does not work without a process. Source: EC2 Auto Scaling user guide, "Types of
processes"."""


def check_groups(facts: Facts) -> Iterator[Finding]:
    """Check the groups of every cluster."""
    for cluster in facts.clusters:
        for group in known(cluster.groups) or ():
            if not group.managed:
                yield from _check_group(group, cluster.name, _spot_types(facts, group))


def _spot_types(facts: Facts, group: GroupFacts) -> frozenset[str]:
    """Return the types that a group launches as Spot instances; none if it has no such instance."""
    found = frozenset(
        one.instance_type
        for one in known(facts.instances) or ()
        if one.group == group.name and one.market == "spot"
    )
    return found and (frozenset(group.types) or found)


def _check_group(group: GroupFacts, cluster: str, spot: frozenset[str]) -> Iterator[Finding]:
    subject = f"group {group.name}"
    update = "autoscaling update-auto-scaling-group"
    name = group.name
    if group.desired >= group.maximum and group.desired > 0:
        mend = aws(update, auto_scaling_group_name=name, max_size=group.maximum + 1)
        yield warns(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Group {name} is at its maximum of {group.maximum}, so a replacement comes after "
            "the old node is gone.",
            mend,
            cluster,
        )
    shown = aws("autoscaling describe-auto-scaling-groups", auto_scaling_group_names=(name,))
    if len(set(group.zones)) == 1:
        yield warns(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Group {name} has one zone, {group.zones[0]}. Without capacity there it gets no "
            "successor.",
            shown,
            cluster,
        )
    if len(spot) == 1 and not group.attributes:
        (only,) = spot
        yield warns(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Group {name} launches Spot instances of one type, {only}. EC2 often interrupts "
            "all of them together, and then has no successor.",
            shown,
            cluster,
        )
    if group.launch_configuration:
        yield warns(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Group {name} uses launch configuration {group.launch_configuration}, with which "
            "LaunchInstances does not work: a replacement comes after the old instance has "
            "left.",
            shown,
            cluster,
        )
    yield from _suspended(group, cluster)
    if group.capacity_rebalance and spot:
        yield warns(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Capacity Rebalancing is on in group {name}: after a rebalance recommendation the "
            "group replaces the instance itself, beyond the disruption budget.",
            aws(update, auto_scaling_group_name=name, no_capacity_rebalance=None),
            cluster,
        )


def _suspended(group: GroupFacts, cluster: str) -> Iterator[Finding]:
    subject = f"group {group.name}"

    def resume(*processes: str) -> str:
        return aws(
            "autoscaling resume-processes",
            auto_scaling_group_name=group.name,
            scaling_processes=processes,
        )

    if "Launch" in group.suspended:
        yield fails(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Process Launch of group {group.name} is suspended, so Leeway drains its nodes "
            "without successors.",
            resume("Launch"),
            cluster,
        )
    others = sorted(group.suspended & _EFFECTS.keys())
    if others:
        yield warns(
            reasons.GROUP_LIMITS_REPLACEMENT,
            subject,
            f"Processes of group {group.name} are suspended: {', '.join(others)}. "
            f"{'. '.join(_EFFECTS[one] for one in others)}.",
            resume(*others),
            cluster,
        )
