"""Leeway's table. The feature that owns a record declares how the table keeps it:

    POOL = Record(
        PoolRecord, "POOLS#{cluster}", "POOL#{pool}", versioned=True, kept_for=timedelta(days=30)
    )

    table.get(POOL, cluster="prod", pool="web")   # a PoolRecord or None
    table.put(POOL, record)                       # over the version before, or RecordChanged
    table.list(POOL, cluster="prod")              # the pools of the cluster, sorted by their keys
    table.list(POOL, JOIN_TIME, cluster="prod")   # two kinds in one partition, by one Query
    table.delete(POOL, cluster="prod", pool="web")

- **Keys**: the templates of partition key and sort key name parts. A call names the parts; `put`
  takes those that the call does not name from the attributes of the record. A `#` in a part is
  escaped, so no name ends its part of the key.
- **Values**: a pydantic model, a dataclass, or another type that `typed_json` reads, as JSON.
  `packed=(encode, decode)` stores bytes instead.
- **Versions**: a `versioned` record has an attribute `version`, which counts writes. `put` writes
  version n over version n - 1, and version 1 if there is no record. `replaces=0` writes a record of
  any kind only if there is none.
- **Lifetimes**: `kept_for` counts from the write. It may be a function of the record that returns
  the lifetime, or the time of the end, or None for no end. From its end on, a record is missing for
  reads and for `replaces`. DynamoDB deletes it later.
- **Indexes**: `indexes={OPEN: lambda one: one.cluster if one.is_open else None}`, then
  `table.find(OPEN, "prod", RETIREMENT, ADMISSION)`.
- **Unreadable items**: a read raises UnreadableRecord. With `unreadable`, it reports such items and
  returns the others: `table.list(POOL, cluster="prod", unreadable=problems.append)`.

Every method raises CloudUnavailable or CloudRefused if the table does not do it.
"""

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, overload
from urllib.parse import unquote
from zlib import crc32

from leeway.typed_json import dumps, loads

type KeyPart = str | int | datetime
type Key = tuple[str, str]
"""A partition key and a sort key."""


class RecordChanged(Exception):
    """A conditional write failed: another writer has changed the record since it was read."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of the table. `body` is JSON or packed bytes, and None if the item has none.

    `version` is 0 if the item has none, `expires` is in seconds since 1970. `indexed` are the
    attributes for indexes; only writes have them.
    """

    key: Key
    body: str | bytes | None
    version: int = 0
    expires: int | None = None
    indexed: Mapping[str, str] = field(default_factory=dict)


class UnreadableRecord(Exception):
    """An item is not such a record. Another version of Leeway may have written it, or a person."""

    def __init__(self, item: Item, problem: str) -> None:
        super().__init__(f"{' '.join(item.key)}: {problem}")
        self.item = item


type Report = Callable[[UnreadableRecord], object]


@dataclass(frozen=True, slots=True)
class Index:
    """An index of the table by an attribute. The records of one value are spread over shards.

    An index accepts 1,000 write units per second and key, and a record takes two of them. If the
    index is throttled, so is the table. Source: DynamoDB developer guide, "Best practices for
    designing and using partition keys".
    """

    name: str
    attribute: str
    shards: int = 1

    def keys(self, value: str) -> list[str]:
        """Return the keys of all shards of a value."""
        return [f"{value}#{shard}" for shard in range(self.shards)] if self.shards > 1 else [value]


BY_CLUSTER = Index("by-cluster", "cluster")
OPEN = Index("open-by-cluster", "open", shards=8)


