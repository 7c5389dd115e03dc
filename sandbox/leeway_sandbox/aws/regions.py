"""The instance types that a region offers, and their prices: moto's data, read without moto itself,
with two fixtures.

The prices are not those of AWS. They are deterministic and depend on vCPU, memory and family; Spot
prices also depend on the zone. The retired types are the GPU types of users' old manifests, which
moto's catalog no longer has: p2.xlarge and p3.2xlarge, 8xlarge and 16xlarge in the form of
DescribeInstanceTypes, with the fields that Leeway reads. One region offers them; the other regions
do not, as is usual today. Source: EC2's instance type pages and ENI limits of 2023.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from leeway_sandbox.installed import package

LABEL = "synthetic price book of the Leeway sandbox"
PER_VCPU, PER_GIB = 0.0307, 0.0043  # USD per hour
PER_GPU = {
    "K80": 0.5,
    "T4": 0.35,
    "T4g": 0.3,
    "A10G": 0.75,
    "L4": 0.6,
    "V100": 2.6,
    "A100": 3.2,
    "H100": 9.5,
}
PER_TB_OF_NVME = 0.08
PER_VCPU_OF_WINDOWS = 0.046
REGION = "us-east-1"


def _dice(*words: str) -> float:
    """Return a number in [0, 1) that is a hash of the words."""
    return int.from_bytes(hashlib.sha256("/".join(words).encode()).digest()[:4]) / 2**32


def on_demand_price(kind: Mapping[str, Any]) -> float:
    """Return USD per hour on demand, Linux, shared tenancy."""
    cores = kind["VCpuInfo"]["DefaultVCpus"]
    price: float = cores * PER_VCPU + kind["MemoryInfo"]["SizeInMiB"] / 1024 * PER_GIB
    family = kind["InstanceType"].split(".")[0]
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


def spot_price(kind: Mapping[str, Any], zone: str) -> float:
    """Return USD per hour of Spot in a zone: a quarter to a half of on demand."""
    name = kind["InstanceType"]
    family = name.split(".")[0]
    share = 0.25 + 0.15 * _dice(family, "spot") + 0.1 * _dice(name, zone)
    return round(on_demand_price(kind) * share, 4)


def windows_surcharge(kind: Mapping[str, Any]) -> float:
    """Return the surcharge of Windows in USD per hour."""
    return round(PER_VCPU_OF_WINDOWS * int(kind["VCpuInfo"]["DefaultVCpus"]), 4)


ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


@dataclass(frozen=True)
class _Facts:
    name: str
    vcpus: int
    gib: int
    gpus: int
    gpu: str
    gpu_mib: int
    interfaces: int
    addresses: int
    network_gbps: float
    ebs_mbps: int


def _described(facts: _Facts) -> dict[str, Any]:
    return {
        "InstanceType": facts.name,
        "BareMetal": False,
        "BurstablePerformanceSupported": False,
        "CurrentGeneration": False,
        "Hypervisor": "xen",
        "InstanceStorageSupported": False,
        "SupportedUsageClasses": ["on-demand", "spot"],
        "SupportedRootDeviceTypes": ["ebs"],
        "SupportedVirtualizationTypes": ["hvm"],
        "ProcessorInfo": {
            "Manufacturer": "Intel",
            "SupportedArchitectures": ["x86_64"],
            "SustainedClockSpeedInGhz": 2.7,
        },
        "VCpuInfo": {
            "DefaultVCpus": facts.vcpus,
            "DefaultCores": facts.vcpus // 2,
            "DefaultThreadsPerCore": 2,
        },
        "MemoryInfo": {"SizeInMiB": facts.gib * 1024},
        "EbsInfo": {"EbsOptimizedInfo": {"MaximumBandwidthInMbps": facts.ebs_mbps}},
        "NetworkInfo": {
            "DefaultNetworkCardIndex": 0,
            "EncryptionInTransitSupported": False,
            "Ipv4AddressesPerInterface": facts.addresses,
            "MaximumNetworkInterfaces": facts.interfaces,
            "NetworkCards": [
                {
                    "NetworkCardIndex": 0,
                    "MaximumNetworkInterfaces": facts.interfaces,
                    "BaselineBandwidthInGbps": facts.network_gbps,
                }
            ],
        },
        "GpuInfo": {
            "Gpus": [
                {
                    "Name": facts.gpu,
                    "Manufacturer": "NVIDIA",
                    "Count": facts.gpus,
                    "MemoryInfo": {"SizeInMiB": facts.gpu_mib},
                }
            ],
            "TotalGpuMemoryInMiB": facts.gpus * facts.gpu_mib,
        },
    }


TYPES = tuple(
    map(
        _described,
        (
            _Facts("p2.xlarge", 4, 61, 1, "K80", 12288, 4, 15, 1.25, 750),
            _Facts("p3.2xlarge", 8, 61, 1, "V100", 16384, 4, 15, 2.5, 1750),
            _Facts("p3.8xlarge", 32, 244, 4, "V100", 16384, 8, 30, 10, 7000),
            _Facts("p3.16xlarge", 64, 488, 8, "V100", 16384, 8, 30, 25, 14000),
        ),
    )
)


def offered_in(region: str) -> tuple[tuple[str, str], ...]:
    """Return (type, zone) of what the fixture offers in a region."""
    if region != REGION:
        return ()
    return tuple((kind["InstanceType"], zone) for kind in TYPES for zone in ZONES)


# Reads the zones from the source of moto's models, because their import loads half of moto.
_ZONE = re.compile(r'Zone\(\s*region_name="([^"]+)",\s*name="([^"]+)",\s*zone_id="([^"]+)"')


class UnknownRegion(LookupError):
    """moto has no offerings of a region of this name."""


@dataclass(frozen=True)
class Region:
    """The instance types of a region.

    `types` are documents of DescribeInstanceTypes, `offered` the type names by zone, `zone_ids` the
    zone ids by zone. Prices are in USD per hour: on demand by type, Spot by zone and type.
    """

    name: str
    types: tuple[Mapping[str, Any], ...]
    offered: Mapping[str, frozenset[str]]
    zone_ids: Mapping[str, str]
    on_demand: Mapping[str, float]
    spot: Mapping[str, Mapping[str, float]]


def regions() -> list[str]:
    """Return the regions with data."""
    found = (_data() / "instance_type_offerings" / "availability-zone").glob("*.json.gz")
    return sorted(path.name.removesuffix(".json.gz") for path in found)


def read_region(name: str) -> Region:
    """Read one region.

    Raises:
        UnknownRegion: the region has no data.
    """
    if name not in regions():
        raise UnknownRegion(name)
    kinds: dict[str, Any] = _load("instance_types.json.gz")
    kinds |= {kind["InstanceType"]: kind for kind in TYPES}
    zones: dict[str, set[str]] = {}
    found = _load(f"instance_type_offerings/availability-zone/{name}.json.gz")
    places = [(o["InstanceType"], o["Location"]) for o in found]
    for kind, zone in (*places, *offered_in(name)):
        if kind in kinds:
            zones.setdefault(zone, set()).add(kind)
    offered = sorted({kind for names in zones.values() for kind in names})
    return Region(
        name=name,
        types=tuple(kinds[kind] for kind in offered),
        offered={zone: frozenset(names) for zone, names in sorted(zones.items())},
        zone_ids={zone: zone_id for region, zone, zone_id in _zones() if region == name},
        on_demand={kind: on_demand_price(kinds[kind]) for kind in offered},
        spot={
            zone: {kind: spot_price(kinds[kind], zone) for kind in sorted(names)}
            for zone, names in sorted(zones.items())
        },
    )


@cache
def _data() -> Path:
    return package("moto") / "ec2" / "resources"


@cache
def _zones() -> list[tuple[str, str, str]]:
    source = _data().parent / "models" / "availability_zones_and_regions.py"
    return _ZONE.findall(source.read_text())


def _load(name: str) -> Any:
    return json.loads(gzip.decompress((_data() / name).read_bytes()))
