"""A region's instance types, offerings and prices, from EC2 and the Pricing API, by boto3."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.selection.offers.machines import Machine, machine

_LINUX = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]

# Filters for the price of a plain Linux instance: no reservation, no licence, no dedicated host.
# Source: AWS Price List API, attributes of AmazonEC2.
_PLAIN_LINUX = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
}


class Ec2Market:
    """The Market Protocol; `ec2` and `pricing` return boto3's clients. The Pricing API has few
    endpoints: see `pricing_region`."""

    def __init__(self, ec2: Callable[[], Any], pricing: Callable[[], Any]) -> None:
        self._ec2 = ec2
        self._pricing = pricing

    def types(self) -> tuple[Machine, ...]:
        """Read every instance type, sorted by name, with all pages of DescribeInstanceTypes."""
        with aws_errors():
            pages = self._ec2().get_paginator("describe_instance_types").paginate()
            found = [machine(document) for page in pages for document in page["InstanceTypes"]]
        return tuple(sorted(found, key=lambda kind: kind.name))

    def offered(self) -> dict[str, frozenset[str]]:
        """Read the names of the types that each zone offers, by zone name."""
        zones: dict[str, set[str]] = {}
        with aws_errors():
            pages = self._ec2().get_paginator("describe_instance_type_offerings")
            for page in pages.paginate(LocationType="availability-zone"):
                for offering in page["InstanceTypeOfferings"]:
                    zones.setdefault(offering["Location"], set()).add(offering["InstanceType"])
        return {zone: frozenset(names) for zone, names in sorted(zones.items())}

    def zone_ids(self) -> dict[str, str]:
        """Read the zone ids, which are the same in all accounts, by zone name."""
        with aws_errors():
            zones = self._ec2().describe_availability_zones()["AvailabilityZones"]
        return {zone["ZoneName"]: zone["ZoneId"] for zone in zones}

    def spot(self) -> dict[str, dict[str, float]]:
        """Read the current Spot prices on Linux, in USD per hour, by zone and type."""
        latest: dict[tuple[str, str], tuple[datetime, float]] = {}
        with aws_errors():
            pages = self._ec2().get_paginator("describe_spot_price_history")
            # With a start time of now, EC2 returns the current price of each type and zone.
            history = pages.paginate(ProductDescriptions=_LINUX, StartTime=datetime.now(UTC))
            for page in history:
                for entry in page["SpotPriceHistory"]:
                    offering = (entry["AvailabilityZone"], entry["InstanceType"])
                    quote = (entry["Timestamp"], float(entry["SpotPrice"]))
                    latest[offering] = max(quote, latest.get(offering, quote))
        prices: dict[str, dict[str, float]] = {}
        for (zone, kind), (_, price) in sorted(latest.items()):
            prices.setdefault(zone, {})[kind] = price
        return prices

    def on_demand(self, region: str) -> dict[str, float]:
        """Read the prices on Linux with shared tenancy, in USD per hour, by type."""
        wanted = {"regionCode": region, **_PLAIN_LINUX}
        filters = [
            {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()
        ]
        prices: dict[str, float] = {}
        with aws_errors():
            pages = self._pricing().get_paginator("get_products")
            for page in pages.paginate(ServiceCode="AmazonEC2", Filters=filters):
                for text in page["PriceList"]:
                    product = json.loads(text)
                    kind = product["product"].get("attributes", {}).get("instanceType")
                    for price in _hourly(product):
                        # A type may have several products: its price is the highest of them.
                        prices[kind] = max(price, prices.get(kind, price))
        return prices


def pricing_region(region: str) -> str:
    """Return the nearest region that has an endpoint of the Pricing API.

    Source: AWS Billing user guide, "Price List Query API endpoints".
    """
    if region.startswith("cn-"):
        return "cn-northwest-1"
    if region.startswith("ap-"):
        return "ap-south-1"
    if region.startswith(("eu-", "me-", "af-", "il-")):
        return "eu-central-1"
    return "us-east-1"


def _hourly(product: dict[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            # Some products exist for accounting only and have a price of 0.
            if dimension["unit"] == "Hrs" and price > 0:
                yield price
