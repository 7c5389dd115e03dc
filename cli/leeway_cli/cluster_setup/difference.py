"""Compares the current settings of a cluster with the desired ones, and returns the changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leeway.launch.reasons import SPOT_ROLE_MISSING

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
    reason: str
    consent: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """The steps from the current to the desired settings, in their order. `blockers` are settings
    that no step can change."""

    steps: tuple[Step, ...] = ()
    blockers: tuple[str, ...] = ()


def difference(cluster: str, desired: Iterable[Setting], current: Settings) -> Difference:
    """Return the steps that bring a cluster under care; none if it is under care already."""
    steps: list[Step] = []
    blockers: list[str] = []
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


def _blocker(cluster: str, now: Setting, after: Setting) -> str | None:
    match now, after:
        case AccessEntry(), AccessEntry():
            expected = after.type if now.type == STANDARD else STANDARD
            if now.type == after.type == STANDARD:
                return None
            return (
                f"The access entry of {now.principal} has the type {now.type}, which EKS cannot "
                f"change to {expected}. Delete it with `aws eks delete-access-entry --cluster-name "
                f"{cluster} --principal-arn {now.principal}`."
            )
        case ClusterObject(), ClusterObject():
            was, becomes = now.body, after.body
            for name in _IMMUTABLE.get(after.kind, ()):
                if was.get(name) != becomes.get(name):
                    return (
                        f"{after.title} exists with another {name}, which Kubernetes cannot "
                        f"change. Delete it with `kubectl delete {after.kind.lower()} "
                        f"{after.name}`."
                    )
    return None


def _reason_of_group(cluster: str, now: Setting | None, after: GroupTag | GroupHook) -> str:
    match after:
        case GroupTag(group=group, tag=tag):
            if not isinstance(now, GroupTag):
                return (
                    f"Group {group} has no tag {tag}, so that Leeway may not replace its "
                    f"instances. Run `leeway adopt {cluster} --group {group}`."
                )
            return (
                f"The tag {tag} of group {group} is {now.value!r} (propagated: {now.propagated}). "
                f"Run `leeway adopt {cluster} --group {group}`."
            )
        case GroupHook(group=group, name=name):
            if not isinstance(now, GroupHook):
                return (
                    f"Group {group} has no lifecycle hook {name}. Run `leeway adopt {cluster} "
                    f"--group {group}`."
                )
            return (
                f"The lifecycle hook {name} of group {group} has {fields_of(now)}. Run `leeway "
                f"adopt {cluster} --group {group}`."
            )


def _reason(cluster: str, change: Change) -> str:
    now = change.before
    match change.after:
        case Authentication():
            return (
                f"Cluster {cluster} has the authentication mode CONFIG_MAP, which has no access "
                f"entries. Run `leeway adopt {cluster}`."
            )
        case AccessEntry(principal=principal) as entry:
            if not isinstance(now, AccessEntry):
                return (
                    f"Cluster {cluster} has no access entry for {principal}. Run `leeway adopt "
                    f"{cluster}`."
                )
            lacks = _list(entry.groups - now.groups)
            return (
                f"The access entry of {principal} does not have the group {lacks}. Run `leeway "
                f"adopt {cluster}`."
            )
        case ClusterObject(title=title):
            if now is None:
                return f"Cluster {cluster} has no {title}. Run `leeway adopt {cluster}`."
            return f"{title} differs from this version of Leeway. Run `leeway adopt {cluster}`."
        case GroupTag() | GroupHook() as of_group:
            return _reason_of_group(cluster, now, of_group)
        case ClusterManifest():
            return (
                f"The table of Leeway has no manifest cluster/{cluster}. Run `leeway adopt "
                f"{cluster}`."
            )
        case ManagedCluster(stack=stack):
            return (
                f"ClusterNames of stack {stack} does not have {cluster}. Run `leeway adopt "
                f"{cluster}`."
            )
        case SpotRole():
            return str(SPOT_ROLE_MISSING())
    raise ValueError("a step of adopt removes no setting")


def _consent(cluster: str, change: Change, current: Settings) -> str | None:
    match change.before, change.after:
        case Authentication(), Authentication(mode=mode):
            return (
                f"The authentication mode of cluster {cluster} changes to {mode}. EKS cannot "
                "switch it back."
            )
        case AccessEntry() as now, AccessEntry() as after:
            added = _list(after.groups - now.groups)
            return (
                f"The access entry of {now.principal} exists with the groups {_list(now.groups)}; "
                f"it also gets {added}."
            )
        case ClusterObject(ours=False) as now, _:
            return (
                f"{now.title} exists without a label or field manager of Leeway; its content is "
                "replaced."
            )
        case GroupTag() as now, GroupTag() as after:
            return (
                f"The tag {now.tag} of group {now.group} is {now.value!r} (propagated: "
                f"{now.propagated}); it becomes {after.value!r}."
            )
        case GroupHook() as now, _:
            return (
                f"Group {now.group} already has a lifecycle hook {now.name}, with "
                f"{fields_of(now)}; it is replaced."
            )
        case None, GroupHook() as hook:
            return _beside(hook, current)
    return None


def _beside(hook: GroupHook, current: Settings) -> str | None:
    others = [one.name for one in other_hooks(hook, current)]
    if not others:
        return None
    return (
        f"Group {hook.group} already has the lifecycle hook {_list(others)} on {hook.transition}; "
        f"instances will wait for it and for {hook.name}."
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
