"""Answers what instances cost, from a synthetic price book: none of these figures is AWS's.

Stands in for the Pricing API, which moto lacks, and for Spot prices, which in moto are all equal.
Deterministic and shaped like the real ones: by vCPU and memory, by family, Spot varying by zone.
"""

import hashlib
import json
from typing import Any

from moto.core.request import Request
from moto.core.responses import ActionResult, BaseResponse
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.responses.spot_instances import SpotInstances

from sandbox.aws.calls import Answer, Environ
from sandbox.aws.paging import page

LABEL = "synthetic price book of the Leeway sandbox"
PER_VCPU, PER_GIB = 0.0307, 0.0043  # USD per hour
PER_GPU = {"T4": 0.35, "T4g": 0.3, "A10G": 0.75, "L4": 0.6, "V100": 2.6, "A100": 3.2, "H100": 9.5}
PER_TB_OF_NVME = 0.08
MOST_PRODUCTS, MOST_PRICES = 100, 1000  # of a page, unless the caller wants fewer
VERSION, PUBLISHED = "20260101000000", "2026-01-01T00:00:00Z"


def _dice(*words: str) -> float:
    """A number in [0, 1) that the words decide."""
    return int.from_bytes(hashlib.sha256("/".join(words).encode()).digest()[:4]) / 2**32


def on_demand_price(instance_type: str) -> float:
    """USD per hour on demand, Linux, shared tenancy; 0 for a type that is not in the catalog."""
    kind = INSTANCE_TYPES.get(instance_type)
    if kind is None:
        return 0.0
    cores = kind["VCpuInfo"]["DefaultVCpus"]
    price: float = cores * PER_VCPU + kind["MemoryInfo"]["SizeInMiB"] / 1024 * PER_GIB
    family = instance_type.split(".")[0]
    if "arm64" in kind["ProcessorInfo"]["SupportedArchitectures"]:
        price *= 0.8
    elif family.endswith("a"):
        price *= 0.9
    if kind.get("BurstablePerformanceSupported"):
        price *= 0.87
    for gpu in kind.get("GpuInfo", {}).get("Gpus", []):
        price += gpu["Count"] * PER_GPU.get(gpu["Name"], 1.0)
    price += kind.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) / 1000 * PER_TB_OF_NVME
    return round(price * (0.97 + 0.06 * _dice(family)), 4)


def spot_price(instance_type: str, zone: str) -> float:
    """USD per hour of Spot in a zone: a quarter to a half of on demand."""
    family = instance_type.split(".")[0]
    share = 0.25 + 0.15 * _dice(family, "spot") + 0.1 * _dice(instance_type, zone)
    return round(on_demand_price(instance_type) * share, 4)


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
        "description": f"{LABEL}: ${price} per On Demand Linux {instance_type} Instance Hour",
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


def answer(environ: Environ) -> Answer:
    """Serve one request to the Pricing API."""
    status, headers, body = PricingResponse.dispatch(Request(environ))
    content = body.encode() if isinstance(body, str) else body
    return status, {key: str(value) for key, value in headers.items()}, content


def install() -> None:
    """Let moto's Spot price history tell the price book's prices, one for each type and zone."""

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
