"""A synthetic price book: these are not the prices of AWS.

The prices are deterministic. They depend on vCPU, memory and family; Spot prices also depend on the
zone. Instance types have the form of DescribeInstanceTypes.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

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
