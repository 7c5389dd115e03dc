"""The Pricing API and Spot prices, from the price book of the sandbox.

moto has no such prices: its Spot prices are all equal.
"""

import functools
import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from moto.core.responses import ActionResult, BaseResponse
from moto.ec2.models.instance_types import (
    INSTANCE_TYPE_OFFERINGS,
    INSTANCE_TYPES,
    InstanceType,
    InstanceTypeBackend,
)
from moto.ec2.responses.spot_instances import SpotInstances

from leeway_sandbox.aws import regions
from leeway_sandbox.aws.documents import Documents
from leeway_sandbox.aws.ec2_requests import page

MOST_PRODUCTS, MOST_PRICES = 100, 1000  # of a page, unless the caller asks for fewer
SERVICE = "AmazonEC2"
TERM, RATE = "JRTCKXETXF", "6YS6EN2CT7"  # on demand, by the hour
VERSION, PUBLISHED = "20260101000000", "2026-01-01T00:00:00Z"


def on_demand_price(instance_type: str) -> float:
    """Return USD per hour on demand; 0 for a type that is not in the catalog."""
    kind = INSTANCE_TYPES.get(instance_type)
    return regions.on_demand_price(kind) if kind else 0.0


def spot_price(instance_type: str, zone: str) -> float:
    """Return USD per hour of Spot in a zone; 0 for a type that is not in the catalog."""
    kind = INSTANCE_TYPES.get(instance_type)
    return regions.spot_price(kind, zone) if kind else 0.0


@functools.cache
def spot_offers() -> tuple[tuple[str, str, str, float], ...]:
    """Return type, zone, product and USD per hour of all Spot offers."""
    offers = []
    for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(regions.REGION, []):
        name, zone = offering["InstanceType"], offering["Location"]
        linux = spot_price(name, zone)
        windows = linux + regions.windows_surcharge(INSTANCE_TYPES[name])
        offers += [(name, zone, "Linux/UNIX", linux), (name, zone, "Windows", windows)]
    return tuple(offers)


class PricingResponse(BaseResponse):
    """GetProducts for AmazonEC2, in the documented shape of a price list's product."""

    def __init__(self) -> None:
        super().__init__(service_name="pricing")
        self.automated_parameter_parsing = True

    def get_products(self) -> ActionResult:
        """Return the products that match all filters; a filter is an equality here."""
        wanted = {f["Field"]: f["Value"] for f in self._get_param("Filters", [])}
        code = self._get_param("ServiceCode")
        found = [one for one in products() if wanted.items() <= one.attributes.items()]
        limit = self._get_param("MaxResults") or MOST_PRODUCTS
        shown, token = page(found if code == SERVICE else [], limit, self._get_param("NextToken"))
        listed = [product.listed for product in shown]
        return ActionResult({"FormatVersion": "aws_v1", "PriceList": listed, "NextToken": token})


@dataclass(frozen=True)
class Product:
    """One way to buy an instance type by the hour."""

    sku: str
    attributes: Mapping[str, str]
    price: float

    @functools.cached_property
    def listed(self) -> str:
        """The product as an entry of a price list, in JSON."""
        term = f"{self.sku}.{TERM}"
        kind, system = self.attributes["instanceType"], self.attributes["operatingSystem"]
        dimension = {
            "unit": "Hrs",
            "beginRange": "0",
            "endRange": "Inf",
            "rateCode": f"{term}.{RATE}",
            "appliesTo": [],
            "description": (
                f"{regions.LABEL}: ${self.price} per On Demand {system} {kind} Instance Hour"
            ),
            "pricePerUnit": {"USD": f"{self.price:.10f}"},
        }
        entry = {
            "product": {
                "productFamily": "Compute Instance",
                "sku": self.sku,
                "attributes": dict(self.attributes),
            },
            "serviceCode": SERVICE,
            "terms": {
                "OnDemand": {
                    term: {
                        "priceDimensions": {f"{term}.{RATE}": dimension},
                        "sku": self.sku,
                        "effectiveDate": PUBLISHED,
                        "offerTermCode": TERM,
                        "termAttributes": {},
                    }
                }
            },
            "version": VERSION,
            "publicationDate": PUBLISHED,
        }
        return json.dumps(entry)


