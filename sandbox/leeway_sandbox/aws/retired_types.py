"""A fixture: the GPU types of users' old manifests, which moto's catalog no longer has.

p2.xlarge and p3.2xlarge, 8xlarge and 16xlarge in the form of DescribeInstanceTypes, with the fields
that Leeway reads. One region offers them; the other regions do not, as is usual today. Source:
EC2's instance type pages and ENI limits of 2023.
"""

from dataclasses import dataclass
from typing import Any

REGION = "us-east-1"
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
