"""Decides which changes of `leeway adopt` are undone, and which settings stay as they are."""

from collections.abc import Iterable
from dataclasses import dataclass

from leeway.reasons import Reason

from cli.cluster_setup.difference import Change
from cli.cluster_setup.reasons import CHANGED_SINCE, MODE_STAYS
from cli.cluster_setup.settings import Authentication, Settings


@dataclass(frozen=True, slots=True)
class Undo:
    """The changes that undo an adoption, the last one first, and why the other settings stay."""

    changes: tuple[Change, ...]
    left: tuple[Reason, ...]


def recorded_change(recorded: Change | None, change: Change) -> Change:
    """Return the record of a change that adopt is about to make. `recorded` is the record of an
    earlier change of the same setting.

    If the setting is as the earlier change left it, release has to restore what was there before
    both. Otherwise somebody has changed it meanwhile, and release restores that.
    """
    if recorded is not None and change.before in (recorded.before, recorded.after):
        return Change(recorded.before, change.after)
    return change


def undo(recorded: Iterable[Change], current: Settings) -> Undo:
    """Decide what release does. `recorded` are the changes of adopt, the first one first.

    A change is undone if its setting still is as adopt left it. A setting that is as it was before
    adopt needs nothing: adopt stopped before the change, or release has undone it already.
    """
    changes: list[Change] = []
    left: list[Reason] = []
    for one in reversed([*recorded]):
        now = current.get(one.key)
        if now == one.before:
            continue
        if isinstance(now, Authentication):
            left.append(MODE_STAYS(mode=now.mode))
        elif now == one.after:
            changes.append(one.inverse)
        else:
            left.append(CHANGED_SINCE(setting=one.title))
    return Undo(tuple(changes), tuple(left))
