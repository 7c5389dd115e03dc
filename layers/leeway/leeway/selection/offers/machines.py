"""Instance types as EC2 describes them: their labels, their hardware and their branch interfaces.

Reads only the responses of DescribeInstanceTypes. EC2 does not describe branch interfaces, for pods
with their own security groups. Source: the limits table of the Amazon VPC resource controller
(`BranchInterface` of the types that are `IsTrunkingCompatible`), as Karpenter's AWS provider
includes it, generated on 2026-08-06. Most types follow one rule: the size determines the total
number of interfaces, and branches are the total less the ordinary interfaces. `_OWN` lists the
types that do not follow it. All other types have none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.selection.labels import ARCH, INSTANCE, INSTANCE_TYPE

POD_ENI = "vpc.amazonaws.com/pod-eni"
"""The resource that a pod with its own security groups requests once."""

_BY_GENERATION = {
    "5": {"", "a", "ad", "b", "d", "dn", "n"},
    "6": {"a", "g", "gd", "gn", "i", "id", "idn", "in"},
    "7": {"a", "g", "gd", "gn", "i", "i-flex", "iz"},
    "8": {
        *("a", "g", "g-flex", "gb", "gd", "gn", "i", "i-flex"),
        *("ib", "id", "idb", "idn", "in", "ine"),
    },
    "9": {"g", "gd"},
}
"""The families of the categories c, m and r that follow the rule."""

_BY_RULE = frozenset(
    {
        *("dl1", "dl2q", "g6", "g6e", "g6f", "g7", "gr6", "gr6f", "inf2", "p3dn", "p4d", "p4de"),
        *("u7i-6tb", "u7i-8tb", "u7i-12tb", "u7in-16tb", "u7in-24tb", "u7in-32tb"),
        *("x2idn", "x8i"),
    }
)
"""Other families that follow the rule."""

_BY_RULE_OF_ARM = frozenset({"g5g", "i4g", "i8g", "im4gn", "is4gen", "x2gd", "x8g"})

_FAMILY = re.compile(r"[cmr]([5-9])([a-z-]*)")

_IN_ALL = {
    "medium": 6,
    "large": 12,
    "xlarge": 22,
    "2xlarge": 42,
    "4xlarge": 62,
    "9xlarge": 62,
    "8xlarge": 92,
}
_IN_ALL_OF_FLEX = {
    "medium": 3,
    "large": 6,
    "xlarge": 12,
    "2xlarge": 22,
    "4xlarge": 42,
    "8xlarge": 62,
}
_FEWER_OF_OLD_AND_ARM = frozenset({"8xlarge", "12xlarge"})
_IN_ALL_OF_MIDDLE_SIZES = 62
_IN_ALL_OF_LARGE_ONES = 122


def _own(**by_size: str) -> Mapping[str, Mapping[str, int]]:
    """Parse `family="size branches, …"`; `_` stands for a dash."""
    return {
        family.replace("_", "-"): {
            size: int(count) for size, count in (entry.split() for entry in written.split(", "))
        }
        for family, written in by_size.items()
    }


_OWN = _own(
    a1="medium 10, large 9, xlarge 18, 2xlarge 38, 4xlarge 54, metal 54",
    c8g_flex="12xlarge 54, 16xlarge 47",
    d3="xlarge 42, 2xlarge 92, 4xlarge 118, 8xlarge 119",
    d3en="xlarge 24, 2xlarge 58, 4xlarge 118, 6xlarge 118, 8xlarge 118, 12xlarge 119",
    f2="6xlarge 84, 12xlarge 114, 48xlarge 107",
    g4ad="xlarge 12, 2xlarge 12, 4xlarge 11, 8xlarge 10, 16xlarge 6",
    g4dn="xlarge 39, 2xlarge 39, 4xlarge 59, 8xlarge 58, 12xlarge 54, 16xlarge 118, metal 107",
    g5="xlarge 4, 2xlarge 17, 4xlarge 34, 8xlarge 84, 12xlarge 107, 16xlarge 114, 24xlarge 107, "
    "48xlarge 115",
    g7e="2xlarge 120, 4xlarge 120, 8xlarge 120, 12xlarge 120, 24xlarge 120, 48xlarge 120",
    hpc7g="4xlarge 118, 8xlarge 118, 16xlarge 118",
    i3="metal 120",
    i3en="large 5, xlarge 12, 2xlarge 28, 3xlarge 38, 6xlarge 54, 12xlarge 54, 24xlarge 107, "
    "metal 107",
    i4i="large 9, xlarge 6, 2xlarge 26, 4xlarge 52, 8xlarge 112, 12xlarge 112, 16xlarge 120, "
    "24xlarge 105, 32xlarge 120, metal 120",
    i7i="large 9, xlarge 18, 2xlarge 38, 4xlarge 54, 8xlarge 84, 12xlarge 84, 16xlarge 107, "
    "24xlarge 107, 48xlarge 107, metal-24xl 107, metal-48xl 107",
    i7ie="large 19, xlarge 27, 2xlarge 27, 3xlarge 27, 6xlarge 54, 12xlarge 54, 18xlarge 107, "
    "24xlarge 107, 48xlarge 107, metal-24xl 107, metal-48xl 107",
    i8ge="large 19, xlarge 27, 2xlarge 27, 3xlarge 25, 6xlarge 52, 12xlarge 50, 18xlarge 106, "
    "24xlarge 106, 48xlarge 98, metal-24xl 106, metal-48xl 98",
    inf1="xlarge 38, 2xlarge 38, 6xlarge 54, 24xlarge 111",
    m5="metal 120",
    m5zn="large 13, xlarge 29, 2xlarge 62, 3xlarge 92, 6xlarge 114, 12xlarge 107, metal 107",
    m8azn="medium 3, large 8, xlarge 18, 3xlarge 34, 6xlarge 54, 12xlarge 106, 24xlarge 106, "
    "metal-12xl 106, metal-24xl 106",
    m8g_flex="12xlarge 54, 16xlarge 47",
    mac1="metal 6",
    mac2="metal 6",
    mac2_m1ultra="metal 6",
    mac2_m2="metal 6",
    mac2_m2pro="metal 6",
    mac_m3ultra="metal 6",
    mac_m4="metal 6",
    mac_m4max="metal 6",
    mac_m4pro="metal 6",
    p5="4xlarge 58, 48xlarge 120",
    p5e="48xlarge 120",
    p5en="48xlarge 120",
    p6_b200="48xlarge 120",
    p6_b300="48xlarge 120",
    r5="metal 120",
    trn1="2xlarge 17, 32xlarge 82",
    trn1n="32xlarge 120",
    u_3tb1="56xlarge 6",
    vt1="3xlarge 38, 6xlarge 54, 24xlarge 107",
    x2gd="medium 10",
    x2iedn="xlarge 11, 2xlarge 27, 4xlarge 54, 8xlarge 114, 16xlarge 107, 24xlarge 107, "
    "32xlarge 107, metal 107",
    x2iezn="2xlarge 62, 4xlarge 114, 6xlarge 114, 8xlarge 114, 12xlarge 107, metal 107",
    x8aedz="large 8, xlarge 18, 3xlarge 34, 6xlarge 54, 12xlarge 106, 24xlarge 106, "
    "metal-12xl 106, metal-24xl 106",
    z1d="large 13, xlarge 28, 2xlarge 58, 3xlarge 54, 6xlarge 54, 12xlarge 107, metal 107",
)


def branch_interfaces(name: str, interfaces: int) -> int:
    """Return the number of branch interfaces of a type. `interfaces` is the total on all its
    cards."""
    family, _, size = name.partition(".")
    own = _OWN.get(family, {}).get(size)
    if own is not None:
        return own
    in_all = _in_all(family, size)
    return 0 if in_all is None else max(0, in_all - interfaces)


def _in_all(family: str, size: str) -> int | None:
    """The total number of interfaces of types that follow the rule; None for all others."""
    matched = _FAMILY.fullmatch(family)
    generation, line = matched.groups() if matched else ("", "")
    if line not in _BY_GENERATION.get(generation, frozenset()):
        if family not in _BY_RULE | _BY_RULE_OF_ARM:
            return None
    elif line.endswith("-flex"):
        return _IN_ALL_OF_FLEX.get(size, _IN_ALL_OF_LARGE_ONES)
    old_or_arm = generation == "5" or line.startswith("g") or family in _BY_RULE_OF_ARM
    if size in _FEWER_OF_OLD_AND_ARM and old_or_arm:
        return _IN_ALL_OF_MIDDLE_SIZES
    return _IN_ALL.get(size, _IN_ALL_OF_LARGE_ONES)


GPU_RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "habana": "habana.ai/gaudi",
}
_USUAL_VOLUMES = 27  # of the Nitro system's 28 attachments, if EC2 describes no limit

NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
ACCELERATORS = frozenset({*GPU_RESOURCES.values(), NEURON, NEURON_CORE})
"""Extended resources of accelerators. Their types are used only on request."""
EFA = "vpc.amazonaws.com/efa"
"""Elastic Fabric Adapters: network interfaces that pods request as a resource."""
PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address"
"""The addresses of pods on a Windows node: EKS makes each pod that selects Windows request one."""
INTERFACES = frozenset({POD_ENI, EFA, PRIVATE_IPV4})
"""Extended resources of the network."""

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
