"""The fields of a node class that determine the allocatable resources of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from leeway.selection.resources import Resources

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
    IP addresses.
    """

    name: str = "default"
    family: AmiFamily = AmiFamily.AL2023
    kubelet: Kubelet = field(default_factory=Kubelet)
    storage: int | None = None
    raid0: bool = False
    prefix_delegation: bool = False
    public_address: bool = False
    vm_memory_overhead: Fraction = VM_MEMORY_OVERHEAD
