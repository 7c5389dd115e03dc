"""One contract for the table in DynamoDB, the one in memory, and the prepared one of bench."""

import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import boto3
import pytest
from leeway.aws.table import DynamoTable
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.table import BY_CLUSTER, OPEN, Record, RecordChanged, Table, UnreadableRecord
from pydantic import BaseModel

from bench.canned_account import Account, Server
from tests.aws.stored import TABLE
from tests.fakes.clock import FakeClock
from tests.fakes.table import TableInMemory
from tests.sandbox.aws.started import Sandbox

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
DAY = timedelta(days=1)
KEYS = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}


class Pool(BaseModel):
    cluster: str
    name: str
    version: int = 1
    nodes: int = 0
    kept: bool = False


@dataclass(frozen=True)
class Step:
    at: datetime
    number: int


POOL = Record(
    Pool,
    "TEST#{cluster}",
    "POOL#{name}",
    versioned=True,
    kept_for=lambda pool: None if pool.kept else DAY,
    indexes={
        BY_CLUSTER: lambda pool: pool.cluster,
        OPEN: lambda pool: pool.cluster if pool.nodes else None,
    },
)
STEP = Record(Step, "TEST#{cluster}", "STEP#{at}#{number}")
TIMES = Record(
    dict[str, int],
    "TEST#{cluster}",
    "TIMES",
    packed=(
        lambda times: b"".join(struct.pack(">1sI", k.encode(), v) for k, v in times.items()),
        lambda packed: {k.decode(): v for k, v in struct.iter_unpack(">1sI", packed)},
    ),
)

