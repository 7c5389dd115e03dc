"""Use case: a group's rules are read once for all its instances that retire together.

In a storm every retirement has a function of its own, so what one of them read is kept in the
table. EC2 Auto Scaling counts an account's calls against shared buckets: those that look would take
the tokens of those that act.
"""

from contextlib import suppress
from datetime import timedelta

from leeway.clock import Clock
from leeway.cloud.ports import CloudRefused, CloudUnavailable, GroupMemory, Groups, RecalledRules
from leeway.notices import LifecycleHook
from leeway.replacement import GroupRules

FRESH_FOR = timedelta(seconds=15)
"""How long a group's rules are believed."""

ASKS_FOR = timedelta(seconds=2)
"""How long whoever reads them is waited for; after that the next one does."""

LOOK_EVERY = 0.2
"""Seconds between two looks whether they have been read."""


class Recollection:
    """Knows groups' rules, as they were at most FRESH_FOR ago."""

    def __init__(self, groups: Groups, memory: GroupMemory, clock: Clock) -> None:
        self._groups = groups
        self._memory = memory
        self._clock = clock

    def rules_of(self, group: str) -> GroupRules:
        """Return the group's rules; a table that does not answer is not waited for.

        Raises:
            CloudUnavailable, CloudRefused: Auto Scaling did not tell; refused, too, where there is
                no such group.
        """
        try:
            recalled = self._recalled(group)
        except (CloudUnavailable, CloudRefused):
            recalled = None
        if recalled is not None:
            return recalled
        read_at = self._clock.now()
        rules = self._groups.rules(group)
        with suppress(CloudUnavailable, CloudRefused):  # the next one asks, too
            self._memory.remember(RecalledRules(rules, read_at))
        return rules

    def _recalled(self, group: str) -> GroupRules | None:
        """Return what is remembered and fresh; None says that it is on the caller to ask."""
        while True:
            now = self._clock.now()
            recalled = self._memory.recall(group)
            if recalled is not None and now - recalled.read_at < FRESH_FOR:
                return recalled.rules
            if self._memory.claim(group, now, now + ASKS_FOR):
                return None
            self._clock.sleep(LOOK_EVERY)

    def timeout_of(self, hook: LifecycleHook) -> int | None:
        """Return a hook's HeartbeatTimeout in seconds; None where the group has no such hook.

        Raises:
            CloudUnavailable, CloudRefused: Auto Scaling did not tell.
        """
        try:
            known = self.rules_of(hook.group).timeouts.get(hook.name)
        except CloudRefused:
            known = None
        # What is not there is only believed of a fresh answer.
        return self._groups.heartbeat_timeout(hook) if known is None else known
