"""Compares the current settings of a cluster with the desired ones, and returns the changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leeway.launch.fleet_errors import SPOT_ROLE_MISSING
from leeway.reasons import Reason

from leeway_cli.cluster_setup import reasons
from leeway_cli.cluster_setup.settings import (
    STANDARD,
    AccessEntry,
    Authentication,
    ClusterManifest,
    ClusterObject,
    GroupHook,
    GroupTag,
    ManagedCluster,
    Setting,
    Settings,
    SpotRole,
)

_IMMUTABLE = {
    "ClusterRoleBinding": ("roleRef",),
    "RoleBinding": ("roleRef",),
    "PriorityClass": ("value", "preemptionPolicy"),
}
"""Fields that the API server refuses to change. Source: Kubernetes API reference."""


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

    @property
    def inverse(self) -> "Change":
        """The change that undoes this one."""
        return Change(self.after, self.before)


@dataclass(frozen=True, slots=True)
class Step:
    """A change with its reason. `consent` names the setting of somebody else that it changes; None
    if it changes none."""

    change: Change
    reason: Reason
    consent: Reason | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """The steps from the current to the desired settings, in their order. `blockers` are settings
    that no step can change."""

    steps: tuple[Step, ...] = ()
    blockers: tuple[Reason, ...] = ()


def difference(cluster: str, desired: Iterable[Setting], current: Settings) -> Difference:
    """Return the steps that bring a cluster under care; none if it is under care already."""
    steps: list[Step] = []
    blockers: list[Reason] = []
    for one in desired:
        now = current.get(one.key)
        after = one.over(now)  # type: ignore[arg-type] # the keys are the same, so the kinds are
        if after == now:
            continue
        blocked = _blocker(cluster, now, after) if now is not None else None
        if blocked is not None:
            blockers.append(blocked)
        else:
            change = Change(now, after)
            steps.append(Step(change, _reason(cluster, change), _consent(cluster, change, current)))
    return Difference(tuple(steps), tuple(blockers))


def _blocker(cluster: str, now: Setting, after: Setting) -> Reason | None:
    match now, after:
        case AccessEntry(), AccessEntry():
            expected = after.type if now.type == STANDARD else STANDARD
            if now.type == after.type == STANDARD:
                return None
            return reasons.ENTRY_OF_OTHER_TYPE(
                cluster=cluster, principal=now.principal, type=now.type, expected=expected
            )
        case ClusterObject(), ClusterObject():
            was, becomes = now.body, after.body
            for name in _IMMUTABLE.get(after.kind, ()):
                if was.get(name) != becomes.get(name):
                    return reasons.OBJECT_IMMUTABLE(
                        object=after.title, field=name, kind=after.kind.lower(), name=after.name
                    )
    return None


def _reason(cluster: str, change: Change) -> Reason:
    now = change.before
    match change.after:
        case Authentication():
            return reasons.MODE_WITHOUT_ENTRIES(cluster=cluster)
        case AccessEntry(principal=principal) as entry:
            if not isinstance(now, AccessEntry):
                return reasons.ENTRY_MISSING(cluster=cluster, principal=principal)
            lacks = _list(entry.groups - now.groups)
            return reasons.ENTRY_WITHOUT_GROUP(cluster=cluster, principal=principal, groups=lacks)
        case ClusterObject(title=title):
            code = reasons.OBJECT_MISSING if now is None else reasons.OBJECT_DIFFERS
            return code(cluster=cluster, object=title)
        case GroupTag(group=group, tag=tag):
            if not isinstance(now, GroupTag):
                return reasons.TAG_MISSING(cluster=cluster, group=group, tag=tag)
            return reasons.TAG_DIFFERS(
                cluster=cluster, group=group, tag=tag, value=now.value, propagated=now.propagated
            )
        case GroupHook(group=group, name=name):
            if not isinstance(now, GroupHook):
                return reasons.HOOK_MISSING(cluster=cluster, group=group, hook=name)
            return reasons.HOOK_DIFFERS(
                cluster=cluster, group=group, hook=name, fields=fields_of(now)
            )
        case ClusterManifest():
            return reasons.CLUSTER_MANIFEST_MISSING(cluster=cluster)
        case ManagedCluster(stack=stack):
            return reasons.CLUSTER_NAME_MISSING(cluster=cluster, stack=stack)
        case SpotRole():
            return SPOT_ROLE_MISSING()
    raise ValueError("a step of adopt removes no setting")


def _consent(cluster: str, change: Change, current: Settings) -> Reason | None:
    match change.before, change.after:
        case Authentication(), Authentication(mode=mode):
            return reasons.SWITCH_IS_PERMANENT(cluster=cluster, mode=mode)
        case AccessEntry() as now, AccessEntry() as after:
            added = _list(after.groups - now.groups)
            return reasons.ENTRY_OF_OTHERS(
                principal=now.principal, groups=_list(now.groups), added=added
            )
        case ClusterObject(ours=False) as now, _:
            return reasons.OBJECT_OF_OTHERS(object=now.title)
        case GroupTag() as now, GroupTag() as after:
            return reasons.TAG_OF_OTHERS(
                group=now.group,
                tag=now.tag,
                value=now.value,
                propagated=now.propagated,
                new=after.value,
            )
        case GroupHook() as now, _:
            return reasons.HOOK_OF_OTHERS(group=now.group, hook=now.name, fields=fields_of(now))
        case None, GroupHook() as hook:
            return _beside(hook, current)
    return None


def _beside(hook: GroupHook, current: Settings) -> Reason | None:
    others = [one.name for one in other_hooks(hook, current)]
    if not others:
        return None
    return reasons.HOOK_BESIDE_ANOTHER(
        group=hook.group, hook=hook.name, transition=hook.transition, others=_list(others)
    )


def other_hooks(hook: GroupHook, current: Settings) -> Sequence[GroupHook]:
    """Return the hooks of other names on the same transition of the same group."""
    return [
        one
        for one in current.values()
        if isinstance(one, GroupHook)
        and (one.group, one.transition) == (hook.group, hook.transition)
        and one.name != hook.name
    ]


def fields_of(hook: GroupHook) -> str:
    """Return the fields of a hook, as messages name them."""
    target = f", target {hook.target}" if hook.target else ""
    return f"{hook.transition}, timeout {hook.timeout} s, default {hook.default}{target}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
