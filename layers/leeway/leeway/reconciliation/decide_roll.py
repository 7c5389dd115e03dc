"""Decides which nodes of an Auto Scaling group are replaced next because they drifted, and why
others wait.

Pure. The successor comes first: a group that cannot launch one keeps its nodes. After the first
successor that is never Ready no other node is replaced, until the group launches something else or
a person asks for it again: a template whose nodes never join costs no pod.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict

from leeway.instances.facts import GroupFacts, GroupRules
from leeway.instances.group_template import GroupMember, GroupNow, drift_of_member
from leeway.policy.rules import ClusterPolicy, GroupDrift
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason, ReasonCode
from leeway.retirement.decide_replacement import why_no_successor_first
from leeway.retirement.reasons import CLUSTER_PAUSED
from leeway.table import Record

GROUP_NODE_DRIFTED = ReasonCode("GroupNodeDrifted", "Node {node} of group {group} drifted. {why}")

GROUP_ROLL_WAITS = ReasonCode(
    "GroupRollWaits",
    "Group {group} has {count:node} to replace, and Leeway begins with none now: {why}",
    "the-nodes-of-a-group-are-not-replaced",
)

GROUP_ROLL_HALTED = ReasonCode(
    "GroupRollHalted",
    "Leeway replaces no further node of group {group} in cluster {cluster}: {why} The group "
    "launches from {launches}. Give it a launch template whose nodes join: Leeway goes on when the "
    "group launches something else, or after `leeway roll {group}`.",
    "a-group-launches-nodes-that-do-not-join",
)

TRIED_AGAIN_AFTER = timedelta(minutes=10)
"""How long after it was kept a node is not tried again: what kept it is likely to keep it still."""

JOINS_WITHIN = timedelta(minutes=10)
"""The age until which an instance without a Ready node counts as one that still joins."""

MOST_KEPT = 20
"""Nodes that were kept and that the record names."""


class KeptNode(BaseModel):
    """A node that was to be replaced and was kept, and why."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    at: AwareDatetime
    reason: Reason


class GroupRoll(BaseModel):
    """How far the nodes of a group have followed its launch template.

    - `asked_at`: when a person asked for it, with `max_unavailable`, `node_timeout` and `force` if
      these differ from the Cluster manifest's. None: the Cluster manifest has `groups.drift`.
    - `stopped_at`: when a person stopped it. `ended_at`: when no node was left.
    - `launches`: what the group launches, in words, and since when Leeway knows it.
    - `moving`: the instances that are being replaced, and when that began. `kept`: the last ones
      that were kept. `replaced`, `left`: numbers of nodes; `left` counts those in `moving`.
    - `waits`: why nothing more begins now. `halted`: why nothing more begins until this changes.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    group: str
    version: int = 0
    begun_at: AwareDatetime
    asked_at: AwareDatetime | None = None
    asked_by: str = ""
    max_unavailable: str = ""
    node_timeout: timedelta | None = None
    force: bool | None = None
    stopped_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    launches: str = ""
    launches_since: AwareDatetime | None = None
    moving: dict[str, AwareDatetime] = {}
    kept: dict[str, KeptNode] = {}
    replaced: int = 0
    left: int | None = None
    waits: Reason | None = None
    halted: Reason | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens until a person asks, or the group changes."""
        return self.ended_at is not None

    def changed(self, **update: object) -> "GroupRoll":
        """Return the next version of the record."""
        return self.model_copy(update={**update, "version": self.version + 1})

    def settings(self, policy: GroupDrift) -> GroupDrift:
        """Return how nodes are replaced: as the person asked, or as the manifest says."""
        if self.asked_at is None:
            return policy
        return GroupDrift(
            automatic=policy.automatic,
            max_unavailable=self.max_unavailable or policy.max_unavailable,
            node_timeout=self.node_timeout or policy.node_timeout,
            force=policy.force if self.force is None else self.force,
        )


GROUP_ROLL = Record(
    GroupRoll,
    "GROUPS#{cluster}",
    "ROLL#{group}",
    versioned=True,
    kept_for=lambda one: timedelta(days=30) if one.is_over else None,
)


