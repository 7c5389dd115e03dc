"""What of a node class decides how much of a machine its nodes give to pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from leeway.selection.resources import Resources

GIB = 1024**3


class AmiFamily(StrEnum):
    """The operating systems that a node can boot."""

    AL2 = "AL2"
    AL2023 = "AL2023"
    BOTTLEROCKET = "Bottlerocket"
    WINDOWS_2019 = "Windows2019"
    WINDOWS_2022 = "Windows2022"
    WINDOWS_2025 = "Windows2025"
    CUSTOM = "Custom"

    @property
    def windows(self) -> bool:
        """Whether it is a Windows."""
        return self.value.startswith("Windows")


# What kubernetes.io/os and node.kubernetes.io/windows-build are on each Windows.
# Source: Microsoft, "Windows Server release information".
WINDOWS_BUILDS = {
    AmiFamily.WINDOWS_2019: "10.0.17763",
    AmiFamily.WINDOWS_2022: "10.0.20348",
    AmiFamily.WINDOWS_2025: "10.0.26100",
}

# How much of a machine's memory the hypervisor and the kernel keep; the real share is 1.7 to 5.3 %.
# Source: Karpenter's default of VM_MEMORY_OVERHEAD_PERCENT.
VM_MEMORY_OVERHEAD = Fraction(75, 1000)


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet's settings that cost pods or resources.

    `eviction_hard` holds thresholds as they are written, by signal: "100Mi", "5%".
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
    """How a machine is made into a node.

    `storage` is the size in bytes of the volume that holds pods' ephemeral storage; None is the
    family's default. `raid0`: it is all local NVMe disks instead, where there are any.
    `prefix_delegation`: the CNI gives network interfaces prefixes of 16 addresses.
    """

    name: str = "default"
    family: AmiFamily = AmiFamily.AL2023
    kubelet: Kubelet = field(default_factory=Kubelet)
    storage: int | None = None
    raid0: bool = False
    prefix_delegation: bool = False
    vm_memory_overhead: Fraction = VM_MEMORY_OVERHEAD
