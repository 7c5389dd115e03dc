"""Computes capacity and allocatable resources of an instance type as a node of a node class.

Allocatable = capacity - kubeReserved - systemReserved - evictionHard. Sources: Kubernetes "Reserve
Compute Resources for System Daemons"; the max-pods calculator and the bootstrap of the EKS AMIs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cache

from leeway.selection.offers.machines import EFA, POD_ENI, PRIVATE_IPV4, Machine
from leeway.selection.offers.overlays import Overlay
from leeway.selection.resources import EBS_VOLUMES, Resources, parse, whole

GIB = 1024**3


class AmiFamily(StrEnum):
    """The operating systems of nodes."""

    AL2 = "AL2"
    AL2023 = "AL2023"
    BOTTLEROCKET = "Bottlerocket"
    WINDOWS_2019 = "Windows2019"
    WINDOWS_2022 = "Windows2022"
    WINDOWS_2025 = "Windows2025"
    CUSTOM = "Custom"

    @property
    def windows(self) -> bool:
        """Whether it is a version of Windows."""
        return self.value.startswith("Windows")


# The value of node.kubernetes.io/windows-build on each version of Windows.
# Source: Microsoft, "Windows Server release information".
WINDOWS_BUILDS = {
    AmiFamily.WINDOWS_2019: "10.0.17763",
    AmiFamily.WINDOWS_2022: "10.0.20348",
    AmiFamily.WINDOWS_2025: "10.0.26100",
}

# Memory that the hypervisor and the kernel reserve. Measured values are 1.7 to 5.3 %.
# Source: Karpenter's default of VM_MEMORY_OVERHEAD_PERCENT.
VM_MEMORY_OVERHEAD = Fraction(75, 1000)


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet settings that change the number of pods or the allocatable resources.

    `eviction_hard` has thresholds by signal in their written form: "100Mi", "5%".
    """

    max_pods: int | None = None
    pods_per_core: int | None = None
    kube_reserved: Resources = field(default_factory=Resources)
    system_reserved: Resources = field(default_factory=Resources)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.max_pods, self.pods_per_core, self.kube_reserved, self.system_reserved))


@dataclass(frozen=True, slots=True)
class NodeClass:
    """How an instance becomes a node.

    `storage` is the size in bytes of the volume for ephemeral storage; None is the default of the
    family. `raid0`: local NVMe disks are used instead, if there are any. `prefix_delegation`: the
    CNI assigns prefixes of 16 addresses to network interfaces. `public_address`: nodes have public
    IP addresses. `overlays` change what its nodes cost and offer, the first that counts first.
    """

    name: str = "default"
    family: AmiFamily = AmiFamily.AL2023
    kubelet: Kubelet = field(default_factory=Kubelet)
    storage: int | None = None
    raid0: bool = False
    prefix_delegation: bool = False
    public_address: bool = False
    vm_memory_overhead: Fraction = VM_MEMORY_OVERHEAD
    overlays: tuple[Overlay, ...] = ()


MIB = 1024**2

# The kernel reserves this for contiguous allocations on ARM.
_ARM_KEEPS_MIB = 64

_DEFAULT_STORAGE = 20 * GIB
_DEFAULT_WINDOWS_STORAGE = 50 * GIB  # Windows' own AMIs are larger than 20 Gi

# kube-reserved cpu: (up to this many millicores, this share of them).
_CPU_BANDS = (
    (1000, Fraction(6, 100)),
    (2000, Fraction(1, 100)),
    (4000, Fraction(5, 1000)),
    (None, Fraction(25, 10000)),
)
_KUBE_MEMORY_PER_POD_MIB, _KUBE_MEMORY_MIB = 11, 255
_KUBE_STORAGE = GIB
# Defaults of the EKS images. The threshold for inodes does not reduce allocatable.
_MEMORY, _STORAGE = "memory.available", "nodefs.available"
_THRESHOLDS = {_MEMORY: "100Mi", _STORAGE: "10%"}
_LINUX_THRESHOLDS = {**_THRESHOLDS, "nodefs.inodesFree": "5%"}

_PREFIX_SIZE = 16
_MANY_VCPUS = 30


def capacity(machine: Machine, node_class: NodeClass) -> Resources:
    """Return the capacity that the kubelet would report."""
    memory = machine.memory_mib - (_ARM_KEEPS_MIB if machine.arm else 0)
    memory -= _share(memory, node_class.vm_memory_overhead)
    interfaces = {POD_ENI: machine.branches, EFA: _efas(machine, node_class)}
    if node_class.family.windows:
        addresses = _addresses_of_pods(machine, node_class)
        interfaces = {**dict.fromkeys(interfaces, 0), PRIVATE_IPV4: addresses}
    return Resources(
        {
            "cpu": machine.vcpus * 1000,
            "memory": memory * MIB,
            "ephemeral-storage": _storage(machine, node_class),
            "pods": max_pods(machine, node_class),
            EBS_VOLUMES: max(0, machine.volumes - _own_volumes(node_class.family)),
            **machine.devices,
            **interfaces,
        }
    )


