"""Reconciles each changed thing once, however often it changed, without blocking the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from sandbox.kubernetes.cluster import Cluster

_SLICE_SECONDS = 0.01


class WorkQueue[Item: Hashable]:
    """Items to reconcile, in the order they came, each once.

    Work begins `after` some seconds, so that changes that come together are one, and is done in
    slices of some milliseconds, between which the API answers requests.
    """

    def __init__(
        self, cluster: Cluster, reconcile: Callable[[Item], None], *, after: float = 0.0
    ) -> None:
        self._cluster = cluster
        self._reconcile = reconcile
        self._after = after
        self._items: dict[Item, None] = {}
        self._running = False

    def add(self, item: Item) -> None:
        """Have an item reconciled soon."""
        self._items[item] = None
        if not self._running:
            self._running = True
            self._cluster.later(self._after, self._work)

    def _work(self) -> None:
        until = time.monotonic() + _SLICE_SECONDS
        while self._items and time.monotonic() < until:
            item = next(iter(self._items))
            del self._items[item]
            self._reconcile(item)
        if self._items:
            self._cluster.soon(self._work)
        else:
            self._running = False