class RollRefused(Exception):
    """A person asked for what the roll of a group does not allow now; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asks for. An option that is not given is that of the roll that is taken up
    again, or that of the Cluster manifest."""

    by: str = ""
    max_unavailable: str = ""
    node_timeout: timedelta | None = None
    force: bool | None = None


def ask_for_roll(
    stored: GroupRoll | None, cluster: str, group: str, asked: Asked, now: datetime
) -> GroupRoll:
    """Return the record of a group that a person asks to roll: a new roll, or one that was stopped
    or halted, which goes on.

    Raises:
        RollRefused: a roll that a person asked for is under way.
    """
    if stored is None or stored.is_over:
        version = stored.version if stored is not None else 0
        stored = GroupRoll(cluster=cluster, group=group, version=version, begun_at=now)
    elif stored.asked_at is not None and stored.stopped_at is None and stored.halted is None:
        raise RollRefused(
            f"A roll of group {group} is under way: {stored.asked_by or 'a person'} asked for it "
            f"at {stored.asked_at:%Y-%m-%d %H:%M} UTC."
        )
    # What was tried before the request does not halt the roll again.
    again: dict[str, object] = {"stopped_at": None, "halted": None, "waits": None, "kept": {}}
    again |= {"launches_since": now} if stored.launches else {}
    return stored.changed(
        asked_at=now,
        asked_by=asked.by,
        max_unavailable=asked.max_unavailable or stored.max_unavailable,
        node_timeout=asked.node_timeout or stored.node_timeout,
        force=stored.force if asked.force is None else asked.force,
        **again,
    )


def stop_roll(stored: GroupRoll | None, group: str, now: datetime) -> GroupRoll:
    """Return the record of a group whose roll begins with no other node from now on, also after the
    group launches something else: a roll that is stopped is not halted. The record of a roll that
    is stopped already is the same one.

    Raises:
        RollRefused: no roll is under way.
    """
    if stored is None or stored.is_over:
        raise RollRefused(f"No roll of group {group} is under way.")
    if stored.stopped_at is not None and stored.halted is None:
        return stored
    return stored.changed(stopped_at=stored.stopped_at or now, waits=None, halted=None)


@dataclass(frozen=True, slots=True)
class SeenMember:
    """An instance of the group that EC2 says runs in the cluster. `node` is its Node, None if it
    has none or several."""

    image: str
    launched_at: datetime
    node: Node | None


@dataclass(frozen=True, slots=True)
class RollDecision:
    """The instances to begin with, in order, and why each drifted; why no others begin now."""

    begin: Mapping[str, Reason] = field(default_factory=dict)
    waits: Reason | None = None