LARGE = Record(str, "TEST#{cluster}", "LARGE#{number}")
OTHER_SHAPE = Record(
    dict[str, str],
    "TEST#{cluster}",
    "POOL#{name}",
    indexes={OPEN: lambda one: one["cluster"]},
)
PACKED_POOL = Record(
    str,
    "TEST#{cluster}",
    "POOL#{name}",
    packed=(lambda one: one.encode(), lambda one: one.decode()),
)
FORGED = Record(Pool, "FORGED#{cluster}", "POOL#{name}", indexes={OPEN: lambda pool: pool.cluster})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture(scope="module")
def prepared() -> Iterator[Any]:
    """A client of DynamoDB whose server is the one of the measurements of scale."""
    with Server(Account(1, 0)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield boto3.client("dynamodb", "us-east-1", endpoint_url=url, **KEYS)
        server.shutdown()


@pytest.fixture(params=["dynamo", "memory", "prepared"])
def table(request: pytest.FixtureRequest, aws: Sandbox, prepared: Any, clock: FakeClock) -> Table:
    if request.param == "memory":
        return TableInMemory(clock)
    if request.param == "prepared":
        return DynamoTable(lambda: prepared, TABLE, clock)
    return DynamoTable(partial(aws.client, "dynamodb"), TABLE, clock)


@pytest.fixture
def cluster() -> str:
    return f"table-{uuid4()}"


def test_a_versioned_record_is_written_only_over_the_version_that_was_read(
    table: Table, cluster: str
) -> None:
    first = Pool(cluster=cluster, name="web")
    assert table.get(POOL, cluster=cluster, name="web") is None
    table.put(POOL, first)
    with pytest.raises(RecordChanged, match=f"TEST#{cluster} POOL#web"):
        table.put(POOL, first)
    second = first.model_copy(update={"version": 2})
    table.put(POOL, second)
    with pytest.raises(RecordChanged):
        table.put(POOL, second)
    with pytest.raises(RecordChanged):
        table.put(POOL, first.model_copy(update={"version": 4}))
    assert table.get(POOL, cluster=cluster, name="web") == second
    assert table.get(POOL, consistent=False, cluster=cluster, name="web") == second


def test_a_record_without_a_version_is_written_over_any_or_only_over_none(
    table: Table, cluster: str
) -> None:
    for number in (1, 2):
        table.put(TIMES, {"a": number}, cluster=cluster)
    with pytest.raises(RecordChanged):
        table.put(TIMES, {"a": 3}, replaces=0, cluster=cluster)
    assert table.get(TIMES, cluster=cluster) == {"a": 2}
    table.delete(TIMES, cluster=cluster)
    table.delete(TIMES, cluster=cluster)
    assert table.get(TIMES, cluster=cluster) is None
    table.put(TIMES, {}, replaces=0, cluster=cluster)
    assert table.get(TIMES, cluster=cluster) == {}


def test_a_record_is_deleted_at_its_version(table: Table, cluster: str) -> None:
    delete = partial(table.delete, POOL, cluster=cluster, name="web")
    with pytest.raises(RecordChanged):
        delete(replaces=1)
    table.put(POOL, Pool(cluster=cluster, name="web", version=7), replaces=0)
    with pytest.raises(RecordChanged):
        delete(replaces=6)
    delete(replaces=7)
    assert table.get(POOL, cluster=cluster, name="web") is None


def test_version_0_counts_as_no_record_for_the_next_write(table: Table, cluster: str) -> None:
    """A record that only says when another one was deleted."""
    table.put(POOL, Pool(cluster=cluster, name="web", version=3), replaces=0)
    deleted = Pool(cluster=cluster, name="web", version=0)
    table.put(POOL, deleted, replaces=3)
    assert table.list(POOL, cluster=cluster) == (deleted,)
    table.put(POOL, Pool(cluster=cluster, name="web", version=9), replaces=0)


def test_records_are_listed_by_kind_and_prefix_in_the_order_of_their_keys(
    table: Table, cluster: str
) -> None:
    pools = [Pool(cluster=cluster, name=name) for name in ("a", "b", "ba")]
    steps = [Step(NOW + timedelta(seconds=n), n) for n in (9, 10)]
    for step in reversed(steps):
        table.put(STEP, step, cluster=cluster)
    for pool in reversed(pools):
        table.put(POOL, pool)
    table.put(POOL, Pool(cluster=f"{cluster}-2", name="c"))
    table.put(TIMES, {}, cluster=cluster)
    assert table.list(POOL, cluster=cluster) == tuple(pools)
    assert table.list(POOL, cluster=cluster, name="b") == (pools[1],)
    assert table.list(STEP, cluster=cluster) == tuple(steps)
    assert table.list(STEP, cluster=cluster, at=steps[0].at) == (steps[0],)
    assert table.list(POOL, STEP, cluster=cluster) == (*pools, *steps)
    assert table.list(POOL, cluster="none", consistent=False) == ()


def test_a_part_of_a_key_does_not_reach_into_other_keys(table: Table, cluster: str) -> None:
    hostile = f"{cluster}#x%23"
    table.put(TIMES, {"a": 1}, cluster=hostile)
    table.put(POOL, Pool(cluster=cluster, name="a#b\n"))
    assert table.list(POOL, cluster=cluster, name="a") == ()
    assert [one.name for one in table.list(POOL, cluster=cluster)] == ["a#b\n"]
    assert table.get(TIMES, cluster=hostile) == {"a": 1}
    assert table.list(TIMES, cluster=hostile) == ({"a": 1},)
    key = POOL.key({"cluster": "c", "name": "a#b\n"})
    assert key == ("TEST#c", "POOL#a%23b%0A")
    assert POOL.parts(key) == {"cluster": "c", "name": "a#b\n"}


def test_an_unknown_or_missing_part_of_a_key_is_an_error(table: Table) -> None:
    with pytest.raises(TypeError, match="has no nmae"):
        table.get(POOL, cluster="c", nmae="web")
    with pytest.raises(TypeError, match="needs name"):
        table.get(POOL, cluster="c")
    with pytest.raises(TypeError, match="has no number"):
        table.put(POOL, Pool(cluster="c", name="n"), number=1)


def test_a_record_is_missing_from_its_end_on(table: Table, clock: FakeClock, cluster: str) -> None:
    table.put(POOL, Pool(cluster=cluster, name="ends", version=3, nodes=1), replaces=0)
    table.put(POOL, Pool(cluster=cluster, name="stays", kept=True))
    clock.time = NOW + DAY
    assert [one.name for one in table.list(POOL, cluster=cluster)] == ["stays"]
    assert table.get(POOL, cluster=cluster, name="ends") is None
    assert table.get_many(POOL, [{"cluster": cluster, "name": "ends"}]) == ()
    assert table.find(OPEN, cluster, POOL) == ()
    table.put(POOL, Pool(cluster=cluster, name="ends"))


def test_a_claim_excludes_others_until_it_ends(
    table: Table, clock: FakeClock, cluster: str
) -> None:
    minute = timedelta(minutes=1)
    assert table.claim(cluster, NOW + minute)
    clock.time = NOW + minute - timedelta(seconds=1)
    assert not table.claim(cluster, NOW + 2 * minute)
    assert table.claim(f"{cluster}-2", NOW + minute)
    clock.time = NOW + minute
    assert table.claim(cluster, NOW + 2 * minute)


def test_many_records_are_written_read_and_deleted(table: Table, cluster: str) -> None:
    pools = {f"{n:03}": Pool(cluster=cluster, name=f"{n:03}", nodes=n) for n in range(120)}
    keys = [{"cluster": cluster, "name": name} for name in pools]
    table.change(POOL, put=pools.values())
    found = table.get_many(POOL, [*keys, keys[0], {"cluster": cluster, "name": "missing"}])
    assert sorted(found, key=lambda one: one.name) == list(pools.values())
    changed = Pool(cluster=cluster, name="000", nodes=7)
    table.change(POOL, put=[changed], delete=keys[1:])
    assert table.list(POOL, cluster=cluster) == (changed,)
    table.change(POOL)


def test_records_are_found_by_an_index_with_shards_and_by_one_without(
    table: Table, cluster: str
) -> None:
    many = [Pool(cluster=cluster, name=f"{n:02}", nodes=n % 2) for n in range(20)]
    table.change(POOL, put=many)
    open_ones = sorted(table.find(OPEN, cluster, POOL), key=lambda one: one.name)
    assert open_ones == many[1::2]
    assert sorted(table.find(BY_CLUSTER, cluster, POOL), key=lambda one: one.name) == many
    table.put(POOL, Pool(cluster=cluster, name="01", version=2))
    assert len(table.find(OPEN, cluster, POOL)) == 9
    assert table.find(OPEN, "other", POOL) == ()


def test_an_unreadable_item_is_an_error_or_reported_beside_the_others(
    table: Table, cluster: str
) -> None:
    good = Pool(cluster=cluster, name="a", nodes=1)
    table.put(POOL, good)
    table.put(OTHER_SHAPE, {"cluster": cluster}, name="b", cluster=cluster)
    for read in (
        partial(table.get, POOL, cluster=cluster, name="b"),
        partial(table.get_many, POOL, [{"cluster": cluster, "name": "b"}]),
        partial(table.list, POOL, cluster=cluster),
        partial(table.find, OPEN, cluster, POOL),
    ):
        with pytest.raises(UnreadableRecord, match=f"TEST#{cluster} POOL#b: name: Field required"):
            read()
    problems: list[UnreadableRecord] = []
    assert table.list(POOL, cluster=cluster, unreadable=problems.append) == (good,)
    assert table.find(OPEN, cluster, POOL, unreadable=problems.append) == (good,)
    assert [POOL.parts(one.item.key) for one in problems] == [{"cluster": cluster, "name": "b"}] * 2
    with pytest.raises(UnreadableRecord, match="missing or has another type"):
        table.get(PACKED_POOL, cluster=cluster, name="a")


def test_an_item_of_an_index_with_the_key_of_another_record_is_unreadable(
    table: Table, cluster: str
) -> None:
    """A user who may write under MANIFESTS# may give an item any attribute."""
    forged = Pool(cluster=cluster, name="web", nodes=1)
    table.put(FORGED, forged)
    problems: list[UnreadableRecord] = []
    assert table.find(OPEN, cluster, POOL, unreadable=problems.append) == ()
    assert [str(one) for one in problems] == [
        f"FORGED#{cluster} POOL#web: it holds the record TEST#{cluster} POOL#web"
    ]


@pytest.mark.parametrize(
    "attributes",
    [{}, {"record": {"N": "1"}, "version": {"S": "1"}, "expires": {"S": "x"}}],
    ids=["bare", "other types"],
)
def test_an_item_written_by_hand_does_not_hide_others_and_can_be_replaced(
    aws: Sandbox, clock: FakeClock, cluster: str, attributes: dict[str, Any]
) -> None:
    table = DynamoTable(partial(aws.client, "dynamodb"), TABLE, clock)
    table.put(POOL, Pool(cluster=cluster, name="b"))
    key = {"pk": {"S": f"TEST#{cluster}"}, "sk": {"S": "POOL#a"}}
    aws.client("dynamodb").put_item(TableName=TABLE, Item={**key, **attributes})
    problems: list[UnreadableRecord] = []
    found = table.list(POOL, cluster=cluster, unreadable=problems.append)
    assert [one.name for one in found] == ["b"]
    assert [one.item.version for one in problems] == [0]
    if "version" not in attributes:
        table.put(POOL, Pool(cluster=cluster, name="a"))


@pytest.mark.parametrize(
    ("operation", "read"),
    [
        ("GetItem", lambda table: table.get(POOL, cluster="c", name="n")),
        ("BatchGetItem", lambda table: table.get_many(POOL, [{"cluster": "c", "name": "n"}])),
        ("Query", lambda table: table.list(POOL, cluster="c")),
        ("Query", lambda table: table.find(OPEN, "c", POOL)),
        ("PutItem", lambda table: table.put(POOL, Pool(cluster="c", name="n"))),
        ("DeleteItem", lambda table: table.delete(POOL, cluster="c", name="n")),
        ("BatchWriteItem", lambda table: table.change(POOL, put=[Pool(cluster="c", name="n")])),
    ],
)
def test_a_throttled_table_is_unavailable_and_a_missing_one_is_refused(
    aws: Sandbox, clock: FakeClock, operation: str, read: Callable[[Table], object]
) -> None:
    client = partial(aws.client, "dynamodb")
    fault = {"service": "dynamodb", "action": operation, "error": "ThrottlingException"}
    aws.control("PUT", "faults", {"faults": [fault]})
    with pytest.raises(CloudUnavailable):
        read(DynamoTable(client, TABLE, clock))
    aws.control("PUT", "faults", {"faults": []})
    with pytest.raises(CloudRefused, match="ResourceNotFound"):
        read(DynamoTable(client, "no-such-table", clock))


def test_items_that_a_throttled_table_left_unprocessed_are_retried(
    aws: Sandbox, clock: FakeClock, cluster: str
) -> None:
    left: list[Any] = []

    def leave_half(params: dict[str, Any], **_: Any) -> None:
        """Send a part of the requests only, as if the table left the others unprocessed."""
        asked = params["RequestItems"][TABLE]
        requests = asked.get("Keys", asked) if isinstance(asked, dict) else asked
        half = len(requests) // 2 + 1
        sent, rest = requests[:half], requests[half:]
        params["RequestItems"] = {TABLE: {"Keys": sent} if "Keys" in asked else sent}
        left.append({TABLE: {"Keys": rest} if "Keys" in asked else rest} if rest else {})

    def hand_back(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        kind = "UnprocessedKeys" if model.name == "BatchGetItem" else "UnprocessedItems"
        parsed[kind] = left.pop()

    client = aws._build("dynamodb")
    for operation in ("BatchWriteItem", "BatchGetItem"):
        client.meta.events.register(f"provide-client-params.dynamodb.{operation}", leave_half)
        client.meta.events.register(f"after-call.dynamodb.{operation}", hand_back)
    table = DynamoTable(lambda: client, TABLE, clock)
    pools = [Pool(cluster=cluster, name=f"{n:02}") for n in range(25)]
    table.change(POOL, put=pools)
    assert table.list(POOL, cluster=cluster) == tuple(pools)
    keys = [{"cluster": cluster, "name": one.name} for one in pools]
    assert sorted(table.get_many(POOL, keys), key=lambda one: one.name) == pools
    client.close()


def test_a_list_of_several_pages_is_read_completely(table: Table, cluster: str) -> None:
    for number in range(5):
        table.put(LARGE, "x" * 340 * 1024, cluster=cluster, number=number)
    assert len(table.list(LARGE, cluster=cluster)) == 5
    with pytest.raises(CloudRefused, match="Item size has exceeded the maximum"):
        table.put(LARGE, "x" * 410 * 1024, cluster=cluster, number=9)
