"""Handles watches: sends the changes since a version, then each new change."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator

from leeway_sandbox.kubernetes import errors, registry, tables
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.objects import Object
from leeway_sandbox.kubernetes.reading import candidates, selection, shown, version_of
from leeway_sandbox.kubernetes.store import Change, Store, watch_line
from leeway_sandbox.lag import lag

_BOOKMARK_SECONDS = 60.0
_SHORTEST_TIMEOUT = 1800
_MOST_PENDING = 100_000


class Watch:
    """The watch of one client: its selection, and the lines that are not sent yet."""

    def __init__(self, store: Store, call: Call) -> None:
        self._store = store
        self._call = call
        self._equal, self._test = selection(call)
        self._namespace = call.target.namespace
        self._pending: collections.deque[bytes] = collections.deque()
        self._arrived = asyncio.Event()
        self._as_they_are = not tables.form_of(call.accept, of_list=False)
        self._bookmarks = call.query.get("allowWatchBookmarks") in ("1", "true")
        # A version that is still to come is accepted: the watch is silent until it has come.
        self._version = version_of(call)
        usual = round(_SHORTEST_TIMEOUT * random.uniform(1, 2))
        self._timeout = call.number("timeoutSeconds", usual)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield chunks of whole lines until the timeout of the watch."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        bookmark = min(end, loop.time() + _BOOKMARK_SECONDS)
        with contextlib.ExitStack() as stack:
            stack.callback(self._listen())
            try:
                self._pending.extend(self._backlog())
            except errors.ApiError as error:
                yield watch_line("ERROR", error.status)
                return
            while True:
                if self._pending:
                    await asyncio.sleep(lag())
                    chunk = b"".join(self._pending)
                    self._pending.clear()
                    yield chunk
                now = loop.time()
                if now >= end or len(self._pending) > _MOST_PENDING:
                    return
                self._arrived.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), bookmark - now)
                if loop.time() >= bookmark:
                    bookmark = min(end, bookmark + _BOOKMARK_SECONDS)
                    if self._bookmarks and self._store.revision >= (self._version or 0):
                        self._pending.append(self._bookmark())

    def _listen(self) -> Callable[[], None]:
        node = self._equal.get("spec.nodeName")
        if node and self._call.kind is registry.POD:
            return self._store.listen_on(node, self._changed)
        return self._store.listen(self._call.kind, self._changed)

    def _backlog(self) -> Iterator[bytes]:
        """Yield the initial lines: all present objects, or all changes since a version."""
        initial = self._call.query.get("sendInitialEvents") == "true"
        if not self._version or initial:
            for obj in candidates(self._store, self._call, self._equal):
                if self._selects(obj):
                    yield self._shown("ADDED", obj)
            if initial:
                yield self._bookmark({"k8s.io/initial-events-end": "true"})
            return
        for change in self._store.since(self._version):
            if change.kind == self._call.kind:
                line = self._line(change)
                if line is not None:
                    yield line

    def _changed(self, change: Change) -> None:
        if change.revision <= (self._version or 0):
            return
        line = self._line(change)
        if line is not None:
            self._pending.append(line)
            self._arrived.set()

    def _selects(self, obj: Object) -> bool:
        if self._namespace and obj["metadata"].get("namespace") != self._namespace:
            return False
        return self._test is None or self._test(obj)

    def _line(self, change: Change) -> bytes | None:
        """Return the event for this watch; an object that leaves the selection is DELETED."""
        selects = self._selects(change.object)
        event_type: str = change.type
        if change.type == "MODIFIED" and change.previous is not None and self._test is not None:
            selected = self._selects(change.previous)
            if selected and not selects:
                return self._shown("DELETED", _last_selected(change.previous, change.object))
            if selects and not selected:
                event_type = "ADDED"
        if not selects:
            return None
        if self._as_they_are and change.kind is self._call.kind:
            return change.line(event_type)
        return self._shown(event_type, change.object)

    def _shown(self, event_type: str, obj: Object) -> bytes:
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return watch_line(event_type, shown(self._call, obj, version))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        metadata: Object = {"resourceVersion": str(self._store.revision)}
        if annotations:
            metadata["annotations"] = annotations
        kind: registry.Kind = self._call.kind
        return watch_line("BOOKMARK", kind.typed({"metadata": metadata}))


def _last_selected(before: Object, now: Object) -> Object:
    """Return an object as it last was in a selection, with the version of the change."""
    version = now["metadata"]["resourceVersion"]
    return {**before, "metadata": {**before["metadata"], "resourceVersion": version}}