@dataclass(frozen=True)
class Record[T]:
    """How the table keeps one kind of record; see the top of this file."""

    kind: type[T]
    pk: str
    sk: str
    versioned: bool = False
    kept_for: timedelta | Callable[[T], timedelta | datetime | None] | None = None
    indexes: Mapping[Index, Callable[[T], str | None]] = field(default_factory=dict)
    packed: tuple[Callable[[T], bytes], Callable[[bytes], T]] | None = None

    def key(self, parts: Mapping[str, KeyPart]) -> Key:
        """Return the key with these parts."""
        key = self.prefix(parts)
        if missing := self._part_names - parts.keys():
            raise TypeError(f"{self.pk} {self.sk} needs {', '.join(sorted(missing))}")
        return key

    def prefix(self, parts: Mapping[str, KeyPart]) -> Key:
        """Return the partition key, and the sort key up to its first part that is missing."""
        if unknown := parts.keys() - self._part_names:
            raise TypeError(f"{self.pk} {self.sk} has no {', '.join(sorted(unknown))}")
        return _filled(self.pk, parts), _filled(self.sk, parts)

    def key_of(self, value: T, parts: Mapping[str, KeyPart] | None = None) -> Key:
        """Return the key of a record: the other parts are its attributes."""
        named = parts or {}
        others = {name: getattr(value, name) for name in self._part_names - named.keys()}
        return self.key({**named, **others})

    def parts(self, key: Key) -> dict[str, str] | None:
        """Return the parts of a key; None if it is the key of another kind of record."""
        found = self._pattern.fullmatch("\n".join(key))
        return {name: unquote(part) for name, part in found.groupdict().items()} if found else None

    def write(self, value: Any, parts: Mapping[str, KeyPart], now: datetime) -> Item:
        """Return the item of a record."""
        key = self.key_of(value, parts)
        kept = self.kept_for(value) if callable(self.kept_for) else self.kept_for
        end = now + kept if isinstance(kept, timedelta) else kept
        indexed = {}
        for index, indexed_by in self.indexes.items():
            if (shown := indexed_by(value)) is not None:
                shards = index.keys(shown)
                indexed[index.attribute] = shards[crc32(key[0].encode()) % len(shards)]
        return Item(
            key,
            self.packed[0](value) if self.packed else dumps(value).decode(),
            version=value.version if self.versioned else 1,
            expires=None if end is None else int(end.timestamp()),
            indexed=indexed,
        )

    def read(self, item: Item) -> T:
        """Return the record of an item.

        Raises:
            UnreadableRecord: the item is not such a record.
        """
        try:
            if self.packed and isinstance(item.body, bytes):
                return self.packed[1](item.body)
            if self.packed or not isinstance(item.body, str):
                raise UnreadableRecord(item, "`record` is missing or has another type")
            value = loads(self.kind, item.body)
        except (OSError, OverflowError, ValueError, struct.error) as error:
            raise UnreadableRecord(item, str(error)) from error
        if (key := self._key_in(value, item)) != item.key:
            raise UnreadableRecord(item, f"it holds the record {' '.join(key)}")
        return value

    def _key_in(self, value: T, item: Item) -> Key:
        """Return the key of a value that was read, as far as its attributes are parts of it."""
        own = {name: getattr(value, name) for name in self._part_names if hasattr(value, name)}
        others = dict.fromkeys(self._part_names, "") | (self.parts(item.key) or {})
        return self.key({**others, **own})

    @cached_property
    def _part_names(self) -> frozenset[str]:
        return frozenset(_PART.findall(self.pk + self.sk))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        template = re.escape(f"{self.pk}\n{self.sk}")
        return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^#\n]*)", template))


_PART = re.compile(r"\{(\w+)\}")

_CLAIM = Record(datetime, "CLAIM#{task}", "CLAIM", kept_for=lambda until: until)


def _filled(template: str, parts: Mapping[str, KeyPart]) -> str:
    """Fill a template up to its first part that is missing."""
    filled = ""
    for number, text in enumerate(_PART.split(template)):  # literals and names alternate
        if number % 2 == 0:
            filled += text
        elif text in parts:
            filled += _escaped(parts[text])
        else:
            break
    return filled


def _escaped(part: KeyPart) -> str:
    if isinstance(part, datetime):  # sorted by time
        part = part.astimezone(UTC).isoformat(timespec="microseconds")
    return str(part).replace("%", "%25").replace("#", "%23").replace("\n", "%0A")


