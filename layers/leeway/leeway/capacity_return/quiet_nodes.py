"""Since when no pod came to a node or left it. A warm function remembers it; the table keeps it for
the next function.

What is not known counts as now: a node is never quiet for longer than Leeway has watched it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from leeway.provisioning.cluster_state import NodeDetails

KEY_BYTES = 8

STORED_EVERY = timedelta(minutes=5)
"""With a write for each run, a large cluster would cost five times as much."""

TRUSTED_FOR = timedelta(minutes=15)
"""How old known times may be: pods that came and left since then may not have been seen."""


@dataclass(frozen=True, slots=True)
class QuietTimes:
    """Since when the nodes of a cluster are quiet, by `key_of`, as it was seen at `seen_at`."""

    seen_at: datetime
    since: Mapping[bytes, datetime]

    def known_at(self, now: datetime) -> bool:
        """Whether they are young enough to be used."""
        return self.seen_at <= now <= self.seen_at + TRUSTED_FOR


class QuietRecords(Protocol):
    """The table's quiet times. A method may raise CloudUnavailable or CloudRefused."""

    def quiet(self, cluster: str) -> QuietTimes | None:
        """Read the times of a cluster's nodes; None if there are none."""
        ...

    def write_quiet(self, cluster: str, times: QuietTimes) -> None:
        """Replace them. The last writer wins."""
        ...


class QuietNodes:
    """The nodes of clusters, as they were last seen."""

    def __init__(self, records: QuietRecords) -> None:
        self._records = records
        self._known: dict[str, QuietTimes] = {}
        self._stored_at: dict[str, datetime] = {}

    def since(
        self, cluster: str, nodes: Mapping[str, NodeDetails], read_at: datetime
    ) -> Mapping[str, datetime]:
        """Return since when each node is quiet, and remember the nodes as they are at `read_at`.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        before = self._before(cluster, read_at)
        keys = {name: key_of(name, one) for name, one in nodes.items()}
        now = {key: _seen(before.get(key), nodes[name], read_at) for name, key in keys.items()}
        self._known[cluster] = QuietTimes(read_at, now)
        self._store(cluster, read_at)
        return {name: _since(now[key], nodes[name], read_at) for name, key in keys.items()}

    def keep(self, cluster: str) -> None:
        """Store the times that this function has just seen: another one may make the next run.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        known = self._known[cluster]
        if self._stored_at.get(cluster) != known.seen_at:
            self._records.write_quiet(cluster, known)
            self._stored_at[cluster] = known.seen_at

    def _before(self, cluster: str, read_at: datetime) -> Mapping[bytes, datetime]:
        known = self._known.get(cluster)
        if known is None or not known.known_at(read_at):
            known = self._records.quiet(cluster)
            if known is None or not known.known_at(read_at):
                return {}
            self._stored_at[cluster] = known.seen_at
        return known.since

    def _store(self, cluster: str, read_at: datetime) -> None:
        at = self._stored_at.get(cluster)
        if at is None or read_at - at >= STORED_EVERY:
            self.keep(cluster)


def key_of(name: str, node: NodeDetails) -> bytes:
    """Return the key of a node with just these pods, KEY_BYTES long: another one if a pod comes or
    goes, or if another instance has the node's name."""
    parts = [name, node.instance, *sorted(one.uid for one in node.pods)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=KEY_BYTES).digest()


def _seen(before: datetime | None, node: NodeDetails, read_at: datetime) -> datetime:
    if node.busy:
        return read_at
    if node.changed_at is None:
        return before or read_at
    return max(before, node.changed_at) if before is not None else node.changed_at


def _since(since: datetime, node: NodeDetails, read_at: datetime) -> datetime:
    """The node was not quiet before it was Ready. A time in the future is clamped to now."""
    ready = node.ready_since if node.ready else read_at
    return max(since, min(ready, read_at)) if ready is not None else since
