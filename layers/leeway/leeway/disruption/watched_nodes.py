"""What the runs for a cluster have seen and decided: since when nodes are quiet, and the decisions
that wait until a later run confirms them.

All of it is in the table, and each run reads it, so that runs in two environments of the function
act as those in one. What is not known counts as now: a node is never quiet for longer than Leeway
has watched it, and no decision is confirmed earlier than it may be.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from leeway.disruption.snapshot import NodeReturn, ReturnDecision
from leeway.provisioning.cluster_state import NodeDetails

KEY_BYTES = 8

STORED_EVERY = timedelta(minutes=5)
"""How often what does not change is stored, so that it stays trusted."""

TRUSTED_FOR = timedelta(minutes=15)
"""How old known times may be: pods that came and left since then may not have been seen."""

HELD_FOR = timedelta(seconds=15)
"""How long after the first decision a second one has to agree. Source: Karpenter,
`consolidation.go`, consolidationTTL."""

FORGOTTEN_AFTER = timedelta(minutes=5)
"""A decision that no run has confirmed for so long is a first one again."""

DECIDES_AFTER = timedelta(minutes=2)
"""A run that launches nodes decides, too, if no run has decided for so long because all of them
launched nodes: an empty node costs money, and an expired one has to go."""


@dataclass(frozen=True, slots=True)
class WatchedNodes:
    """The nodes of a cluster, as the run at `seen_at` found them.

    `quiet` is since when each node is quiet, by a hash of its name, its instance and its pods, with
    KEY_BYTES bytes: it is another one if a pod comes or goes. `held` is since when each decision is
    made, by a hash of its nodes and its cause. `undecided_since` is since when runs have decided
    nothing, None if this one has.
    """

    seen_at: datetime
    quiet: Mapping[bytes, datetime]
    held: Mapping[bytes, datetime] = field(default_factory=dict)
    undecided_since: datetime | None = None

    def is_stored_by(self, stored: "WatchedNodes | None") -> bool:
        """Whether the next run can go on from what is stored. What is held is stored by each run:
        it is soon forgotten."""
        if stored is None or self.held or replace(self, seen_at=stored.seen_at) != stored:
            return False
        return timedelta(0) <= self.seen_at - stored.seen_at < STORED_EVERY


def encode(nodes: WatchedNodes) -> bytes:
    """Pack watched nodes for the table."""
    head = _HEAD.pack(nodes.seen_at.timestamp(), len(nodes.quiet))
    undecided = {_UNDECIDED: nodes.undecided_since} if nodes.undecided_since else {}
    entries = (*nodes.quiet.items(), *nodes.held.items(), *undecided.items())
    return head + b"".join(_ENTRY.pack(key, at.timestamp()) for key, at in entries)


def decode(packed: bytes) -> WatchedNodes:
    """Return the watched nodes that were packed for the table."""
    seen_at, count = _HEAD.unpack_from(packed)
    entries = [
        (key, datetime.fromtimestamp(at, UTC))
        for key, at in _ENTRY.iter_unpack(packed[_HEAD.size :])
    ]
    quiet, held = dict(entries[:count]), dict(entries[count:])
    undecided_since = held.pop(_UNDECIDED, None)
    return WatchedNodes(datetime.fromtimestamp(seen_at, UTC), quiet, held, undecided_since)


_UNDECIDED = bytes(KEY_BYTES)
"""The key of `undecided_since`. A release that does not know it reads a decision that no run
makes."""


_HEAD, _ENTRY = struct.Struct(">dI"), struct.Struct(f">{KEY_BYTES}sd")
"""When they were seen, and how many are quiet; a key with its time. 2,000 nodes have 32 KB in an
item of DynamoDB, which holds 400 KB."""


def watch(
    before: WatchedNodes | None, nodes: Mapping[str, NodeDetails], read_at: datetime
) -> tuple[WatchedNodes, Mapping[str, datetime]]:
    """Return the nodes as they are at `read_at`, and since when each is quiet, by its name."""
    known = before.quiet if before and _is_recent(before, read_at, TRUSTED_FOR) else {}
    keys = {name: _key_of_node(name, one) for name, one in nodes.items()}
    quiet = {key: _quiet(known.get(key), nodes[name], read_at) for name, key in keys.items()}
    since = {name: _since(quiet[key], nodes[name], read_at) for name, key in keys.items()}
    return WatchedNodes(read_at, quiet), since


def confirm(
    before: WatchedNodes | None, watched: WatchedNodes, decision: ReturnDecision, now: datetime
) -> tuple[WatchedNodes, tuple[NodeReturn, ...], datetime | None]:
    """Return the watched nodes with the decisions that are held; those that an earlier run has
    made in the same way; and when the next of the others can be confirmed.

    What the last run that decided has decided, and this one does not, is forgotten. What only a
    budget forbids is held, too, so that it goes as soon as the budget allows it.
    """
    known = _held(before, watched.seen_at)
    held = {key: known.get(key, now) for key in _keys([*decision.returns, *decision.waiting])}
    due = dict(zip(decision.returns, map(held.__getitem__, _keys(decision.returns)), strict=True))
    confirmed = tuple(one for one, since in due.items() if since + HELD_FOR <= now)
    later = (since + HELD_FOR for since in due.values() if since + HELD_FOR > now)
    return replace(watched, held=held), confirmed, min(later, default=None)


def undecided(before: WatchedNodes | None, watched: WatchedNodes) -> WatchedNodes:
    """Return the watched nodes of a run that decides nothing: what is held stays held."""
    since = before.undecided_since if before else None
    held = _held(before, watched.seen_at)
    return replace(watched, held=held, undecided_since=since or watched.seen_at)


def is_overdue(before: WatchedNodes | None, now: datetime) -> bool:
    """Whether a run that launches nodes decides, too."""
    since = before.undecided_since if before else None
    return since is not None and now - since >= DECIDES_AFTER


def _held(before: WatchedNodes | None, now: datetime) -> Mapping[bytes, datetime]:
    """Return the decisions that may be confirmed."""
    if before is None:
        return {}
    decided_at = before.undecided_since or before.seen_at
    return before.held if decided_at <= now <= decided_at + FORGOTTEN_AFTER else {}


def _is_recent(one: WatchedNodes, now: datetime, within: timedelta) -> bool:
    return one.seen_at <= now <= one.seen_at + within


def _key_of_node(name: str, node: NodeDetails) -> bytes:
    return _hash([name, node.instance, *sorted(one.uid for one in node.pods)])


def _keys(returns: Iterable[NodeReturn]) -> list[bytes]:
    return [_hash([one.cause, *sorted(one.nodes)]) for one in returns]


def _hash(parts: Iterable[str]) -> bytes:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=KEY_BYTES).digest()


def _quiet(before: datetime | None, node: NodeDetails, read_at: datetime) -> datetime:
    if node.is_busy(read_at):
        return read_at
    if node.changed_at is None:
        return before or read_at
    return max(before, node.changed_at) if before is not None else node.changed_at


def _since(since: datetime, node: NodeDetails, read_at: datetime) -> datetime:
    """The node was not quiet before it was Ready. A time in the future is clamped to now."""
    ready = node.ready_since if node.ready else read_at
    return max(since, min(ready, read_at)) if ready is not None else since
