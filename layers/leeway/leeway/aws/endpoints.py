"""The endpoints of clusters, cached in the table for all functions, by boto3.

Keys: `pk` = ENDPOINT#<cluster>, `sk` = ENDPOINT. `until` is the time of the next refresh, `expires`
the table's time to live. Functions send a token to the endpoint, so a cached address must be that
of an EKS API server, even if something else wrote the item.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from leeway.aws.errors import aws_errors, conditional_write
from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable, ClusterEndpoint, Clusters
from leeway.table import RecordChanged

REFRESH_AFTER = timedelta(minutes=15)
"""How long all functions use a cached endpoint before one of them reads it from EKS again."""

CLAIM_LASTS = timedelta(seconds=30)
"""How long a claim to refresh an endpoint lasts. After that another function claims the refresh."""

KEPT_FOR = timedelta(days=1)
"""How long a cached endpoint is used while EKS is unavailable."""


class CachedClusters:
    """The Clusters Protocol over a cache in the table: in a storm a hundred functions start at
    once, and EKS allows far fewer calls per second.

    `source` reads an endpoint that is not cached; `endpoint_problem` returns why an address gets no
    token, or an empty string. One function refreshes an old item while the others use it: a cluster
    that was recreated with the same name in the last minutes is rarer than a storm.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        table: str,
        source: Clusters,
        clock: Clock,
        endpoint_problem: Callable[[str], str],
    ) -> None:
        self._client = client
        self._table = table
        self._source = source
        self._clock = clock
        self._endpoint_problem = endpoint_problem

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read a cluster's endpoint: one GetItem while the cached endpoint is fresh.

        Raises:
            CloudUnavailable: EKS is unavailable, and no endpoint of the last day is cached.
            CloudRefused: the cluster does not exist, it has no endpoint yet, or the endpoint is not
                an API server of EKS.
        """
        with aws_errors():
            item = self._client().get_item(TableName=self._table, Key=_key(name)).get("Item")
        now = self._clock.now().timestamp()
        # DynamoDB removes expired items only some time after they expire.
        if item is None or "until" not in item or int(item["expires"]["N"]) <= now:
            return self._refresh(name)
        cached = ClusterEndpoint(name, item["url"]["S"], item["authority"]["S"])
        if self._endpoint_problem(cached.url):
            return self._refresh(name)
        if now < float(item["until"]["N"]) or not self._claim_refresh(item):
            return cached
        try:
            return self._refresh(name)
        except CloudUnavailable:
            return cached

    def _refresh(self, name: str) -> ClusterEndpoint:
        found = self._source.endpoint(name)
        if problem := self._endpoint_problem(found.url):
            raise CloudRefused(f"cluster {name}: its endpoint gets no token: {problem}")
        now = self._clock.now()
        attributes = {
            "url": {"S": found.url},
            "authority": {"S": found.certificate_authority},
            "until": {"N": str((now + REFRESH_AFTER).timestamp())},
            "expires": {"N": str(int((now + KEPT_FOR).timestamp()))},
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item={**_key(name), **attributes})
        return found

    def _claim_refresh(self, item: dict[str, Any]) -> bool:
        """Move the time of the next refresh; False if another function moved it first."""
        until = self._clock.now() + CLAIM_LASTS
        try:
            with conditional_write(item["pk"]["S"]):
                self._client().put_item(
                    TableName=self._table,
                    Item={**item, "until": {"N": str(until.timestamp())}},
                    ConditionExpression="#until = :seen",
                    ExpressionAttributeNames={"#until": "until"},
                    ExpressionAttributeValues={":seen": item["until"]},
                )
        except RecordChanged:
            return False
        return True


def _key(name: str) -> dict[str, Any]:
    return {"pk": {"S": f"ENDPOINT#{name}"}, "sk": {"S": "ENDPOINT"}}
