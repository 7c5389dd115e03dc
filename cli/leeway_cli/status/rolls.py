"""How far the nodes of Auto Scaling groups have followed their launch templates."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.durations import render_duration
from leeway.printable import printable
from leeway.reasons import counted
from leeway.reconciliation.decide_roll import GROUP_ROLL, GroupRoll
from leeway.retirement.context import DRAIN_STATE, DrainState
from leeway.retirement.progress import Stage
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import Report, Table

from leeway_cli.output import as_json, picked


@dataclass(frozen=True, slots=True)
class MovingNode:
    """A node that is being replaced. `waits_for` is its step in a sentence: the disruption budget,
    its successor, or its pods."""

    instance: str
    node: str
    waits_for: str


@dataclass(frozen=True, slots=True)
class RollStatus:
    """The roll of a group, and the nodes that are being replaced."""

    roll: GroupRoll
    moving: tuple[MovingNode, ...] = ()

    @property
    def total(self) -> int | None:
        """How many nodes it replaces; None before reconcile has read the group."""
        roll = self.roll
        return None if roll.left is None else roll.replaced + roll.left

    @property
    def state(self) -> str:
        """`ended`, `stopped`, `halted`, `rolling`, `waits`, or `asked` if reconcile has not read
        the request."""
        roll = self.roll
        for at, name in (
            (roll.ended_at, "ended"),
            (roll.stopped_at, "stopped"),
            (roll.halted, "halted"),
            (self.moving, "rolling"),
            (roll.waits, "waits"),
        ):
            if at:
                return name
        return "asked" if roll.left is None else "rolling"


def read_rolls(
    records: Table, cluster: str, group: str = "", unreadable: Report = lambda _: None
) -> tuple[RollStatus, ...]:
    """Read the rolls of a cluster, or of one group. `unreadable` takes what cannot be read.

    Raises:
        CloudUnavailable, CloudRefused: the table cannot be read.
        UnreadableRecord: the roll of the group that is named cannot be read.
    """
    rolls: Sequence[GroupRoll]
    if group:
        found = records.get(GROUP_ROLL, cluster=cluster, group=group)
        rolls = [found] if found else []
    else:
        rolls = records.list(GROUP_ROLL, cluster=cluster, unreadable=unreadable)
    keys = [{"cluster": cluster, "instance": one} for roll in rolls for one in roll.moving]
    if not keys:
        return tuple(map(RollStatus, rolls))
    retirements = records.get_many(RETIREMENT, keys, unreadable=unreadable)
    drains = records.get_many(DRAIN_STATE, keys, unreadable=unreadable)
    by_instance = {one.instance: one for one in retirements}
    states = {one.instance: one for one in drains}
    return tuple(
        RollStatus(
            roll,
            tuple(
                _moving(instance, roll, by_instance.get(instance), states.get(instance))
                for instance in sorted(roll.moving)
            ),
        )
        for roll in rolls
    )


def _moving(
    instance: str, roll: GroupRoll, record: Retirement | None, drain: DrainState | None
) -> MovingNode:
    if record is None or record.noticed_at < roll.moving[instance]:
        return MovingNode(instance, "", "its retirement begins.")
    current = drain if drain is not None and drain.attempt == record.attempt else None
    node = (current and current.node) or record.facts.private_dns_name
    return MovingNode(instance, node, _waits_for(record, current))


def _waits_for(record: Retirement, drain: DrainState | None) -> str:
    """Say what comes next in a retirement: what keeps it, its pods, its successor, or its begin."""
    if not record.is_open:
        return f"its retirement has ended: {record.reason.message}"
    if drain is not None and drain.problem is not None:
        return drain.problem.message
    if drain is not None and record.drain_began_at is not None and drain.pods:
        blocked = [one for one in drain.pods if one.stage is Stage.BLOCKED]
        if blocked:
            return f"pod {blocked[0].pod}: {blocked[0].reason.message}"
        gone = Counter(one.stage for one in drain.pods)[Stage.GONE]
        return f"{gone} of its {len(drain.pods)} pods are gone."
    if record.drain_began_at is not None:
        return "its pods are evicted."
    intent = record.replacement_intent
    if intent is None or intent.attempt != record.attempt:
        return "it is cordoned within the disruption budget of the cluster."
    named = ", ".join(one.instance for one in intent.successors)
    waits = f"its successor {named} is not ready for pods yet."
    return waits if named else "its successor is launched."


def roll_lines(one: RollStatus) -> Iterator[str]:
    """Yield what a person sees of a roll: how far it is, then what it waits for."""
    roll = one.roll
    head = f"{one.state}: {roll.replaced} of {one.total} nodes replaced"
    if one.total is None:
        head = "asked: reconcile, which runs every minute, has not read the group yet"
    if roll.asked_by:
        head += f", asked for by {printable(roll.asked_by)}"
    yield head
    for moving in one.moving:
        yield printable(f"{moving.node or moving.instance}: {moving.waits_for}")
    for why in (roll.halted, roll.waits):
        if why is not None:
            yield printable(f"{why.code}: {why.message}")
    if roll.stopped_at is not None:
        yield f"stopped; `leeway roll {printable(roll.group)}` takes it up again"
    if roll.kept:
        yield f"{counted(len(roll.kept), 'node was kept', 'nodes were kept')} and tried again later"


def roll_as_data(one: RollStatus) -> dict[str, Any]:
    """Render a roll as JSON."""
    roll = one.roll
    return {
        **picked(roll, "cluster", "group"),
        **picked(one, "state"),
        **picked(roll, "replaced", "left", "launches", "waits", "halted"),
        "moving": [as_json(moving) for moving in one.moving],
        "kept": [
            {"instance": name, **picked(kept, "at", "reason")} for name, kept in roll.kept.items()
        ],
        **picked(roll, "asked_at", "asked_by", "stopped_at", "ended_at", "max_unavailable"),
        "timeout": render_duration(roll.node_timeout) if roll.node_timeout else None,
        **picked(roll, "force"),
    }


def rolls_now(rolls: Sequence[RollStatus]) -> tuple[RollStatus, ...]:
    """Return the rolls that have not ended."""
    return tuple(one for one in rolls if not one.roll.is_over)