class Table(ABC):
    """The table: DynamoTable is the one in DynamoDB, and tests use one in memory."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def get[T](
        self,
        record: Record[T],
        *,
        consistent: bool = True,
        unreadable: Report | None = None,
        **key: KeyPart,
    ) -> T | None:
        """Read a record; None if there is none. An inconsistent read costs half, and may return
        what was stored a second ago.

        Raises:
            UnreadableRecord: the item is unreadable, and `unreadable` does not take it.
        """
        item = self._get(record.key(key), consistent)
        if item is None or not self._is_kept(item):
            return None
        return next(_read(record, item, unreadable), None)

    def get_many[T](
        self,
        record: Record[T],
        keys: Iterable[Mapping[str, KeyPart]],
        *others: tuple[Record[Any], Mapping[str, KeyPart]],
        consistent: bool = False,
        unreadable: Report | None = None,
    ) -> tuple[T | Any, ...]:
        """Read records in no order, by a call for each hundred; missing ones are left out. `others`
        are records of other kinds, with their keys.

        Raises:
            UnreadableRecord: an item is unreadable, and `unreadable` does not take it.
        """
        records: dict[Key, Record[Any]] = {record.key(one): record for one in keys}
        records |= {other.key(parts): other for other, parts in others}
        found: Any = []
        for item in self._get_many(list(records), consistent):
            if self._is_kept(item):
                found += _read(records[item.key], item, unreadable)
        return tuple(found)

    def put[T](
        self, record: Record[T], value: T, *, replaces: int | None = None, **key: KeyPart
    ) -> None:
        """Write a record: a versioned one over the version before, another one over any.

        `replaces` says which version must be stored instead, 0 for none.

        Raises:
            RecordChanged: another version is stored.
        """
        item = record.write(value, key, self._now())
        if replaces is None and record.versioned:
            replaces = item.version - 1
        self._write(item.key, item, replaces)

    def claim(self, task: str, until: datetime) -> bool:
        """Claim a task until a time, which is cut to seconds; False if another claim lasts. Of
        concurrent calls, one claims it."""
        item = _CLAIM.write(until, {"task": task}, self._now())
        try:
            self._write(item.key, item, 0)
        except RecordChanged:
            return False
        return True

    def delete(self, record: Record[Any], *, replaces: int | None = None, **key: KeyPart) -> None:
        """Delete a record, if it is stored. `replaces` is the version that must be stored.

        Raises:
            RecordChanged: another version is stored, or none.
        """
        self._write(record.key(key), None, replaces)

    def change[T](
        self,
        record: Record[T],
        put: Iterable[T] = (),
        delete: Iterable[Mapping[str, KeyPart]] = (),
    ) -> None:
        """Write and delete many records without a condition, by a call for each 25."""
        now = self._now()
        self._change([record.write(one, {}, now) for one in put], [*map(record.key, delete)])

    @overload
    def list[A](
        self,
        a: Record[A],
        /,
        *,
        consistent: bool = ...,
        unreadable: Report | None = ...,
        **key: KeyPart,
    ) -> tuple[A, ...]: ...
    @overload
    def list[A, B](
        self,
        a: Record[A],
        b: Record[B],
        /,
        *,
        consistent: bool = ...,
        unreadable: Report | None = ...,
        **key: KeyPart,
    ) -> tuple[A | B, ...]: ...
    @overload
    def list[A, B, C](
        self,
        a: Record[A],
        b: Record[B],
        c: Record[C],
        /,
        *,
        consistent: bool = ...,
        unreadable: Report | None = ...,
        **key: KeyPart,
    ) -> tuple[A | B | C, ...]: ...
    def list(
        self,
        first: Record[Any],
        /,
        *others: Record[Any],
        consistent: bool = True,
        unreadable: Report | None = None,
        **key: KeyPart,
    ) -> tuple[Any, ...]:
        """Read the records of these kinds in one partition, sorted by their keys: one kind by its
        prefix, several by one read of the partition. `key` names the parts of the partition key,
        and may name the first parts of the sort key.

        Raises:
            UnreadableRecord: an item is unreadable, and `unreadable` does not take it.
        """
        records = (first, *others)
        prefixes = [record.prefix(key) for record in records]
        prefix = prefixes[0][1] if len(records) == 1 else ""
        found: Any = []
        for item in self._query(prefixes[0][0], prefix, consistent):
            for record in records if self._is_kept(item) else ():
                parts = record.parts(item.key)
                if parts is not None and record.key({**parts, **key}) == item.key:
                    found += _read(record, item, unreadable)
        return tuple(found)

    @overload
    def find[A](
        self, index: Index, value: str, a: Record[A], /, *, unreadable: Report | None = ...
    ) -> tuple[A, ...]: ...
    @overload
    def find[A, B](
        self,
        index: Index,
        value: str,
        a: Record[A],
        b: Record[B],
        /,
        *,
        unreadable: Report | None = ...,
    ) -> tuple[A | B, ...]: ...
    def find(
        self, index: Index, value: str, *records: Record[Any], unreadable: Report | None = None
    ) -> tuple[Any, ...]:
        """Read the records of these kinds by an index, which may be a second old.

        An index holds every item that has its attribute, and a user who may write manifests may
        write any attribute: such an item is unreadable, since its record has another key.

        Raises:
            UnreadableRecord: an item is unreadable, and `unreadable` does not take it.
        """
        prefixes = {_filled(one.sk, {}): one for one in records}
        prefix = "" if len(prefixes) > 1 else next(iter(prefixes))
        found: Any = []
        for shard in index.keys(value):
            for item in filter(self._is_kept, self._query_index(index, shard, prefix)):
                sk = next((one for one in prefixes if item.key[1].startswith(one)), "")
                record = prefixes.get(sk, records[0])
                found += _read(record, item, unreadable)
        return tuple(found)

    def _is_kept(self, item: Item) -> bool:
        return item.expires is None or item.expires > self._now().timestamp()

    @abstractmethod
    def _get(self, key: Key, consistent: bool) -> Item | None:
        """Read an item."""

    @abstractmethod
    def _get_many(self, keys: Sequence[Key], consistent: bool) -> Iterable[Item]:
        """Read items in no order, without those that are missing."""

    @abstractmethod
    def _query(self, pk: str, prefix: str, consistent: bool) -> Iterable[Item]:
        """Read the items of a partition whose sort keys have a prefix, sorted by these."""

    @abstractmethod
    def _query_index(self, index: Index, value: str, prefix: str) -> Iterable[Item]:
        """Read the items with a key of an index whose sort keys have a prefix."""

    @abstractmethod
    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        """Write an item, or delete it if `item` is None, if version `replaces` is stored: 0 for no
        item or an item without a version or an item whose time is over, None for any or none."""

    @abstractmethod
    def _change(self, put: Sequence[Item], delete: Sequence[Key]) -> None:
        """Write and delete items."""


def _read[T](record: Record[T], item: Item, unreadable: Report | None) -> Iterator[T]:
    try:
        yield record.read(item)
    except UnreadableRecord as error:
        if unreadable is None:
            raise
        unreadable(error)
