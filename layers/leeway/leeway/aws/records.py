"""The records of instances in the table, by boto3: retirements, admissions, facts.

Keys: `pk` = INSTANCE#<instance id>, `sk` = RETIREMENT, ADMISSION or FACTS. The attribute `cluster`
of FACTS is the key of the index `by-cluster`. Open retirements and admissions have the attribute
`open` = <cluster>#<shard>, the key of the index `open-by-cluster`. `expires` is the table's time to
live.
"""

import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from leeway.admission.record import Admission
from leeway.aws.errors import aws_errors
from leeway.aws.query import query_all
from leeway.aws.versions import put_version
from leeway.instances.facts import InstanceFacts
from leeway.interruption.receive_notice import InstanceState
from leeway.reconciliation.find_lost_events import OpenRecords
from leeway.retirement.record import Retirement

RETIREMENT, FACTS, ADMISSION = "RETIREMENT", "FACTS", "ADMISSION"

SHARDS = 8
"""Shards of the index of open records, for each cluster. An index accepts 1,000 write units per
second and key, and a record takes two of them. If the index is throttled, so is the table.
Source: DynamoDB developer guide, "Best practices for designing and using partition keys"."""

KEPT_FOR = timedelta(days=30)
"""How long DynamoDB keeps a record after its last write: longer than Lambda reserves the name of an
execution. So the next retirement of the same instance does not reuse a reserved name."""


LAUNCHES_KEPT_FOR = timedelta(days=800)
"""The same for an admission of an instance that Leeway launched. Leeway gives a node back only if
it has the record of its launch: longer than most nodes live, and than any should."""


class DynamoRecords:
    """The Records Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def known(self, instance: str) -> InstanceState:
        """Read all records of an instance by one consistent Query."""
        with aws_errors():
            answer = self._client().query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": item_key(instance, FACTS)["pk"]},
                ConsistentRead=True,
            )
        items = {item["sk"]["S"]: item for item in answer["Items"]}
        return InstanceState(
            _read(Retirement, items.get(RETIREMENT)),
            _read_if_valid(InstanceFacts, items.get(FACTS)),
            _read_if_valid(Admission, items.get(ADMISSION)),
        )

    def retirement(self, instance: str) -> Retirement | None:
        """Read the retirement record by a consistent GetItem."""
        with aws_errors():
            answer = self._client().get_item(
                TableName=self._table, Key=item_key(instance, RETIREMENT), ConsistentRead=True
            )
        return _read(Retirement, answer.get("Item"))

    def admission(self, instance: str) -> Admission | None:
        """Read the record of an instance's admission consistently."""
        with aws_errors():
            answer = self._client().get_item(
                TableName=self._table, Key=item_key(instance, ADMISSION), ConsistentRead=True
            )
        return _read(Admission, answer.get("Item"))

    def write(self, record: Retirement | Admission) -> None:
        """Write a record whose `version` is one above the version that was read.

        Raises:
            RecordChanged: another version is stored.
        """
        launched = isinstance(record, Admission) and record.launch is not None
        kept_for = LAUNCHES_KEPT_FOR if launched else KEPT_FOR
        expires = int((datetime.now(UTC) + kept_for).timestamp())
        item = {
            **item_key(record.instance, ADMISSION if isinstance(record, Admission) else RETIREMENT),
            "attempt": {"N": str(record.attempt)},
            "phase": {"S": record.phase},
            "expires": {"N": str(expires)},
            "record": {"S": record.model_dump_json()},
        }
        if record.is_open:  # reconcile reads the open records
            item["open"] = {"S": _shard(record.facts.cluster, record.instance)}
        put_version(self._client(), self._table, item, record.version)

    def open_records(self, cluster: str) -> OpenRecords:
        """Read all open records of a cluster: one eventually consistent Query for each of the 8
        shards, so a record may be a second old. Unreadable records are reported by their key."""
        found: list[Retirement | Admission] = []
        unread: list[str] = []
        for item in self._open_items(cluster):
            kind = Admission if item["sk"]["S"] == ADMISSION else Retirement
            key = f"{item['pk']['S']} {item['sk']['S']}"
            try:
                record = kind.model_validate_json(body_of(item))
                if is_of(item, record.instance):
                    found.append(record)
                else:
                    unread.append(f"{key}: the record names instance {record.instance}")
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                field = ".".join(str(part) for part in first["loc"])
                unread.append(f"{key}: {field}: {first['msg']}")
        return OpenRecords(tuple(found), tuple(unread))

    def _open_items(self, cluster: str) -> Iterator[dict[str, Any]]:
        for number in range(SHARDS):
            yield from query_all(
                self._client(),
                self._table,
                "#open = :shard",
                IndexName="open-by-cluster",
                ExpressionAttributeNames={"#open": "open"},
                ExpressionAttributeValues={":shard": {"S": f"{cluster}#{number}"}},
            )


def _shard(cluster: str, instance: str) -> str:
    return f"{cluster}#{zlib.crc32(instance.encode()) % SHARDS}"


def _read[T: BaseModel](kind: type[T], item: dict[str, Any] | None) -> T | None:
    return kind.model_validate_json(item["record"]["S"]) if item else None


def _read_if_valid[T: BaseModel](kind: type[T], item: dict[str, Any] | None) -> T | None:
    """Read a record that a retirement does not need: an invalid one counts as missing. A write of
    version 1 over it still raises RecordChanged."""
    try:
        return _read(kind, item)
    except ValidationError:
        return None


def body_of(item: dict[str, Any]) -> str:
    """Return the JSON of an item of an index, or an empty string, which is invalid JSON. An item
    that was written by hand may lack the attribute, and must not hide the other items."""
    return str(item.get("record", {}).get("S", ""))


def is_of(item: dict[str, Any], instance: str) -> bool:
    """Whether an item of an index has this instance's key. An index holds every item that has its
    attributes, and a user who may write manifests may write items with any attributes."""
    return bool(item["pk"] == item_key(instance, RETIREMENT)["pk"])


def item_key(instance: str, sort: str) -> dict[str, Any]:
    """Return the key of an item of an instance; `sort` is RETIREMENT, ADMISSION or FACTS."""
    return {"pk": {"S": f"INSTANCE#{instance}"}, "sk": {"S": sort}}
