"""Where clusters are, remembered in the table for all functions, by boto3.

Keys: `pk` = ENDPOINT#<cluster>, `sk` = ENDPOINT. `until` is when somebody is to ask anew, `expires`
the table's time to live. A token is sent to the address: what is remembered must be an API server
of EKS, whoever wrote it.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable, ClusterEndpoint, Clusters

ASKED_EVERY = timedelta(minutes=15)
"""How long what was heard serves everybody."""

ASKS_FOR = timedelta(seconds=30)
"""How long it is left to the one who asks anew; after that, another one does."""

KEPT_FOR = timedelta(days=1)
"""How long what was heard last serves while nobody hears anything newer."""


class RememberedClusters:
    """The Clusters Protocol, over the table: a hundred functions that start at once in a storm
    must not all ask EKS, which allows far fewer calls a second. `ask` is whoever knows, and
    `refused_because` says why an address is not trusted, or nothing.

    When the time to ask anew comes in the midst of a storm, one of them does. The others go by what
    is remembered: that a cluster was made anew under its name in these minutes is the rarer case.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        table: str,
        ask: Clusters,
        clock: Clock,
        refused_because: Callable[[str], str],
    ) -> None:
        self._client = client
        self._table = table
        self._ask = ask
        self._clock = clock
        self._refused_because = refused_because

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read where the cluster's API server is.

        Raises:
            CloudUnavailable: nobody has known it for a day, and EKS does not answer.
            CloudRefused: there is no such cluster, it has no endpoint yet, or its endpoint is not
                one of EKS.
        """
        with aws_errors():
            item = self._client().get_item(TableName=self._table, Key=_key(name)).get("Item")
        now = self._clock.now().timestamp()
        # DynamoDB removes expired items only some time after they expire.
        if item is None or "until" not in item or int(item["expires"]["N"]) <= now:
            return self._asked(name)
        known = ClusterEndpoint(name, item["url"]["S"], item["authority"]["S"])
        if self._refused_because(known.url):
            return self._asked(name)
        if now < float(item["until"]["N"]) or not self._claim(item):
            return known
        try:
            return self._asked(name)
        except CloudUnavailable:
            return known

    def _asked(self, name: str) -> ClusterEndpoint:
        found = self._ask.endpoint(name)
        if why := self._refused_because(found.url):
            raise CloudRefused(f"cluster {name}: no token is sent to its endpoint: {why}")
        now = self._clock.now()
        known = {
            "url": {"S": found.url},
            "authority": {"S": found.certificate_authority},
            "until": {"N": str((now + ASKED_EVERY).timestamp())},
            "expires": {"N": str(int((now + KEPT_FOR).timestamp()))},
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item={**_key(name), **known})
        return found

    def _claim(self, item: dict[str, Any]) -> bool:
        """Say that one is about to ask for all; False where another one was sooner."""
        until = self._clock.now() + ASKS_FOR
        with aws_errors():
            try:
                self._client().put_item(
                    TableName=self._table,
                    Item={**item, "until": {"N": str(until.timestamp())}},
                    ConditionExpression="#until = :seen",
                    ExpressionAttributeNames={"#until": "until"},
                    ExpressionAttributeValues={":seen": item["until"]},
                )
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    return False
                raise
        return True


def _key(name: str) -> dict[str, Any]:
    return {"pk": {"S": f"ENDPOINT#{name}"}, "sk": {"S": "ENDPOINT"}}
