"""Auto Scaling groups with their hooks: whether a node that goes gets a successor, and in time."""

from collections.abc import Iterator
from functools import partial

from leeway.retirement.hooks import EKS_HOOKS

from leeway_cli.adopt.settings.groups import (
    HOOK_TIMEOUT,
    HOOKS,
    GroupHook,
    ScalingGroup,
    Transition,
)
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, known
from leeway_cli.doctor.finding import About, Finding, aws, shell

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
            if not group.node_group:
                yield from _check_group(group, cluster.name, _spot_types(facts, group))


def _spot_types(facts: Facts, group: ScalingGroup) -> frozenset[str]:
    """Return the types that a group launches as Spot instances; none if it has no such instance."""
    found = frozenset(
        one.instance_type
        for one in known(facts.instances) or ()
        if one.group == group.name and one.market == "spot"
    )
    return found and (frozenset(group.types) or found)


def _check_group(group: ScalingGroup, cluster: str, spot: frozenset[str]) -> Iterator[Finding]:
    about = About(reasons.GROUP_LIMITS_REPLACEMENT, f"group {group.name}", cluster)
    name, update = group.name, "autoscaling update-auto-scaling-group"
    if group.desired >= group.maximum and group.desired > 0:
        yield about.warns(
            f"Group {name} is at its maximum of {group.maximum}, so a replacement comes after the "
            "old node is gone.",
            aws(update, auto_scaling_group_name=name, max_size=group.maximum + 1),
            "full",
        )
    shown = aws("autoscaling describe-auto-scaling-groups", auto_scaling_group_names=(name,))
    if len(set(group.zones)) == 1:
        yield about.warns(
            f"Group {name} has one zone, {group.zones[0]}. Without capacity there it gets no "
            "successor.",
            shown,
            "one zone",
        )
    if len(spot) == 1 and not group.attributes:
        yield about.warns(
            f"Group {name} launches Spot instances of one type, {min(spot)}. EC2 often interrupts "
            "all of them together, and then has no successor.",
            "" if name.startswith("-") else shell("leeway", "select", "--for-group", name),
            "one type",
        )
    if group.launch_configuration:
        yield about.warns(
            f"Group {name} uses launch configuration {group.launch_configuration}, with which "
            "LaunchInstances does not work: a replacement comes after the old instance has left.",
            shown,
            "launch configuration",
        )
    resume = partial(aws, "autoscaling resume-processes", auto_scaling_group_name=name)
    if "Launch" in group.suspended:
        yield about.fails(
            f"Process Launch of group {name} is suspended, so Leeway drains its nodes without "
            "successors.",
            resume(scaling_processes=("Launch",)),
            "no launches",
        )
    if others := sorted(group.suspended & _EFFECTS.keys()):
        yield about.warns(
            f"Processes of group {name} are suspended: {', '.join(others)}. "
            f"{'. '.join(_EFFECTS[one] for one in others)}.",
            resume(scaling_processes=tuple(others)),
            "suspended",
        )
    if group.capacity_rebalance and spot:
        yield about.warns(
            f"Capacity Rebalancing is on in group {name}: after a rebalance recommendation the "
            "group replaces the instance itself, beyond the disruption budget.",
            aws(update, auto_scaling_group_name=name, no_capacity_rebalance=None),
            "rebalancing",
        )


SHORTEST, LONGEST = 120, 1800
"""Seconds. Leeway sends the first heartbeat after half of a timeout: a storm delays a function by
up to a minute (docs/storms.md). If Leeway does not run, each instance waits for one timeout."""


def terminate_hooks(group: ScalingGroup) -> tuple[GroupHook, ...]:
    """Return the hooks that hold an instance that a group terminates."""
    return tuple(one for one in group.hooks if one.transition is Transition.TERMINATING)


def answered_by_leeway(hook: GroupHook) -> bool:
    """Whether Leeway answers a hook: it has no target of its own, and is none of EKS's."""
    return not hook.target and hook.name not in EKS_HOOKS


def check_hooks(facts: Facts) -> Iterator[Finding]:
    """Check the hooks of the groups of every cluster. Missing hooks are a difference to what
    `leeway adopt` sets."""
    for cluster in facts.clusters:
        for group in known(cluster.groups) or ():
            if not group.node_group:
                for hook in group.hooks:
                    yield from _check_hook(hook, cluster.name)


def _check_hook(hook: GroupHook, cluster: str) -> Iterator[Finding]:
    about = About(reasons.HOOK_UNSAFE, f"group {hook.group}", cluster)
    named = f"Hook {hook.name} of group {hook.group}"
    if not answered_by_leeway(hook):
        yield about.warns(
            f"{named} notifies somebody else, who answers it: it waits for "
            f"{hook.transition.rpartition(':')[2]} as well as Leeway's.",
            aws("autoscaling describe-lifecycle-hooks", auto_scaling_group_name=hook.group),
        )
        return
    if hook.name in HOOKS and hook.timeout == HOOK_TIMEOUT and hook.default == "CONTINUE":
        return
    mend = aws(
        "autoscaling put-lifecycle-hook",
        auto_scaling_group_name=hook.group,
        lifecycle_hook_name=hook.name,
        lifecycle_transition=hook.transition,
        heartbeat_timeout=HOOK_TIMEOUT,
        default_result="CONTINUE",
    )
    if hook.timeout < SHORTEST:
        yield about.warns(
            f"{named} waits {hook.timeout} s for a heartbeat. A function that starts late misses "
            f"it; at least {SHORTEST} s are safe.",
            mend,
        )
    elif hook.timeout > LONGEST:
        kept = f"{named} keeps an instance for {hook.timeout} s if Leeway does not run."
        yield about.warns(kept, mend)
    if hook.transition is Transition.LAUNCHING and hook.default == "ABANDON":
        yield about.warns(
            f"{named} abandons instances: the group terminates good ones whenever Leeway answers "
            "late.",
            mend,
        )
