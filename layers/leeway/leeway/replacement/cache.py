"""Use case: what many retirements need alike is read once for all of them.

In a storm every retirement has a function of its own, so what one of them read is kept in the
table. EC2 Auto Scaling counts an account's calls against shared buckets: those that look would take
the tokens of those that act. And an API server that lists all nodes for each that goes does little
else.
"""

from functools import partial

from leeway.execution.shared_cache import SharedCache
from leeway.instances.groups import GroupRules
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused, Groups, HookSettings


class GroupCache:
    """Knows groups' rules, as they were at most FRESH_FOR ago."""

    def __init__(self, groups: Groups, recollection: SharedCache) -> None:
        self._groups = groups
        self._recollection = recollection

    def rules_of(self, group: str) -> GroupRules:
        """Return the group's rules.

        Raises:
            CloudUnavailable, CloudRefused: Auto Scaling did not tell; refused, too, where there is
                no such group.
        """
        read = partial(self._groups.rules, group)
        return self._recollection.get_or_read(f"group/{group}", GroupRules, read)

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Return a hook's settings; None where the group has no such hook.

        Raises:
            CloudUnavailable, CloudRefused: Auto Scaling did not tell.
        """
        try:
            rules = self.rules_of(hook.group)
        except CloudRefused:
            return self._groups.hook_settings(hook)
        timeout = rules.timeouts.get(hook.name)
        if timeout is None:  # what is not there is only believed of a fresh answer
            return self._groups.hook_settings(hook)
        return HookSettings(timeout, hook.name in rules.with_target)
