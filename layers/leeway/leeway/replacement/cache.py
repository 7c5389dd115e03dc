"""Caches the rules of Auto Scaling groups in the table, for all executions of a storm.

In a storm every retirement runs in its own execution. EC2 Auto Scaling counts all calls of an
account against shared buckets: without the cache, reads would use up the tokens of writes.
"""

from functools import partial

from leeway.execution.shared_cache import SharedCache
from leeway.instances.groups import GroupRules
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused, Groups, HookSettings


class GroupCache:
    """Reads groups' rules, which are at most FRESH_FOR old."""

    def __init__(self, groups: Groups, cache: SharedCache) -> None:
        self._groups = groups
        self._cache = cache

    def rules_of(self, group: str) -> GroupRules:
        """Return the group's rules.

        Raises:
            CloudUnavailable: Auto Scaling did not answer.
            CloudRefused: Auto Scaling refused to answer, or there is no such group.
        """
        read = partial(self._groups.rules, group)
        return self._cache.get_or_read(f"group/{group}", GroupRules, read)

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Return a hook's settings; None if the group has no such hook.

        Raises:
            CloudUnavailable, CloudRefused: Auto Scaling did not answer, or refused to.
        """
        try:
            rules = self.rules_of(hook.group)
        except CloudRefused:
            return self._groups.hook_settings(hook)
        timeout = rules.timeouts.get(hook.name)
        if timeout is None:  # the hook may be newer than the cached rules
            return self._groups.hook_settings(hook)
        return HookSettings(timeout, hook.name in rules.with_target)
