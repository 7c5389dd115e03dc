"""Lifecycle hooks of groups: those of others, and timeouts that do not fit."""

from collections.abc import Iterator

from leeway.retirement.hooks import EKS_HOOKS

from leeway_cli.cluster_setup.desired import HOOK_TIMEOUT, HOOKS
from leeway_cli.cluster_setup.ports import ScalingGroup
from leeway_cli.cluster_setup.settings import GroupHook, Transition
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, known
from leeway_cli.doctor.finding import Finding, warns
from leeway_cli.doctor.mending import aws

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
        for group in known(cluster.scaling_groups) or ():
            if not group.node_group:
                for hook in group.hooks:
                    yield from _check_hook(hook, cluster.name)


def _check_hook(hook: GroupHook, cluster: str) -> Iterator[Finding]:
    subject = f"group {hook.group}"
    if not answered_by_leeway(hook):
        shown = aws("autoscaling describe-lifecycle-hooks", auto_scaling_group_name=hook.group)
        yield warns(
            reasons.HOOK_UNSAFE,
            subject,
            f"Hook {hook.name} of group {hook.group} notifies somebody else, who answers it: it "
            f"waits for {hook.transition.rpartition(':')[2]} as well as Leeway's.",
            shown,
            cluster,
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
        yield warns(
            reasons.HOOK_UNSAFE,
            subject,
            f"Hook {hook.name} of group {hook.group} waits {hook.timeout} s for a heartbeat. A "
            f"function that starts late misses it; at least {SHORTEST} s are safe.",
            mend,
            cluster,
        )
    elif hook.timeout > LONGEST:
        yield warns(
            reasons.HOOK_UNSAFE,
            subject,
            f"Hook {hook.name} of group {hook.group} keeps an instance for {hook.timeout} s if "
            "Leeway does not run.",
            mend,
            cluster,
        )
    if hook.transition is Transition.LAUNCHING and hook.default == "ABANDON":
        yield warns(
            reasons.HOOK_UNSAFE,
            subject,
            f"Hook {hook.name} of group {hook.group} abandons instances: the group terminates "
            "good ones whenever Leeway answers late.",
            mend,
            cluster,
        )
