"""The index: which instance is whose, for all instances of the clusters under care, by boto3.

Keys: `pk` = INSTANCE#<instance id>, `sk` = FACTS, whose `cluster` feeds the index `by-cluster`.
"""

import time
from collections.abc import Callable, Iterable
from itertools import batched
from typing import Any

from pydantic import ValidationError

from leeway.aws.errors import aws_errors
from leeway.aws.query import query_all
from leeway.aws.records import FACTS, body_of, is_of, item_key
from leeway.instances.facts import InstanceFacts
from leeway.ports.aws import CloudUnavailable

BATCH = 25
"""Items that BatchWriteItem takes. Source: DynamoDB API reference."""

TRIES = 6
"""How often what a throttled table left undone is written again, with growing pauses."""


class DynamoIndex:
    """The Index Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of_cluster(self, cluster: str) -> dict[str, InstanceFacts]:
        """Read what is known of a cluster's instances, by id. It may be a second old."""
        items = query_all(
            self._client(),
            self._table,
            "#cluster = :cluster AND sk = :sk",
            IndexName="by-cluster",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues={":cluster": {"S": cluster}, ":sk": {"S": FACTS}},
        )
        found = {}
        for item in items:
            try:
                facts = InstanceFacts.model_validate_json(body_of(item))
            except ValidationError:
                continue  # another version's: it is as if it were not there, and written anew
            if is_of(item, facts.instance):
                found[facts.instance] = facts
        return found

    def update(self, written: Iterable[InstanceFacts], removed: Iterable[str]) -> None:
        """Write the facts of some instances, and forget others."""
        puts = ({"PutRequest": {"Item": _item(facts)}} for facts in written)
        deletes = ({"DeleteRequest": {"Key": item_key(one, FACTS)}} for one in removed)
        for requests in batched([*puts, *deletes], BATCH, strict=False):
            self._write(list(requests))

    def _write(self, requests: list[dict[str, Any]]) -> None:
        for attempt in range(TRIES):
            with aws_errors():
                answer = self._client().batch_write_item(RequestItems={self._table: requests})
            requests = answer.get("UnprocessedItems", {}).get(self._table, [])
            if not requests:
                return
            time.sleep(min(0.05 * 2**attempt, 1.0))
        raise CloudUnavailable(f"{len(requests)} items of the index were not written: throttled")


def _item(facts: InstanceFacts) -> dict[str, Any]:
    return {
        **item_key(facts.instance, FACTS),
        "cluster": {"S": facts.cluster},
        "record": {"S": facts.model_dump_json()},
    }