def drifted_members(group: GroupNow, images: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return why instances of a group drifted, by id. `images` are the AMIs that EC2 says they run:
    those of the instances of the cluster. An instance that leaves the group does not count."""
    return {
        one.instance: drift
        for one in group.members
        if one.instance in images
        and not one.lifecycle_state.startswith(("Terminating", "Detach", "Warmed"))
        and (drift := drift_of_member(one, images[one.instance], group))
    }


def decide_roll(
    roll: GroupRoll,
    group: GroupNow,
    rules: GroupRules,
    drifted: Mapping[str, tuple[str, ...]],
    seen: Mapping[str, SeenMember],
    retiring: Collection[str],
    policy: ClusterPolicy,
    budget: int,
    now: datetime,
) -> RollDecision:
    """Decide with which drifted nodes of a group to begin. `retiring` are its instances that retire
    for any reason, `budget` is how many nodes the disruption budget of the cluster still allows."""
    settings = roll.settings(policy.group_drift)
    staying = [one for one in group.members if one.instance in drifted]

    def waits(why: str) -> RollDecision:
        return RollDecision(waits=GROUP_ROLL_WAITS(group=group.name, count=len(staying), why=why))

    if why := _why_none(roll, group, rules, settings, policy, now):
        return waits(why)
    limit = settings.limit(len(seen))
    away = _unavailable(group, seen, retiring, now)
    if len(away) >= limit:
        named = ", ".join(sorted(away)[:3]) + (", …" if len(away) > 3 else "")
        return waits(f"maxUnavailable allows {limit} of its nodes, and {named} count already.")
    order = sorted(staying, key=lambda one: seen[one.instance].launched_at)
    problems = {one.instance: _why_not(one, roll, seen, settings, now) for one in order}
    free = [one for one in order if not problems[one.instance] and one.instance not in retiring]
    if not free:
        first = next((why for why in problems.values() if why), "its other nodes retire already.")
        return waits(first)
    if budget < 1:
        return waits("the disruption budget of the cluster allows no further node now.")
    room = max(1, (group.maximum - group.desired) // max(one.units for one in free))
    chosen = free[: min(limit - len(away), budget, room)]
    return RollDecision(
        {
            one.instance: GROUP_NODE_DRIFTED(
                node=_name(seen[one.instance]),
                group=group.name,
                why=" ".join(drifted[one.instance]),
            )
            for one in chosen
        }
    )


def _why_none(
    roll: GroupRoll,
    group: GroupNow,
    rules: GroupRules,
    settings: GroupDrift,
    policy: ClusterPolicy,
    now: datetime,
) -> str:
    """Return why no node of the group may begin; empty if one may."""
    if policy.paused:
        return CLUSTER_PAUSED(cluster=roll.cluster).message
    if policy.dry_run:
        return "the cluster is in dry-run mode."
    if roll.asked_at is None and (why := _why_closed(settings, now)):
        return why
    usual = {one.name: getattr(rules, one.name) for one in fields(GroupRules)}
    units = max((one.units for one in group.members), default=1)
    facts = GroupFacts(
        **usual,
        lifecycle_state="InService",
        desired=group.desired,
        maximum=group.maximum,
        units=units,
    )
    held = why_no_successor_first(facts)
    return held.message if held else ""


def _why_closed(settings: GroupDrift, now: datetime) -> str:
    """Return that no maintenance window is open; empty if one is, or there is none."""
    if not settings.windows or any(one.is_open(now) for one in settings.windows):
        return ""
    opens = [at for one in settings.windows if (at := one.next_opening(now)) is not None]
    when = f"at {min(opens):%Y-%m-%d %H:%M} UTC" if opens else "no time soon"
    return f"no maintenance window is open. The next one opens {when}."


def _unavailable(
    group: GroupNow, seen: Mapping[str, SeenMember], retiring: Collection[str], now: datetime
) -> set[str]:
    """Return the instances in service that are unavailable: they retire, or have no Ready node
    although they had the time to join."""
    found = {one.instance for one in group.members if one.instance in retiring}
    for one in group.members:
        member = seen.get(one.instance)
        if member is None or one.lifecycle_state != "InService":
            continue
        ready = member.node is not None and member.node.ready
        if not ready and now - member.launched_at >= JOINS_WITHIN:
            found.add(one.instance)
    return found


def _why_not(
    one: GroupMember,
    roll: GroupRoll,
    seen: Mapping[str, SeenMember],
    settings: GroupDrift,
    now: datetime,
) -> str:
    """Return why a drifted instance is not replaced now; empty if it may be."""
    name, member = one.instance, seen[one.instance]
    if one.lifecycle_state != "InService":
        return f"instance {name} is in lifecycle state {one.lifecycle_state}."
    if one.protected and not settings.force:
        return f"instance {name} is protected from scale-in."
    if member.node is None:
        return f"instance {name} has no Node in the cluster, or several."
    if not member.node.ready:
        return f"node {member.node.name} is not Ready."
    kept = roll.kept.get(name)
    if kept is not None and now - kept.at < TRIED_AGAIN_AFTER:
        return f"node {member.node.name} was kept, and is tried again later. {kept.reason.message}"
    return ""


def _name(member: SeenMember) -> str:
    return member.node.name if member.node is not None else ""


def first_kept(kept: Mapping[str, KeptNode]) -> Iterator[tuple[str, KeptNode]]:
    """Yield the nodes that were kept last, of which the record has MOST_KEPT."""
    latest = sorted(kept.items(), key=lambda one: one[1].at, reverse=True)
    yield from latest[:MOST_KEPT]
