"""What the table holds of instances, by boto3: retirements, admissions, facts.

Keys: `pk` = INSTANCE#<instance id>, `sk` = RETIREMENT, ARRIVAL or FACTS. The `cluster` of FACTS
feeds the index `by-cluster`; `open` of the others, <cluster>#<shard> where work is under way, the
index `open-by-cluster`. `expires` is the table's time to live.
"""

import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel, ValidationError

from leeway.admission.record import Admission
from leeway.aws.errors import aws_errors, code_of
from leeway.aws.query import query_all
from leeway.instances.facts import InstanceFacts
from leeway.interruption.ports import InstanceState
from leeway.ports.table import RecordChanged
from leeway.reconciliation.ports import OpenRecords
from leeway.retirement.record import Retirement

RETIREMENT, FACTS, ARRIVAL = "RETIREMENT", "FACTS", "ARRIVAL"

SHARDS = 8
"""Into how many parts the index of open records is split for a cluster. An index takes 1,000 write
units a second of one key, a record takes two of them, and a table whose index throttles does, too.
Source: DynamoDB developer guide, "Best practices for designing and using partition keys"."""

KEPT_FOR = timedelta(days=30)
"""How long after its last write a record is kept: longer than Lambda remembers executions, so that
an instance that is interrupted again does not begin with a name that is taken."""


class DynamoRecords:
    """The Records Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def known(self, instance: str) -> InstanceState:
        """Read everything about an instance, consistently and in one call."""
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
            _read_if_understood(InstanceFacts, items.get(FACTS)),
            _read_if_understood(Admission, items.get(ARRIVAL)),
        )

    def retirement(self, instance: str) -> Retirement | None:
        """Read the retirement record consistently."""
        with aws_errors():
            answer = self._client().get_item(
                TableName=self._table, Key=item_key(instance, RETIREMENT), ConsistentRead=True
            )
        return _read(Retirement, answer.get("Item"))

    def admission(self, instance: str) -> Admission | None:
        """Read the record of an instance's admission consistently."""
        with aws_errors():
            answer = self._client().get_item(
                TableName=self._table, Key=item_key(instance, ARRIVAL), ConsistentRead=True
            )
        return _read(Admission, answer.get("Item"))

    def write(self, record: Retirement | Admission) -> None:
        """Write a record, under the lock of its version.

        Raises:
            RecordChanged: the stored version is not one below this one's.
        """
        expires = int((datetime.now(UTC) + KEPT_FOR).timestamp())
        item = {
            **item_key(record.instance, ARRIVAL if isinstance(record, Admission) else RETIREMENT),
            "version": {"N": str(record.version)},
            "attempt": {"N": str(record.attempt)},
            "phase": {"S": record.phase},
            "expires": {"N": str(expires)},
            "record": {"S": record.model_dump_json()},
        }
        if record.is_open:  # reconcile looks at these
            item["open"] = {"S": _shard(record.facts.cluster, record.instance)}
        with aws_errors():
            try:
                self._client().put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(pk)"
                    if record.version == 1
                    else "#version = :read",
                    **({} if record.version == 1 else _expecting(record.version - 1)),
                )
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    raise RecordChanged(record.instance) from error
                raise

    def open_records(self, cluster: str) -> OpenRecords:
        """Read all records of a cluster that are not finished. They may be a second old."""
        found: list[Retirement | Admission] = []
        unread: list[str] = []
        for item in self._open_items(cluster):
            kind = Admission if item["sk"]["S"] == ARRIVAL else Retirement
            try:
                record = kind.model_validate_json(body_of(item))
                if is_of(item, record.instance):
                    found.append(record)
                else:
                    unread.append(f"{item['pk']['S']} {item['sk']['S']}: no record of Leeway's own")
            except ValidationError as error:
                wrong = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in wrong["loc"])
                unread.append(f"{item['pk']['S']} {item['sk']['S']}: {where}: {wrong['msg']}")
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


def _read_if_understood[T: BaseModel](kind: type[T], item: dict[str, Any] | None) -> T | None:
    """Read what a retirement can do without: what another version wrote is as if it were not there.
    Whoever would write in its place learns by its version that it is."""
    try:
        return _read(kind, item)
    except ValidationError:
        return None


def body_of(item: dict[str, Any]) -> str:
    """Return the JSON of an item that an index tells of; empty, which is none, where it has none:
    one item that somebody wrote by hand must not hide the others."""
    return str(item.get("record", {}).get("S", ""))


def is_of(item: dict[str, Any], instance: str) -> bool:
    """Whether an item that an index tells of is kept under this instance's key. An index has every
    item with its attributes, and whoever may write manifests may give those any attribute."""
    return bool(item["pk"] == item_key(instance, RETIREMENT)["pk"])


def item_key(instance: str, sort: str) -> dict[str, Any]:
    """Return the key of one of an instance's items: RETIREMENT, ARRIVAL or FACTS."""
    return {"pk": {"S": f"INSTANCE#{instance}"}, "sk": {"S": sort}}


def _expecting(version: int) -> dict[str, Any]:
    return {
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":read": {"N": str(version)}},
    }
