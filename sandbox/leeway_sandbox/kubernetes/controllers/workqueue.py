"""A queue of changed items, each reconciled once, that does not block the event loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

from leeway_sandbox.kubernetes.cluster import Cluster

_log = logging.getLogger(__name__)
_SLICE_SECONDS = 0.01
_RESTS = 4  # times as long as the last work, which takes long for sets of thousands


class WorkQueue[Item: Hashable]:
    """Items to reconcile, in order of arrival, each once.

    Work starts `after` some seconds, so that several changes are reconciled together, or later if
    it would use more than a fifth of the processor. It runs in slices of some milliseconds, between
    which the API answers requests.
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
        """Add an item."""
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
            except Exception:  # noqa: BLE001 (an error of one item must not stop the controller)
                _log.exception("%s failed for %s", self._reconcile, item)
        self._worked += time.monotonic() - began
        if self._items:
            self._cluster.soon(self._work)
        else:
            self._running = False
