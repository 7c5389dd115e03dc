"""Offerings that EC2 has too little capacity for, in the table, by boto3.

Keys: `pk` = OFFERINGS#<region>, `sk` = UNAVAILABLE#<capacity type>#<instance type>#<zone>.
`expires` is the table's time to live; from then on the offering counts as available.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.aws.query import query_all
from leeway.ports.table import Offering
from leeway.selection.offers.catalog import Unavailable

REFRESHED_AFTER = timedelta(seconds=30)
"""An item is written again only if its `expires` moves by this much. EC2 may interrupt a thousand
instances of one offering at once, and DynamoDB accepts a thousand writes per second of one item."""


class DynamoUnavailableOfferings:
    """The UnavailableOfferings Protocol; `client` returns boto3's DynamoDB client. Keep the
    instance while a function is warm: it caches its marks."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table
        self._marked: dict[Offering, datetime] = {}

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        """Mark an offering as unavailable until then, or up to REFRESHED_AFTER less. One Query and
        one PutItem, or neither if a cached mark is recent."""
        known = self._marked.get(offering)
        if _is_old(known, until):
            known = self._stored_mark(offering)
        if known is None or _is_old(known, until):
            item = {
                **_key(offering),
                "reason": {"S": reason},
                "expires": {"N": str(int(until.timestamp()))},
            }
            with aws_errors():
                self._client().put_item(TableName=self._table, Item=item)
            known = until
        self._marked[offering] = known

    def _stored_mark(self, offering: Offering) -> datetime | None:
        """Read until when the table marks an offering. In a storm each function marks it for the
        first time, and usually another function has marked it already."""
        key = _key(offering)
        found = query_all(
            self._client(),
            self._table,
            "pk = :pk AND sk = :sk",
            ExpressionAttributeValues={":pk": key["pk"], ":sk": key["sk"]},
        )
        until = [datetime.fromtimestamp(int(item["expires"]["N"]), UTC) for item in found]
        return until[0] if until else None

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        """Read the unavailable offerings of a region by an eventually consistent Query."""
        items = query_all(
            self._client(),
            self._table,
            "pk = :region AND begins_with(sk, :unavailable)",
            # DynamoDB removes expired items only some time after they expire.
            FilterExpression="expires > :now",
            ExpressionAttributeValues={
                ":region": {"S": f"OFFERINGS#{region}"},
                ":unavailable": {"S": "UNAVAILABLE#"},
                ":now": {"N": str(int(at.timestamp()))},
            },
        )
        keys = (item["sk"]["S"].split("#") for item in items)
        return frozenset(
            Unavailable(instance_type, zone, capacity_type)
            for _, capacity_type, instance_type, zone in keys
        )


def _is_old(known: datetime | None, until: datetime) -> bool:
    return known is None or until - known >= REFRESHED_AFTER


def _key(offering: Offering) -> dict[str, Any]:
    sort = f"UNAVAILABLE#{offering.capacity_type}#{offering.instance_type}#{offering.zone}"
    return {"pk": {"S": f"OFFERINGS#{offering.region}"}, "sk": {"S": sort}}
