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


@dataclass(frozen=True, slots=True)
class WatchedNodes:
    """The nodes of a cluster, as the run at `seen_at` found them.

    `quiet` is since when each node is quiet, by a hash of its name, its instance and its pods, with
    KEY_BYTES bytes: it is another one if a pod comes or goes. `held` is since when each decision is
    made, by a hash of its nodes and its cause.
    """

    seen_at: datetime
    quiet: Mapping[bytes, datetime]
    held: Mapping[bytes, datetime] = field(default_factory=dict)

    def is_stored_by(self, stored: "WatchedNodes | None") -> bool:
        """Whether the next run can go on from what is stored. What is held is stored by each run:
        it is soon forgotten."""
        if stored is None or self.held or (self.quiet, self.held) != (stored.quiet, stored.held):
            return False
        return timedelta(0) <= self.seen_at - stored.seen_at < STORED_EVERY


def encode(nodes: WatchedNodes) -> bytes:
    """Pack watched nodes for the table."""
    head = _HEAD.pack(nodes.seen_at.timestamp(), len(nodes.quiet))
    entries = (*nodes.quiet.items(), *nodes.held.items())
    return head + b"".join(_ENTRY.pack(key, at.timestamp()) for key, at in entries)


def decode(packed: bytes) -> WatchedNodes:
    """Return the watched nodes that were packed for the table."""
    seen_at, count = _HEAD.unpack_from(packed)
    entries = [
        (key, datetime.fromtimestamp(at, UTC))
        for key, at in _ENTRY.iter_unpack(packed[_HEAD.size :])
    ]
    quiet, held = dict(entries[:count]), dict(entries[count:])
    return WatchedNodes(datetime.fromtimestamp(seen_at, UTC), quiet, held)


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

    What the last run decided and this one does not is forgotten. What only a budget forbids is
    held, too, so that it goes as soon as the budget allows it.
    """
    known = before.held if before and _is_recent(before, watched.seen_at, FORGOTTEN_AFTER) else {}
    held = {key: known.get(key, now) for key in _keys([*decision.returns, *decision.waiting])}
    due = dict(zip(decision.returns, map(held.__getitem__, _keys(decision.returns)), strict=True))
    confirmed = tuple(one for one, since in due.items() if since + HELD_FOR <= now)
    later = (since + HELD_FOR for since in due.values() if since + HELD_FOR > now)
    return replace(watched, held=held), confirmed, min(later, default=None)


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
