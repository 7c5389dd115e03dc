"""How a retirement has its group made one larger, until it is over, and one smaller again."""

from leeway.clock import Clock
from leeway.cloud.ports import CloudUnavailable, GroupCapacity, GroupGone, Groups
from leeway.cloud.stores import Ledgers, RecordChanged
from leeway.records.surges import NextStep, Step, SurgeLedger
from leeway.retirement.surroundings import LOCK_TRIES

TRIES = 2 * LOCK_TRIES
"""Of a ledger that all who retire from a group write."""


class Surging:
    """Raises groups and lowers them, once for each instance."""

    def __init__(self, ledgers: Ledgers, groups: Groups, clock: Clock) -> None:
        self._ledgers = ledgers
        self._groups = groups
        self._clock = clock

    def raise_for(self, instance: str, group: str) -> bool:
        """Have the group start one more, once for this instance; False where it may not."""
        for _ in range(TRIES):
            ledger = self._ledgers.surge(group)
            now = self._groups.capacity(group)
            todo = ledger.next_for(instance, now.desired, now.maximum, self._clock.now())
            if todo.desired is not None:
                self._groups.set_desired(group, todo.desired)
            if self._is_written(todo) and todo.step in {Step.DONE, Step.FULL}:
                return todo.step is Step.DONE
            if todo.step is Step.WAIT:
                break
        raise CloudUnavailable(f"group {group}: others change its desired capacity just now")

    def lower_for(self, instance: str, group: str, stays: bool = False) -> bool:
        """Have the group be as large as before, once, and end this instance, unless it `stays`.

        An instance that is in service is ended by its group, with a decrement, so that no other
        one has to go; without, where the group is no larger than before or may not be smaller by
        now. Where it is gone, or stays, the group wants one less. Returns whether the group has
        been asked to end it.
        """
        # Looked at before the ledger is held, for which others wait.
        serves, ended = not stays and self._serves(instance), False
        for _ in range(TRIES):
            ledger = self._ledgers.surge(group)
            try:
                now = self._groups.capacity(group)
            except GroupGone:
                return False
            todo = ledger.next_lowering(instance, now.desired, now.maximum, self._clock.now())
            if todo.step in {Step.LOWER, Step.DONE}:
                if serves and not ended:
                    self._groups.terminate_in_group(instance, decrement=_may_shrink(todo, now))
                    ended = True
                elif not ended and todo.desired is not None and _may_shrink(todo, now):
                    self._groups.set_desired(group, todo.desired)
            elif todo.desired is not None:
                self._groups.set_desired(group, todo.desired)
            if self._is_written(todo) and todo.step in {Step.LOWER, Step.DONE}:
                return ended
            if todo.step is Step.WAIT:
                break
        raise CloudUnavailable(f"group {group}: others change its desired capacity just now")

    def _serves(self, instance: str) -> bool:
        group = self._groups.facts(instance)
        return group is not None and group.lifecycle_state == "InService"

    def _is_written(self, todo: NextStep) -> bool:
        return todo.ledger is None or is_written(self._ledgers, todo.ledger)


def is_written(ledgers: Ledgers, changed: SurgeLedger) -> bool:
    """Write a group's ledger; False where somebody else wrote it since it was read."""
    try:
        ledgers.write(changed)
    except RecordChanged:
        return False
    return True


def _may_shrink(todo: NextStep, now: GroupCapacity) -> bool:
    return todo.desired is not None and todo.desired >= now.minimum
