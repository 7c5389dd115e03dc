"""Instance types as EC2 describes them: their labels and their hardware.

Reads only the responses of DescribeInstanceTypes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.selection.labels import ARCH, INSTANCE, INSTANCE_TYPE
from leeway.selection.offers.branches import branch_interfaces

GPU_RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "habana": "habana.ai/gaudi",
}
_USUAL_VOLUMES = 27  # of the Nitro system's 28 attachments, if EC2 describes no limit

NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
EFA = "vpc.amazonaws.com/efa"
"""Elastic Fabric Adapters: network interfaces that pods request as a resource."""

_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_CATEGORY = re.compile(r"^([a-z]+)(\-[0-9]+tb)?([0-9]+).*\.")
_WORD_BREAKS = re.compile(r"[^a-z0-9.]+")
_GIGABIT = re.compile(r"(?:([0-9]+)x )?([0-9.]+) Gigabit")


@dataclass(frozen=True, slots=True)
class Machine:
    """One instance type.

    `interfaces` are the network interfaces of the default network card, `addresses` the IPv4
    addresses of each. `branches` are the branch interfaces, for pods with their own security
    groups. `volumes` are the EBS volumes that can be attached in addition to its interfaces,
    including the root volume. `disks` is the size of all local NVMe disks in bytes. `efa_card` is
    the first network card that takes an EFA; the cards after it take one each. `devices` are
    extended resources. `shares_gpu`: it has a fraction of a GPU. `bootable`: the supported AMIs
    boot on it. `spot` and `on_demand`: the purchase options.
    """

    name: str
    labels: Mapping[str, str]
    vcpus: int
    memory_mib: int
    interfaces: int
    addresses: int
    branches: int
    volumes: int
    disks: int
    efa_card: int
    devices: Mapping[str, int]
    shares_gpu: bool
    bootable: bool
    spot: bool
    on_demand: bool

    @property
    def arm(self) -> bool:
        """Whether it has an ARM processor."""
        return self.labels.get(ARCH) == "arm64"


def machine(document: Mapping[str, Any]) -> Machine:
    """Parse one instance type of a DescribeInstanceTypes response."""
    network = document["NetworkInfo"]
    architectures = document["ProcessorInfo"]["SupportedArchitectures"]
    usage = document.get("SupportedUsageClasses", ["on-demand", "spot"])
    known = [_ARCHITECTURES[a] for a in architectures if a in _ARCHITECTURES]
    return Machine(
        name=document["InstanceType"],
        labels=dict(_labels(document, known[0] if known else architectures[0])),
        vcpus=document["VCpuInfo"]["DefaultVCpus"],
        memory_mib=document["MemoryInfo"]["SizeInMiB"],
        interfaces=_default_card(network).get(
            "MaximumNetworkInterfaces", network["MaximumNetworkInterfaces"]
        ),
        addresses=network["Ipv4AddressesPerInterface"],
        branches=branch_interfaces(document["InstanceType"], network["MaximumNetworkInterfaces"]),
        volumes=_volumes(document.get("EbsInfo", {})),
        disks=_nvme_gb(document) * 10**9,
        efa_card=_efa_card(network),
        devices=_devices(document),
        shares_gpu=any(not gpu["Count"] for gpu in _gpus(document)),
        bootable=bool(known) and "hvm" in document.get("SupportedVirtualizationTypes", ["hvm"]),
        spot="spot" in usage,
        on_demand="on-demand" in usage,
    )


def _labels(document: Mapping[str, Any], architecture: str) -> Iterator[tuple[str, str]]:
    name = document["InstanceType"]
    processor = document["ProcessorInfo"]
    family, _, size = name.partition(".")
    yield INSTANCE_TYPE, name
    yield ARCH, architecture
    if matched := _CATEGORY.match(name):
        yield f"{INSTANCE}category", matched[1]
        yield f"{INSTANCE}generation", matched[3]
    yield f"{INSTANCE}family", family
    yield f"{INSTANCE}size", size
    yield f"{INSTANCE}cpu", str(document["VCpuInfo"]["DefaultVCpus"])
    yield f"{INSTANCE}memory", str(document["MemoryInfo"]["SizeInMiB"])
    if manufacturer := processor.get("Manufacturer"):
        yield f"{INSTANCE}cpu-manufacturer", _kebab(manufacturer)
    if speed := processor.get("SustainedClockSpeedInGhz"):
        yield f"{INSTANCE}cpu-sustained-clock-speed-mhz", str(round(speed * 1000))
    if bandwidth := document.get("EbsInfo", {}).get("EbsOptimizedInfo"):
        yield f"{INSTANCE}ebs-bandwidth", str(bandwidth["MaximumBandwidthInMbps"])
    if bandwidth := _network_mbps(document["NetworkInfo"]):
        yield f"{INSTANCE}network-bandwidth", str(bandwidth)
    if disks := _nvme_gb(document):
        yield f"{INSTANCE}local-nvme", str(disks)
    if hypervisor := document.get("Hypervisor"):
        yield f"{INSTANCE}hypervisor", _kebab(hypervisor)
    yield f"{INSTANCE}capability-flex", "true" if family.endswith("-flex") else "false"
    encrypted = document["NetworkInfo"].get("EncryptionInTransitSupported", False)
    yield f"{INSTANCE}encryption-in-transit-supported", "true" if encrypted else "false"
    yield from _gpu_labels(document)
    yield from _accelerator_labels(document)


def _gpu_labels(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    gpus = _gpus(document)
    # A label has one value and cannot describe a type with two kinds of GPU.
    if len(gpus) != 1:
        return
    gpu = gpus[0]
    yield f"{INSTANCE}gpu-name", _kebab(gpu["Name"])
    yield f"{INSTANCE}gpu-manufacturer", _kebab(gpu["Manufacturer"])
    yield f"{INSTANCE}gpu-count", str(gpu["Count"])
    if memory := gpu.get("MemoryInfo", {}).get("SizeInMiB"):
        yield f"{INSTANCE}gpu-memory", str(memory)


def _accelerator_labels(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    neurons = document.get("NeuronInfo", {}).get("NeuronDevices", [])
    others = document.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
    found = neurons or others
    if len(found) != 1:
        return
    yield f"{INSTANCE}accelerator-name", _kebab(found[0]["Name"])
    yield f"{INSTANCE}accelerator-manufacturer", _kebab(found[0].get("Manufacturer", "aws"))
    yield f"{INSTANCE}accelerator-count", str(found[0]["Count"])


def _devices(document: Mapping[str, Any]) -> dict[str, int]:
    devices: dict[str, int] = {}
    for gpu in _gpus(document):
        resource = GPU_RESOURCES.get(_kebab(gpu["Manufacturer"]))
        if resource:
            devices[resource] = devices.get(resource, 0) + _gpu_count(gpu)
    neurons = document.get("NeuronInfo", {}).get("NeuronDevices", [])
    cores = (device["Count"] * device.get("CoreInfo", {}).get("Count", 0) for device in neurons)
    devices[NEURON] = sum(device["Count"] for device in neurons)
    devices[NEURON_CORE] = sum(cores)
    devices[EFA] = document["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    return {name: count for name, count in devices.items() if count}


def _gpus(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = document.get("GpuInfo", {}).get("Gpus", [])
    return found


def _gpu_count(gpu: Mapping[str, Any]) -> int:
    """A fraction of a GPU has the count 0 and one logical GPU; a node reports one."""
    count: int = gpu["Count"] or gpu.get("LogicalGpuCount", 0)
    return count


def _default_card(network: Mapping[str, Any]) -> Mapping[str, Any]:
    index = network.get("DefaultNetworkCardIndex", 0)
    cards = network.get("NetworkCards", [])
    return next((card for card in cards if card.get("NetworkCardIndex", 0) == index), {})


def _efa_card(network: Mapping[str, Any]) -> int:
    """The primary card of some types, such as p6-b300.48xlarge, takes no EFA."""
    cards = network.get("NetworkCards", [])
    indexes = (c.get("NetworkCardIndex", 0) for c in cards if "efa" in c.get("InterfaceTypes", ()))
    return min(indexes, default=0)


def _volumes(ebs: Mapping[str, Any]) -> int:
    """If interfaces and volumes share the attachments, EC2 has already subtracted the first
    interface; the CNI uses a second one."""
    most: int = ebs.get("MaximumEbsAttachments", _USUAL_VOLUMES)
    return most if ebs.get("AttachmentLimitType") == "dedicated" else most - 1


def _network_mbps(network: Mapping[str, Any]) -> int:
    """The bandwidth without bursts. For several cards, NetworkPerformance describes the total (`200
    Gigabit`, `4x 100 Gigabit`), and each card may repeat the total. `Up to 10 Gigabit` describes
    the burst; then the baselines of the cards are added."""
    cards = network.get("NetworkCards", [])
    named = _GIGABIT.fullmatch(network.get("NetworkPerformance", ""))
    if named and len(cards) > 1:
        return round(int(named[1] or 1) * float(named[2]) * 1000)
    return sum(round(card.get("BaselineBandwidthInGbps", 0) * 1000) for card in cards)


def _nvme_gb(document: Mapping[str, Any]) -> int:
    storage = document.get("InstanceStorageInfo", {})
    if storage.get("NvmeSupport", "unsupported") == "unsupported":
        return 0
    size: int = storage.get("TotalSizeInGB", 0)
    return size


def _kebab(name: str) -> str:
    return _WORD_BREAKS.sub("-", name.lower()).strip("-")
