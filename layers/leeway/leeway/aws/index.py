"""The index of the instances of all managed clusters in the table, by boto3.

Keys: `pk` = INSTANCE#<instance id>, `sk` = FACTS, whose `cluster` feeds the index `by-cluster`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from leeway.aws.batches import write_batches
from leeway.aws.query import query_all
from leeway.aws.records import FACTS, body_of, is_of, item_key
from leeway.clock import Clock
from leeway.instances.facts import InstanceFacts


class DynamoIndex:
    """The Index Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._clock = clock

    def of_cluster(self, cluster: str) -> dict[str, InstanceFacts]:
        """Read the facts of a cluster's instances, by id. An eventually consistent Query: an item
        may be a second old."""
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
                continue  # an unreadable item counts as missing: reconcile writes it again
            if is_of(item, facts.instance):
                found[facts.instance] = facts
        return found

    def update(self, written: Iterable[InstanceFacts], removed: Iterable[str]) -> None:
        """Write and remove facts. One BatchWriteItem for each 25 instances."""
        puts = ({"PutRequest": {"Item": _item(facts)}} for facts in written)
        deletes = ({"DeleteRequest": {"Key": item_key(key, FACTS)}} for key in removed)
        write_batches(self._client(), self._table, [*puts, *deletes], self._clock)


def _item(facts: InstanceFacts) -> dict[str, Any]:
    return {
        **item_key(facts.instance, FACTS),
        "cluster": {"S": facts.cluster},
        "record": {"S": facts.model_dump_json()},
    }
