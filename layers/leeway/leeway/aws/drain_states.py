"""How far drains are, in the table, by boto3: `pk` = PROGRESS#<instance id>, `sk` = DRAIN."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import batched
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.drain.summary import DrainState
from leeway.typed_json import adapter_of

KEPT_FOR = timedelta(days=1)
"""How long what was last said is kept; the outcome is told elsewhere, and for longer."""

_AT_ONCE = 100
"""Items of one BatchGetItem. Source: DynamoDB API reference, "BatchGetItem"."""


class DynamoDrainStates:
    """The DrainStates Protocol; `client` makes boto3's DynamoDB client when first asked."""

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


class DynamoDrainStatesRead:
    """What was shown, for those who watch."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of(self, instances: Iterable[str]) -> Mapping[str, DrainState]:
        """Read how far the drains of these instances are, by instance; some may have none."""
        found: dict[str, DrainState] = {}
        for some in batched(dict.fromkeys(instances), _AT_ONCE, strict=False):
            keys = [_key(instance) for instance in some]
            while keys:
                with aws_errors():
                    answer = self._client().batch_get_item(
                        RequestItems={self._table: {"Keys": keys}}
                    )
                for item in answer["Responses"].get(self._table, []):
                    state = adapter_of(DrainState).validate_json(item["state"]["S"])
                    found[state.instance] = state
                keys = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        return found


def _key(instance: str) -> dict[str, Any]:
    return {"pk": {"S": f"PROGRESS#{instance}"}, "sk": {"S": "DRAIN"}}
