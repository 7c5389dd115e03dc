"""The store of all objects: one resource version, and the recent changes for watches."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Literal

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.objects import (
    Object,
    encode,
    key_of,
    name_of,
    namespace_of,
    timestamp,
    uid_of,
)
from leeway_sandbox.kubernetes.registry import POD, Kind

type Key = tuple[str, str]
type ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
type Listener = Callable[[Change], None]


@dataclasses.dataclass(slots=True, eq=False)
class Change:
    """One committed change: the new and the previous object."""

    type: ChangeType
    kind: Kind
    revision: int
    object: Object
    previous: Object | None
    _line: bytes | None = None

    def line(self, as_type: str) -> bytes:
        """Return the watch event as a JSON line, which is encoded once for all watches."""
        if as_type != self.type:
            return watch_line(as_type, self.kind.typed(self.object))
        if self._line is None:
            self._line = watch_line(self.type, self.kind.typed(self.object))
        return self._line


def watch_line(event_type: str, obj: Object) -> bytes:
    """Return one line of the answer of a watch."""
    return encode({"type": event_type, "object": obj}) + b"\n"


class _Table:
    """The objects of one kind, in list order."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.order: list[Key] = []


class Store:
    """Objects by kind, namespace and name, with indexes for frequent lookups.

    Stored objects are shared with every reader and must not be changed in place. Listeners are
    called for each change after its commit, in order, and never from within another listener.
    """

    def __init__(self, history: int = 20_000) -> None:
        self.revision = 0
        self._began = 0
        self._by_node: dict[str, dict[str, Key]] = collections.defaultdict(dict)
        self._tables: dict[Kind, _Table] = collections.defaultdict(_Table)
        self._by_owner: dict[str, dict[str, tuple[Kind, Key]]] = collections.defaultdict(dict)
        self._history: collections.deque[Change] = collections.deque(maxlen=history)
        self._listeners: dict[Kind | None, list[Listener]] = collections.defaultdict(list)
        self._listeners_on: dict[str, list[Listener]] = collections.defaultdict(list)
        self._undelivered: collections.deque[Change] = collections.deque()
        self._delivering = False

    @property
    def oldest(self) -> int:
        """Return the earliest version after which all changes are in the history."""
        return max(self._began, self._history[0].revision - 1 if self._history else 0)

    # Reading

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object, or None."""
        return self._tables[kind].objects.get((namespace, name))

    def read(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return the object; 404 if it does not exist."""
        found = self.get(kind, namespace, name)
        if found is None:
            raise errors.not_found(kind, name)
        return found

    def current(self, kind: Kind, obj: Object) -> Object | None:
        """Return the present form of an object; None if it is deleted or replaced."""
        found = self.get(kind, namespace_of(obj), name_of(obj))
        return found if found is not None and uid_of(found) == uid_of(obj) else None

    def count(self, kind: Kind) -> int:
        """Return the number of objects of a kind."""
        return len(self._tables[kind].objects)

    def every(self, kind: Kind, namespace: str = "", after: Key | None = None) -> Iterator[Object]:
        """Yield the objects sorted by namespace and name, starting after the key `after`."""
        table = self._tables[kind]
        start = bisect.bisect_right(table.order, after) if after else 0
        if namespace:
            start = max(start, bisect.bisect_left(table.order, (namespace, "")))
        for key in table.order[start:]:
            if namespace and key[0] != namespace:
                return
            yield table.objects[key]

    def on_node(self, node: str) -> list[Object]:
        """Return the pods of a node, in list order."""
        objects = self._tables[POD].objects
        return [objects[key] for key in sorted(self._by_node.get(node, {}).values())]

    def dependents(self, uid: str) -> list[tuple[Kind, Object]]:
        """Return the dependents of an owner, with their kinds."""
        found = self._by_owner.get(uid, {})
        return [(kind, self._tables[kind].objects[key]) for kind, key in found.values()]

    def owned(self, uid: str, kind: Kind) -> list[Object]:
        """Return the dependents of an owner that have this kind."""
        objects = self._tables[kind].objects
        return [objects[key] for of, key in self._by_owner.get(uid, {}).values() if of == kind]

    def since(self, revision: int) -> Iterator[Change]:
        """Yield the changes after a revision; 410 if the history does not reach it."""
        if revision < self.oldest:
            raise errors.expired(revision, self.oldest)
        for change in list(self._history):
            if change.revision > revision:
                yield change

    def undoing(self, kind: Kind, revision: int) -> Iterator[Change]:
        """Yield the changes of a kind after a revision in the history, newest first."""
        for change in reversed(self._history):
            if change.revision <= revision:
                return
            if change.kind == kind:
                yield change

    def forget(self) -> None:
        """Start the history now, as a watch cache does when its server starts."""
        self._history.clear()
        self._began = self.revision

    # Writing

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Object:
        """Store a new object with a new uid; 409 if the name exists."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self._tables[kind].objects:
            raise errors.already_exists(kind, key[1])
        metadata = {"uid": str(uuid.uuid4()), **metadata, "creationTimestamp": timestamp()}
        if kind.has_generation:
            metadata["generation"] = 1
        obj = {**obj, "metadata": metadata}
        return obj if dry_run else self._commit("ADDED", kind, key, obj, None)

    def replace(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Object:
        """Store the new form of an object; an equal form changes nothing."""
        key = key_of(obj)
        previous = self._tables[kind].objects.get(key)
        if previous is None:
            raise errors.not_found(kind, key[1])
        if obj == previous:
            return previous
        return obj if dry_run else self._commit("MODIFIED", kind, key, obj, previous)

    def amend(self, kind: Kind, obj: Object, **sections: Object) -> Object | None:
        """Set fields in sections of the present form of an object: `amend(POD, pod, spec={...})`.

        None if the object is deleted or replaced by another object of its name.
        """
        current = self.current(kind, obj)
        if current is None:
            return None
        changed = {name: {**current.get(name, {}), **new} for name, new in sections.items()}
        return self.replace(kind, {**current, **changed})

    def remove(self, kind: Kind, obj: Object) -> Object | None:
        """Delete an object at once; None if it is already deleted."""
        current = self.current(kind, obj)
        if current is None:
            return None
        return self._commit("DELETED", kind, key_of(obj), current, current)

    def listen(self, kind: Kind | None, listener: Listener) -> Callable[[], None]:
        """Call the listener for every change of a kind (None: of all); return how to stop it."""
        self._listeners[kind].append(listener)
        return lambda: self._listeners[kind].remove(listener)

    def listen_on(self, node: str, listener: Listener) -> Callable[[], None]:
        """Call the listener for every change of a pod that is or was bound to a node.

        During a storm each node has a watch of its pods. To call every listener for each change
        would take longer than the change itself.
        """
        self._listeners_on[node].append(listener)

        def stop() -> None:
            self._listeners_on[node].remove(listener)
            if not self._listeners_on[node]:
                del self._listeners_on[node]

        return stop

    def _commit(
        self, change_type: ChangeType, kind: Kind, key: Key, obj: Object, previous: Object | None
    ) -> Object:
        self.revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        table = self._tables[kind]
        if change_type == "DELETED":
            del table.objects[key]
            del table.order[bisect.bisect_left(table.order, key)]
        else:
            if change_type == "ADDED":
                bisect.insort(table.order, key)
            table.objects[key] = obj
        self._index(kind, key, None if change_type == "DELETED" else obj, previous)
        change = Change(change_type, kind, self.revision, obj, previous)
        self._history.append(change)
        self._undelivered.append(change)
        self._deliver()
        return obj

    def _index(self, kind: Kind, key: Key, new: Object | None, old: Object | None) -> None:
        uid = uid_of(new or old or {})
        if kind is POD:
            before = old["spec"].get("nodeName") if old else None
            after = new["spec"].get("nodeName") if new else None
            if before != after:
                if before:
                    _drop(self._by_node, before, uid)
                if after:
                    self._by_node[after][uid] = key
        before_owners = _owner_uids(old)
        after_owners = _owner_uids(new)
        if before_owners != after_owners:
            for owner in before_owners - after_owners:
                _drop(self._by_owner, owner, uid)
            for owner in after_owners - before_owners:
                self._by_owner[owner][uid] = (kind, key)

    def _deliver(self) -> None:
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                change = self._undelivered.popleft()
                for listener in self._concerned(change):
                    listener(change)
        finally:
            self._delivering = False

    def _concerned(self, change: Change) -> list[Listener]:
        listeners = [*self._listeners[change.kind], *self._listeners[None]]
        if change.kind is POD:
            now, before = change.object, change.previous
            nodes = {one["spec"].get("nodeName") for one in (now, before) if one is not None}
            for node in nodes:
                listeners += self._listeners_on.get(node, ())
        return listeners


def _drop[Value](index: dict[str, dict[str, Value]], key: str, uid: str) -> None:
    del index[key][uid]
    if not index[key]:
        del index[key]


def _owner_uids(obj: Object | None) -> frozenset[str]:
    references = obj["metadata"].get("ownerReferences") if obj else None
    return frozenset(reference["uid"] for reference in references or ())
