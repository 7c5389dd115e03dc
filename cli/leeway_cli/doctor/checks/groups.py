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
            reasons.GROUP_AT_MAXIMUM, subject, mend, cluster, group=name, maximum=group.maximum
        )
    shown = aws("autoscaling describe-auto-scaling-groups", auto_scaling_group_names=(name,))
    if len(set(group.zones)) == 1:
        yield warns(
            reasons.GROUP_OF_ONE_ZONE, subject, shown, cluster, group=name, zone=group.zones[0]
        )
    if len(spot) == 1 and not group.attributes:
        (only,) = spot
        yield warns(reasons.GROUP_OF_ONE_TYPE, subject, shown, cluster, group=name, type=only)
    if group.launch_configuration:
        yield warns(
            reasons.GROUP_WITH_LAUNCH_CONFIGURATION,
            subject,
            shown,
            cluster,
            group=name,
            configuration=group.launch_configuration,
        )
    yield from _suspended(group, cluster)
    if group.capacity_rebalance and spot:
        yield warns(
            reasons.GROUP_REBALANCES,
            subject,
            aws(update, auto_scaling_group_name=name, no_capacity_rebalance=None),
            cluster,
            group=name,
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
            reasons.GROUP_LAUNCHES_SUSPENDED, subject, resume("Launch"), cluster, group=group.name
        )
    others = sorted(group.suspended & _EFFECTS.keys())
    if others:
        yield warns(
            reasons.GROUP_PROCESSES_SUSPENDED,
            subject,
            resume(*others),
            cluster,
            group=group.name,
            processes=", ".join(others),
            effect=". ".join(_EFFECTS[one] for one in others),
        )
