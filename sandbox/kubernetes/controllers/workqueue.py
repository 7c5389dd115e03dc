"""Reconciles each changed thing once, however often it changed, without blocking the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

from sandbox.kubernetes.cluster import Cluster

_log = logging.getLogger(__name__)
_SLICE_SECONDS = 0.01
_RESTS = 4  # times as long as it worked: a set of thousands takes a while to look at


class WorkQueue[Item: Hashable]:
    """Items to reconcile, in the order they came, each once.

    Work begins `after` some seconds, so that changes that come together are one, or later where
    that would take more than a fifth of the processor; and is done in slices of some milliseconds,
    between which the API answers requests.
    """

    def __init__(
        self, cluster: Cluster, reconcile: Callable[[Item], None], *, after: float = 0.0
    ) -> None:
        self._cluster = cluster
        self._reconcile = reconcile
        self._after = after
        self._items: dict[Item, None] = {}
        self._running = False
        self._worked = 0.0

    def add(self, item: Item) -> None:
        """Have an item reconciled soon."""
        self._items[item] = None
        if not self._running:
            self._running = True
            self._cluster.later(max(self._after, _RESTS * self._worked), self._work)
            self._worked = 0.0

    def _work(self) -> None:
        began = time.monotonic()
        while self._items and time.monotonic() < began + _SLICE_SECONDS:
            item = next(iter(self._items))
            del self._items[item]
            try:
                self._reconcile(item)
            except Exception:  # noqa: BLE001 (a controller goes on, whatever one item does)
                _log.exception("%s failed for %s", self._reconcile, item)
        self._worked += time.monotonic() - began
        if self._items:
            self._cluster.soon(self._work)
        else:
            self._running = False
