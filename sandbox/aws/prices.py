"""Answers what instances cost, from the sandbox's price book.

Stands in for the Pricing API, which moto lacks, and for Spot prices, which in moto are all equal.
"""

import hashlib
import json
from typing import Any

from moto.core.responses import ActionResult, BaseResponse
from moto.ec2.models.instance_types import (
    INSTANCE_TYPE_OFFERINGS,
    INSTANCE_TYPES,
    InstanceType,
    InstanceTypeBackend,
)
from moto.ec2.responses.spot_instances import SpotInstances

from sandbox.aws import price_book, retired_types
from sandbox.aws.paging import page

MOST_PRODUCTS, MOST_PRICES = 100, 1000  # of a page, unless the caller wants fewer
VERSION, PUBLISHED = "20260101000000", "2026-01-01T00:00:00Z"


def on_demand_price(instance_type: str) -> float:
    """USD per hour on demand; 0 for a type that is not in the catalog."""
    kind = INSTANCE_TYPES.get(instance_type)
    return price_book.on_demand_price(kind) if kind else 0.0


def spot_price(instance_type: str, zone: str) -> float:
    """USD per hour of Spot in a zone; 0 for a type that is not in the catalog."""
    kind = INSTANCE_TYPES.get(instance_type)
    return price_book.spot_price(kind, zone) if kind else 0.0


class PricingResponse(BaseResponse):
    """GetProducts for AmazonEC2, in the documented shape of a price list's product."""

    def __init__(self) -> None:
        super().__init__(service_name="pricing")
        self.automated_parameter_parsing = True

    def get_products(self) -> ActionResult:
        """Linux on shared tenancy; the filters understood are instanceType and regionCode."""
        filters = {f["Field"]: f["Value"] for f in self._get_param("Filters", [])}
        region = filters.get("regionCode", self.region)
        offered = {o["InstanceType"] for o in INSTANCE_TYPE_OFFERINGS["region"].get(region, [])}
        wanted = filters.get("instanceType")
        names = sorted(name for name in offered if wanted in {None, name})
        limit = self._get_param("MaxResults") or MOST_PRODUCTS
        shown, token = page(names, limit, self._get_param("NextToken"))
        products = [json.dumps(_product(name, region)) for name in shown]
        return ActionResult({"FormatVersion": "aws_v1", "PriceList": products, "NextToken": token})


def _product(instance_type: str, region: str) -> dict[str, Any]:
    kind = INSTANCE_TYPES.get(instance_type, {})
    sku = hashlib.sha256(f"{instance_type}/{region}".encode()).hexdigest()[:16].upper()
    price = on_demand_price(instance_type)
    dimension = {
        "unit": "Hrs",
        "description": (
            f"{price_book.LABEL}: ${price} per On Demand Linux {instance_type} Instance Hour"
        ),
        "pricePerUnit": {"USD": f"{price:.10f}"},
    }
    return {
        "product": {
            "productFamily": "Compute Instance",
            "sku": sku,
            "attributes": {
                "instanceType": instance_type,
                "regionCode": region,
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "capacitystatus": "Used",
                "preInstalledSw": "NA",
                "vcpu": str(kind.get("VCpuInfo", {}).get("DefaultVCpus", 0)),
                "servicecode": "AmazonEC2",
            },
        },
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": {"priceDimensions": {f"{sku}.H": dimension}}}},
        "version": VERSION,
        "publicationDate": PUBLISHED,
    }


def install() -> None:
    """Let moto's Spot price history tell the price book's prices, one for each type and zone, and
    let it know the types of the fixture."""
    _add_retired_types()

    def describe_spot_price_history(self: SpotInstances) -> ActionResult:
        offers = self.ec2_backend.describe_spot_price_history(
            self._get_param("InstanceTypes", []), self._filters_from_querystring()
        )
        limit = self._get_param("MaxResults") or MOST_PRICES
        shown, token = page(offers, limit, self._get_param("NextToken"))
        history = [
            {
                "InstanceType": offer["InstanceType"],
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{spot_price(offer['InstanceType'], offer['Location']):.6f}",
                "AvailabilityZone": offer["Location"],
                "Timestamp": PUBLISHED,
            }
            for offer in shown
        ]
        return ActionResult({"SpotPriceHistory": history, "NextToken": token or ""})

    SpotInstances.describe_spot_price_history = describe_spot_price_history  # type: ignore[method-assign]


def _add_retired_types() -> None:
    for kind in retired_types.TYPES:
        if kind["InstanceType"] not in INSTANCE_TYPES:
            INSTANCE_TYPES[kind["InstanceType"]] = kind
            InstanceTypeBackend.instance_types.append(InstanceType(kind["InstanceType"]))
    for location_type, offerings in INSTANCE_TYPE_OFFERINGS.items():
        known = offerings.setdefault(retired_types.REGION, [])
        offered = {(o["InstanceType"], o["Location"]) for o in known}
        for name, zone in retired_types.offered_in(retired_types.REGION):
            location = zone if location_type == "availability-zone" else retired_types.REGION
            if location_type != "availability-zone-id" and (name, location) not in offered:
                offered.add((name, location))
                known.append({"InstanceType": name, "Location": location})
