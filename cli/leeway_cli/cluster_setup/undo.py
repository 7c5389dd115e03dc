"""Decides which changes of `leeway adopt` are undone, and which settings stay as they are."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from leeway_cli.cluster_setup.desired import HOOKS, PLURALS
from leeway_cli.cluster_setup.difference import Change
from leeway_cli.cluster_setup.settings import (
    CLUSTER_TAG,
    Authentication,
    ClusterObject,
    GroupHook,
    GroupTag,
    Setting,
    Settings,
    SpotRole,
)

_PATH = re.compile(
    rf"/(?:api|apis/[a-z0-9.]+)/v1(?:/namespaces/leeway-headroom)?/({'|'.join(PLURALS.values())})"
    r"/(leeway-[a-z0-9-]+)"
)
"""The paths of the objects that adopt applies."""


@dataclass(frozen=True, slots=True)
class Undo:
    """The changes that undo an adoption, the last one first, and why the other settings stay."""

    changes: tuple[Change, ...]
    left: tuple[str, ...]


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
    left: list[str] = []
    for one in reversed([*recorded]):
        now = current.get(one.key)
        if not all(_is_of_adopt(each) for each in (one.before, one.after)):
            left.append(
                f"The {one.title} stays: it is in the record of the adoption, and `leeway adopt` "
                "never writes it. Find out who wrote the record."
            )
            continue
        if now == one.before:
            continue
        if isinstance(now, Authentication):
            left.append(
                f"The authentication mode of the cluster stays {now.mode}: EKS cannot switch it "
                "back."
            )
        elif isinstance(now, SpotRole):
            left.append(
                "The role AWSServiceRoleForEC2Spot stays: every Spot instance of the account "
                "needs it."
            )
        elif now == one.after:
            changes.append(one.inverse)
        else:
            left.append(
                f"The {one.title} stays as it is: somebody changed it after `leeway adopt`."
            )
    return Undo(tuple(changes), tuple(left))


def _is_of_adopt(setting: Setting | None) -> bool:
    """Whether adopt can have written a setting of this name. Release works with the rights of an
    administrator, so a record that somebody forged must not delete other objects."""
    match setting:
        case ClusterObject(path=path, kind=kind, name=name):
            found = _PATH.fullmatch(path)
            return found is not None and found.groups() == (PLURALS.get(kind), name)
        case GroupTag(tag=tag):
            return tag == CLUSTER_TAG
        case GroupHook(name=name):
            return name in HOOKS
    return True
