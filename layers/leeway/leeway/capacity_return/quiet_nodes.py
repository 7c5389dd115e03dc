"""Since when no pod came to a node or left it. A warm function remembers it.

What is not known counts as now: a node is never quiet for longer than this function has watched it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from leeway.provisioning.node_details import NodeDetails


@dataclass(frozen=True, slots=True)
class _Quiet:
    instance: str
    pods: frozenset[str]
    since: datetime


class QuietNodes:
    """The nodes of clusters, as they were last seen."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _Quiet]] = {}

    def since(
        self, cluster: str, nodes: Mapping[str, NodeDetails], read_at: datetime
    ) -> Mapping[str, datetime]:
        """Return since when each node is quiet, and remember the nodes as they are at `read_at`."""
        before = self._known.get(cluster, {})
        now = {name: _seen(before.get(name), one, read_at) for name, one in nodes.items()}
        self._known[cluster] = now
        return {name: _since(one.since, nodes[name], read_at) for name, one in now.items()}


def _seen(before: _Quiet | None, node: NodeDetails, read_at: datetime) -> _Quiet:
    pods = frozenset(one.uid for one in node.pods)
    same = before is not None and (before.instance, before.pods) == (node.instance, pods)
    if before is None or not same or node.busy:
        return _Quiet(node.instance, pods, read_at)
    changed = node.changed_at is not None and node.changed_at > before.since
    return _Quiet(node.instance, pods, node.changed_at or read_at) if changed else before


def _since(since: datetime, node: NodeDetails, read_at: datetime) -> datetime:
    """The node was not quiet before it was Ready. A time in the future is clamped to now."""
    ready = node.ready_since if node.ready else read_at
    return max(since, min(ready, read_at)) if ready is not None else since