@functools.cache
def products() -> tuple[Product, ...]:
    """Return the products of the region: Linux and Windows, used and unused reservations.

    A caller that omits a filter gets more products than it needs, as from AWS.
    """
    offered = INSTANCE_TYPE_OFFERINGS["region"].get(regions.REGION, [])
    names = sorted({offering["InstanceType"] for offering in offered} & INSTANCE_TYPES.keys())
    return tuple(
        _product(INSTANCE_TYPES[name], system, status)
        for name in names
        for system in ("Linux", "Windows")
        for status in ("Used", "UnusedCapacityReservation")
    )


def _product(kind: Mapping[str, Any], system: str, status: str) -> Product:
    name = kind["InstanceType"]
    box = "BoxUsage" if status == "Used" else "UnusedBox"
    attributes = {
        "servicecode": SERVICE,
        "servicename": "Amazon Elastic Compute Cloud",
        "instanceType": name,
        "currentGeneration": "Yes" if kind.get("CurrentGeneration") else "No",
        "vcpu": str(kind["VCpuInfo"]["DefaultVCpus"]),
        "memory": f"{kind['MemoryInfo']['SizeInMiB'] / 1024:g} GiB",
        "regionCode": regions.REGION,
        "location": "US East (N. Virginia)",
        "locationType": "AWS Region",
        "operatingSystem": system,
        "operation": "RunInstances" if system == "Linux" else "RunInstances:0002",
        "licenseModel": "No License required",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": status,
        "marketoption": "OnDemand",
        "usagetype": f"{box}:{name}",
    }
    digest = hashlib.sha256(f"{name}/{system}/{status}".encode()).hexdigest()
    surcharge = regions.windows_surcharge(kind) if system == "Windows" else 0.0
    price = round(regions.on_demand_price(kind) + surcharge, 4)
    return Product(digest[:16].upper(), attributes, price)


class SpotPrices(SpotInstances):
    """Answers DescribeSpotPriceHistory from the price book: one price for each type and zone."""

    def describe_spot_price_history(self) -> ActionResult:
        """Return one page of the prices that the parameters and filters select."""
        filters = self._filters_from_querystring()
        zone = self._get_param("AvailabilityZone")
        selected: tuple[Container[str] | None, ...] = (
            self._get_param("InstanceTypes") or filters.get("instance-type"),
            [zone] if zone else filters.get("availability-zone"),
            self._get_param("ProductDescriptions") or filters.get("product-description"),
        )
        offers = [
            offer
            for offer in spot_offers()
            if all(one is None or value in one for value, one in zip(offer, selected, strict=False))
        ]
        limit = self._get_param("MaxResults") or MOST_PRICES
        shown, token = page(offers, limit, self._get_param("NextToken"))
        history = [
            {
                "InstanceType": name,
                "ProductDescription": product,
                "SpotPrice": f"{price:.6f}",
                "AvailabilityZone": zone,
                "Timestamp": PUBLISHED,
            }
            for name, zone, product, price in shown
        ]
        return Documents({"SpotPriceHistory": history, "NextToken": token or ""})


def add_retired_types() -> None:
    """Add the types of the fixture to moto's catalog."""
    for kind in regions.TYPES:
        if kind["InstanceType"] not in INSTANCE_TYPES:
            INSTANCE_TYPES[kind["InstanceType"]] = kind
            InstanceTypeBackend.instance_types.append(InstanceType(kind["InstanceType"]))
    for location_type, offerings in INSTANCE_TYPE_OFFERINGS.items():
        known = offerings.setdefault(regions.REGION, [])
        offered = {(o["InstanceType"], o["Location"]) for o in known}
        for name, zone in regions.offered_in(regions.REGION):
            location = zone if location_type == "availability-zone" else regions.REGION
            if location_type != "availability-zone-id" and (name, location) not in offered:
                offered.add((name, location))
                known.append({"InstanceType": name, "Location": location})


def load() -> None:
    """Compute all prices."""
    add_retired_types()
    spot_offers()
    for one in products():
        one.listed  # noqa: B018 - it is kept
