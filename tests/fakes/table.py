"""Leeway's table in memory. tests/aws/test_table.py is its contract."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from threading import RLock

from leeway.clock import Clock
from leeway.ports.aws import CloudRefused
from leeway.table import Index, Item, Key, Record, RecordChanged, Table

from tests.fakes.clock import FakeClock

LARGEST_ITEM = 400 * 1024
"""Bytes of the largest item that DynamoDB accepts."""


class TableInMemory(Table):
    """`items` are what is stored, `written` the keys of all writes and deletions in their order.

    `before` is called before each read and write with its operation (`get`, `list`, `find`, `put`,
    `delete` or `change`) and the key or its beginning; it may raise what a table raises that does
    not answer, as `fail` has it do.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__((clock or FakeClock()).now)
        self.items: dict[Key, Item] = {}
        self.written: list[Key] = []
        self._lock = RLock()
        self.before: Callable[[str, Key], None] = lambda _operation, _key: None

    def fail(self, error: Exception, *operations: str, key: str = "") -> None:
        """Have these operations fail, all if none is named, whose keys contain this text."""

        def before(operation: str, found: Key) -> None:
            if operation in (operations or (operation,)) and key in " ".join(found):
                raise error

        self.before = before

    def records[T](self, record: Record[T], by: str = "instance") -> "Stored[T]":
        """The records of a kind, by a part of their key. They are read and written without
        `before` and without a condition."""
        return Stored(self, record, by)

    def _get(self, key: Key, consistent: bool) -> Item | None:
        self.before("get", key)
        return self.items.get(key)

    def _get_many(self, keys: Sequence[Key], consistent: bool) -> Iterator[Item]:
        for key in keys:
            self.before("get", key)
        return iter([self.items[key] for key in keys if key in self.items])

    def _query(self, pk: str, prefix: str, consistent: bool) -> Iterator[Item]:
        self.before("list", (pk, prefix))
        with self._lock:
            items = [self.items[key] for key in sorted(self.items)]
        return (one for one in items if one.key[0] == pk and one.key[1].startswith(prefix))

    def _query_index(self, index: Index, value: str, prefix: str) -> Iterator[Item]:
        self.before("find", (value, prefix))
        with self._lock:
            items = list(self.items.values())
        found = [
            one
            for one in items
            if one.indexed.get(index.attribute) == value and one.key[1].startswith(prefix)
        ]
        return iter(sorted(found, key=lambda one: one.key[1]))

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        self.before("put" if item else "delete", key)
        with self._lock:
            self._check(key, replaces)
            if item:
                self._store(item)
            else:
                self.written.append(key)
                self.items.pop(key, None)

    def _change(self, put: Sequence[Item], delete: Sequence[Key]) -> None:
        for key in [*(one.key for one in put), *delete]:
            self.before("change", key)
        with self._lock:
            for item in put:
                self._store(item)
            for key in delete:
                self._write(key, None, None)

    def _store(self, item: Item) -> None:
        body = item.body.encode() if isinstance(item.body, str) else item.body or b""
        if len(body) > LARGEST_ITEM:
            raise CloudRefused("PutItem: ValidationException: Item size has exceeded the maximum")
        self.written.append(item.key)
        self.items[item.key] = item

    def _check(self, key: Key, replaces: int | None) -> None:
        if replaces is None:
            return
        stored = self.items.get(key)
        version = stored.version if stored else 0
        if replaces == 0 and stored and not self._is_kept(stored):
            version = 0
        if version != replaces:
            raise RecordChanged(" ".join(key))


class Stored[T](MutableMapping[str, T]):
    """The records of one kind in a table, by a part of their key."""

    def __init__(self, table: TableInMemory, record: Record[T], by: str) -> None:
        self._table = table
        self._record = record
        self._by = by

    def _keys(self) -> dict[str, Key]:
        parts = {key: self._record.parts(key) for key in sorted(self._table.items)}
        return {found[self._by]: key for key, found in parts.items() if found is not None}

    def __getitem__(self, name: str) -> T:
        return self._record.read(self._table.items[self._keys()[name]])

    def __setitem__(self, name: str, value: T) -> None:
        item = self._record.write(value, {}, self._table._now())
        assert self._record.parts(item.key)[self._by] == name, item.key  # type: ignore[index]
        self._table.items[item.key] = item

    def __delitem__(self, name: str) -> None:
        del self._table.items[self._keys()[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())
