"""Counts what runs in a cluster, from the entries of journals."""

from collections.abc import Mapping, Sequence
from typing import Any


class ReadyCounts:
    """Counts Ready nodes and running pods from journal entries."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._pods: set[str] = set()

    @property
    def ready(self) -> int:
        """The number of Ready nodes."""
        return len(self._nodes)

    @property
    def running(self) -> int:
        """The number of running pods."""
        return len(self._pods)

    def update(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Apply new journal entries, in their order."""
        for entry in entries:
            match entry["kind"]:
                case "node-ready":
                    self._nodes.add(entry["node"])
                case "node-deleted":
                    self._nodes.discard(entry["node"])
                case "pod-running":
                    self._pods.add(entry["uid"])
                case "pod-ended":
                    self._pods.discard(entry["uid"])
