"""The settings of a cluster under care, and the changes that lead there and back. Pure.

Settings take effect in the order of `desired_settings`. The functions get their rights first, then
the cluster gets its manifest and its place in ClusterNames. The hooks come last: an instance waits
for a hook, so Leeway must answer already.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from leeway.manifests.in_cluster import Home
from pydantic import Field

from leeway_cli.adopt.settings.access import AccessEntry, Authentication, Mode
from leeway_cli.adopt.settings.groups import GroupHook, GroupTag, desired_hooks
from leeway_cli.adopt.settings.home import (
    ClusterManifest,
    Crd,
    ManifestsHome,
    default_manifest,
    desired_home,
)
from leeway_cli.adopt.settings.leeway_stack import LeewayStack, ManagedCluster
from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.adopt.settings.setting import Kind
from leeway_cli.adopt.settings.spot_role import SpotRole

type Setting = Annotated[
    Authentication
    | SpotRole
    | AccessEntry
    | ClusterObject
    | GroupTag
    | GroupHook
    | ClusterManifest
    | ManifestsHome
    | Crd
    | ManagedCluster,
    Field(discriminator="setting"),
]
"""One setting. As JSON, its field `setting` names its kind."""


def by_key(*settings: Kind) -> dict[str, Any]:
    """Return settings by their keys."""
    return {one.key: one for one in settings}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user wants to bring under care. `node_roles` are the ARNs of the roles with which
    Leeway launches nodes in this cluster; with `windows_roles` of them it launches Windows alone.
    `manifests` is where its manifests are; None: as it is recorded.
    """

    cluster: str
    stack: LeewayStack
    objects: tuple[ClusterObject, ...]
    groups: tuple[str, ...] = ()
    node_roles: tuple[str, ...] = ()
    windows_roles: frozenset[str] = frozenset()
    manifests: Home | None = None


def desired_settings(wanted: Wanted) -> tuple[Setting, ...]:
    """Return the settings that Leeway needs, in the order in which adopt writes them."""
    return (
        Authentication(Mode.BOTH),
        *wanted.objects,
        *desired_entries(wanted),
        *([SpotRole()] if wanted.node_roles else ()),
        default_manifest(wanted.cluster),
        *desired_home(wanted.cluster, wanted.manifests),
        ManagedCluster(wanted.stack.name, wanted.cluster),
        *(GroupTag(group, wanted.cluster) for group in wanted.groups),
        *(hook for group in wanted.groups for hook in desired_hooks(group)),
    )


def desired_entries(wanted: Wanted) -> Iterator[AccessEntry]:
    """Return the access entry of each role of the stack with its group, and of each node role."""
    for arn, group in sorted(wanted.stack.groups.items()):
        yield AccessEntry(arn, frozenset({group}))
    for arn in sorted(wanted.node_roles):
        yield AccessEntry(arn, type="EC2_WINDOWS" if arn in wanted.windows_roles else "EC2_LINUX")


@dataclass(frozen=True, slots=True)
class Change:
    """A setting before and after; None means that it is missing."""

    before: Setting | None
    after: Setting | None

    @property
    def key(self) -> str:
        """The key of the setting."""
        return self.setting.key

    @property
    def title(self) -> str:
        """The setting, as messages name it."""
        return self.setting.title

    @property
    def setting(self) -> Setting:
        """The setting after the change, or before it if the change removes it."""
        setting = self.after or self.before
        if setting is None:
            raise ValueError("a change has a setting before or after")
        return setting

    def call(self, cluster: str) -> str:
        """Return the AWS or Kubernetes call of this change, as a plan shows it."""
        if self.after is None:
            return str(self.setting.removal(cluster))
        return str(self.after.call(cluster, self.before))  # type: ignore[arg-type] # of one kind

    @property
    def inverse(self) -> "Change":
        """The change that undoes this one."""
        return Change(self.after, self.before)


@dataclass(frozen=True, slots=True)
class Step:
    """A change with its reason. `consent` names the setting of somebody else that it changes; None
    if it changes none."""

    change: Change
    reason: str
    consent: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a command does in a cluster. `warnings` do not stop it, `blockers` do; `left` says which
    settings it leaves as they are; `present_before` names those that were there before `leeway
    adopt`."""

    cluster: str
    steps: Sequence[Step]
    blockers: Sequence[str] = field(default_factory=tuple)
    warnings: Sequence[str] = field(default_factory=tuple)
    left: Sequence[str] = field(default_factory=tuple)
    present_before: Sequence[str] = field(default_factory=tuple)

    def as_data(self) -> dict[str, Any]:
        """Return the plan as the fields of a JSON document."""
        return {
            "cluster": self.cluster,
            "steps": [
                {
                    "setting": step.change.key,
                    "reason": step.reason,
                    "call": step.change.call(self.cluster),
                    "consent": step.consent,
                }
                for step in self.steps
            ],
            "blockers": [*self.blockers],
            "warnings": [*self.warnings],
            "left": [*self.left],
            "presentBefore": [*self.present_before],
        }


def difference(cluster: str, desired: Iterable[Setting], current: Mapping[str, Any]) -> Plan:
    """Return the steps from the current to the desired settings, none if the cluster is under care
    already. Settings that no step can change are blockers."""
    steps: list[Step] = []
    blockers: list[str] = []
    for one in desired:
        now = current.get(one.key)
        after = one.over(now)
        if after == now:
            continue
        blocked = after.blocker(cluster, now) if now is not None else None
        if blocked is not None:
            blockers.append(blocked)
        else:
            reason, consent = after.reason(cluster, now), after.consent(cluster, now, current)
            steps.append(Step(Change(now, after), reason, consent))
    return Plan(cluster, tuple(steps), tuple(blockers))


def recorded_change(recorded: Change | None, change: Change) -> Change:
    """Return the record of a change that adopt is about to make. `recorded` is the record of an
    earlier change of the same setting.

    If the setting is as the earlier change left it, release has to restore what was there before
    both. Otherwise somebody has changed it meanwhile, and release restores that.
    """
    if recorded is not None and change.before in (recorded.before, recorded.after):
        return Change(recorded.before, change.after)
    return change


def undo(
    recorded: Iterable[Change], current: Mapping[str, Any]
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Return the changes that undo an adoption, the last one first, and why other settings stay.
    `recorded` are the changes of adopt, the first one first.

    A change is undone if its setting still is as adopt left it. A setting that is as it was before
    adopt needs nothing: adopt stopped before the change, or release has undone it already.
    """
    changes: list[Change] = []
    left: list[str] = []
    for one in reversed([*recorded]):
        now = current.get(one.key)
        if not all(each is None or each.is_of_adopt for each in (one.before, one.after)):
            left.append(
                f"The {one.title} stays: it is in the record of the adoption, and `leeway adopt` "
                "never writes it. Find out who wrote the record."
            )
        elif now == one.before:
            continue
        elif now is not None and now.stays is not None:
            left.append(now.stays)
        elif now == one.after:
            changes.append(one.inverse)
        else:
            left.append(
                f"The {one.title} stays as it is: somebody changed it after `leeway adopt`."
            )
    return tuple(changes), tuple(left)