def _addresses_of_pods(machine: Machine, node_class: NodeClass) -> int:
    """The Amazon VPC resource controller publishes the addresses of the one interface that pods of
    Windows use, whatever the kubelet's maximum of pods."""
    slot = _PREFIX_SIZE if node_class.prefix_delegation else 1
    return _pods_by_addresses(machine, node_class.family, slot)


def _efas(machine: Machine, node_class: NodeClass) -> int:
    """EC2 assigns a public address only to an instance with one network interface."""
    found = machine.devices.get(EFA, 0)
    return 0 if node_class.public_address and machine.efa_card + found > 1 else found


def _own_volumes(family: AmiFamily) -> int:
    """Bottlerocket has a data volume in addition to the root volume."""
    return 2 if family is AmiFamily.BOTTLEROCKET else 1


def allocatable(machine: Machine, node_class: NodeClass, capacity: Resources) -> Resources:
    """Return the allocatable resources of a node, at least 0 each."""
    taken = (
        kube_reserved(machine, node_class)
        + node_class.kubelet.system_reserved
        + _kept_free(capacity, eviction_hard(node_class))
    )
    return Resources({name: max(0, n - taken.of(name)) for name, n in capacity.items()})


def max_pods(machine: Machine, node_class: NodeClass) -> int:
    """Return the maximum number of pods of the kubelet."""
    kubelet = node_class.kubelet
    if kubelet.max_pods is not None:
        pods = kubelet.max_pods
    elif node_class.prefix_delegation:
        ceiling = 250 if machine.vcpus >= _MANY_VCPUS else 110
        pods = min(ceiling, _pods_by_addresses(machine, node_class.family, _PREFIX_SIZE))
    else:
        pods = _pods_by_addresses(machine, node_class.family, 1)
    # Bottlerocket does not support podsPerCore.
    if kubelet.pods_per_core and node_class.family is not AmiFamily.BOTTLEROCKET:
        pods = min(pods, kubelet.pods_per_core * machine.vcpus)
    return pods


def _pods_by_addresses(machine: Machine, family: AmiFamily, slot: int) -> int:
    """A network interface keeps its first address. On Linux, pods use all interfaces, and two more
    pods use the host network. On Windows, pods use one interface, and the limit includes those
    two."""
    slots = machine.addresses - 1
    if family.windows:
        return slots * slot
    return machine.interfaces * slots * slot + 2


def kube_reserved(machine: Machine, node_class: NodeClass) -> Resources:
    """Return kube-reserved: the amounts of the node class, and the defaults of the EKS image for
    other resources."""
    return Resources({**_by_image(machine, node_class), **node_class.kubelet.kube_reserved})


def eviction_hard(node_class: NodeClass) -> Mapping[str, str]:
    """Return the hard eviction thresholds: those of the node class, and the defaults of the EKS
    images for other signals."""
    by_image = _THRESHOLDS if node_class.family.windows else _LINUX_THRESHOLDS
    return {**by_image, **node_class.kubelet.eviction_hard}


def _by_image(machine: Machine, node_class: NodeClass) -> dict[str, int]:
    family = node_class.family
    # Bottlerocket and Windows reserve memory for max-pods, the others for the number of pods
    # that the addresses allow, regardless of max-pods.
    if family is AmiFamily.BOTTLEROCKET or family.windows:
        pods = max_pods(machine, node_class)
    else:
        pods = _pods_by_addresses(machine, family, 1)
    return {
        "cpu": _reserved_cpu(machine.vcpus * 1000),
        "memory": (_KUBE_MEMORY_PER_POD_MIB * pods + _KUBE_MEMORY_MIB) * MIB,
        "ephemeral-storage": _KUBE_STORAGE,
    }


@cache
def _reserved_cpu(millicores: int) -> int:
    reserved, below = 0, 0
    for upper, share in _CPU_BANDS:
        within = min(millicores, upper or millicores) - below
        if within <= 0:
            break
        reserved += math.floor(within * share)
        below = upper or millicores
    return reserved


def _kept_free(capacity: Resources, thresholds: Mapping[str, str]) -> Resources:
    return Resources(
        {
            name: _threshold(thresholds[signal], capacity.of(name))
            for signal, name in ((_MEMORY, "memory"), (_STORAGE, "ephemeral-storage"))
        }
    )


def _threshold(written: str, capacity: int) -> int:
    """A threshold is an amount or a share of the capacity; 100 % disables it."""
    if not written.endswith("%"):
        return whole(written)
    share = parse(written.removesuffix("%")) / 100
    return 0 if share == 1 else _share(capacity, share)


def _share(amount: int, share: Fraction) -> int:
    """A share of an amount, rounded up. Integer arithmetic, because a region needs it thousands of
    times."""
    return -(-amount * share.numerator // share.denominator)


def _storage(machine: Machine, node_class: NodeClass) -> int:
    if node_class.raid0 and machine.disks:
        return machine.disks
    if node_class.storage is not None:
        return node_class.storage
    return _DEFAULT_WINDOWS_STORAGE if node_class.family.windows else _DEFAULT_STORAGE
