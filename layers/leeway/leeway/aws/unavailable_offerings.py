"""Offerings that EC2 has not enough of for the moment, in the table, by boto3.

Keys: `pk` = OFFERINGS#<region>, `sk` = UNAVAILABLE#<capacity type>#<instance type>#<zone>.
`expires` is the table's time to live, and the moment from which an offering counts again.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.aws.query import query_all
from leeway.ports.table import Offering
from leeway.selection.offers.unavailable import Unavailable

REFRESHED_AFTER = timedelta(seconds=30)
"""How much longer an offering must be unavailable for it to be written again. A storm takes a
thousand instances of one offering, and the table takes a thousand writes a second of one item."""


class DynamoUnavailableOfferings:
    """The UnavailableOfferings Protocol, one for a warm function; `client` makes boto3's client
    when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table
        self._marked: dict[Offering, datetime] = {}

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        """Note that an offering is not to be launched until then, or some seconds less."""
        known = self._marked.get(offering)
        if _is_old(known, until):
            known = self._marked_by_others(offering)
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

    def _marked_by_others(self, offering: Offering) -> datetime | None:
        """Read until when an offering is marked: each of a storm's functions has its first, and
        most of them come when another one has marked it."""
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
        """Read which offerings of a region are not to be launched at this time."""
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
        named = (item["sk"]["S"].split("#") for item in items)
        return frozenset(Unavailable(kind, zone, sold_as) for _, sold_as, kind, zone in named)


def _is_old(known: datetime | None, until: datetime) -> bool:
    return known is None or until - known >= REFRESHED_AFTER


def _key(offering: Offering) -> dict[str, Any]:
    said = f"{offering.capacity_type}#{offering.instance_type}#{offering.zone}"
    return {"pk": {"S": f"OFFERINGS#{offering.region}"}, "sk": {"S": f"UNAVAILABLE#{said}"}}
