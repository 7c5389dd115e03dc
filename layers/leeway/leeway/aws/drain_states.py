"""The progress of drains in the table, by boto3: `pk` = PROGRESS#<instance id>, `sk` = DRAIN."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from leeway.aws.batches import get_batches
from leeway.aws.errors import aws_errors
from leeway.clock import Clock
from leeway.retirement.drain import DrainState
from leeway.typed_json import adapter_of

KEPT_FOR = timedelta(days=1)
"""How long DynamoDB keeps the last progress of a drain. The retirement's record keeps the outcome,
and for longer."""


class DynamoDrainStates:
    """The DrainStates Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def put(self, state: DrainState) -> None:
        """Write the progress of a drain; it replaces the progress that was written before."""
        expires = int((state.at + KEPT_FOR).timestamp())
        item = {
            **_key(state.instance),
            "state": {"S": adapter_of(DrainState).dump_json(state).decode()},
            "expires": {"N": str(expires)},
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item=item)


class DynamoDrainStatesReader:
    """Reads the progress of drains; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._clock = clock

    def of(self, instances: Iterable[str]) -> Mapping[str, DrainState]:
        """Read the progress of these instances' drains, by instance id. One BatchGetItem for each
        100 instances; an instance without a stored state is left out.

        Raises:
            CloudUnavailable: DynamoDB is unavailable, or returns no items for some keys.
        """
        keys = [_key(instance) for instance in dict.fromkeys(instances)]
        items = get_batches(self._client(), self._table, keys, self._clock)
        states = [adapter_of(DrainState).validate_json(item["state"]["S"]) for item in items]
        return {state.instance: state for state in states}


def _key(instance: str) -> dict[str, Any]:
    return {"pk": {"S": f"PROGRESS#{instance}"}, "sk": {"S": "DRAIN"}}
