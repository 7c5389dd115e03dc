"""What a node of an instance type has, and what its kubelet leaves to pods.

Sources: `nodeadm/internal/kubelet/config.go` and `templates/al2/runtime/bootstrap.sh` of
awslabs/amazon-eks-ami (pods by network interfaces; reserved CPU by cores, reserved memory by pods),
`sources/api/schnauzer` of bottlerocket-os/bottlerocket-core-kit (the same, by the pods that are
set). Allocatable is capacity without what is reserved and the hard eviction threshold.
"""

from collections.abc import Mapping
from typing import Any, Literal

from leeway_sandbox.kubernetes.quantities import milli
from leeway_sandbox.user_data.configuration import KubeletConfiguration, NodeConfiguration

type Accelerator = Literal["nvidia", "neuron"]

VISIBLE = 0.925  # of the memory that EC2 advertises; the hypervisor has the rest
MIB = 2**20
STORAGE = "ephemeral-storage"
DEFAULT_PODS = 110  # if an instance type's network is not known
_CORE_SHARES = (60, 10, 5, 5)  # millicores that are reserved of each of the first cores
_LATER_SHARE = 2.5  # and of every other one
_EVICTION_THRESHOLD = "100Mi"
_RESERVED_STORAGE = "1Gi"
_STORAGE_SHARE = 0.1  # of the volume: the kubelet's default eviction threshold


def resources(
    kind: Mapping[str, Any],
    configuration: NodeConfiguration,
    accelerator: Accelerator | None,
    storage: int,
    efas: int = 0,
) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable of an instance type, as DescribeInstanceTypes describes it.

    `storage` is the size in GiB of the volume with the kubelet's data, `efas` the number of EFA
    interfaces. Accelerators are there if the AMI has their drivers, as their device plugin reports
    them.
    """
    kubelet = configuration.kubelet
    cores = int(kind["VCpuInfo"]["DefaultVCpus"])
    memory = int(kind["MemoryInfo"]["SizeInMiB"] * VISIBLE)
    pods = _pods(kind, configuration, cores)
    reserved = _reserved(kind, configuration, cores, pods)
    cpu = cores * 1000 - _of("cpu", reserved) - _of("cpu", kubelet.system_reserved)
    kept = _of("memory", reserved) + _of("memory", kubelet.system_reserved)
    left = memory * MIB * 1000 - kept - _threshold(kubelet, memory)
    devices = _devices(kind, accelerator)
    if efas and configuration.family != "Windows":
        devices["vpc.amazonaws.com/efa"] = str(efas)
    storage_mib = storage * 1024
    kept_storage = _of(STORAGE, reserved) + _of(STORAGE, kubelet.system_reserved)
    free_storage = storage_mib - kept_storage // (1000 * MIB) - int(storage_mib * _STORAGE_SHARE)
    capacity = {"cpu": str(cores), "memory": f"{memory}Mi", "pods": str(pods)}
    capacity |= {STORAGE: f"{storage}Gi", **devices}
    allocatable = {
        "cpu": f"{max(cpu, 0)}m",
        "memory": f"{max(left, 0) // (1000 * MIB)}Mi",
        "pods": str(pods),
        STORAGE: f"{max(free_storage, 0)}Mi",
        **devices,
    }
    return capacity, allocatable


def _pods(kind: Mapping[str, Any], configuration: NodeConfiguration, cores: int) -> int:
    kubelet = configuration.kubelet
    pods = kubelet.max_pods or _pods_of_network(kind, configuration)
    return min(pods, kubelet.pods_per_core * cores) if kubelet.pods_per_core else pods


def _pods_of_network(kind: Mapping[str, Any], configuration: NodeConfiguration) -> int:
    """The AMI's figure for an instance type: a pod for every address, two on the host's network."""
    network = kind.get("NetworkInfo", {})
    interfaces, addresses = (
        network.get("MaximumNetworkInterfaces"),
        network.get("Ipv4AddressesPerInterface"),
    )
    if not interfaces or not addresses:
        return DEFAULT_PODS
    if configuration.family == "Windows":  # has one interface for its pods
        return int(addresses) - 1
    return int(interfaces) * (int(addresses) - 1) + 2


def _reserved(
    kind: Mapping[str, Any], configuration: NodeConfiguration, cores: int, pods: int
) -> Mapping[str, str]:
    """The kube-reserved resources: what the user data sets, and the AMI's defaults for the rest.

    A flag replaces all that a configuration file sets.
    """
    kubelet = configuration.kubelet
    if configuration.family == "Windows" or "kubeReserved" in kubelet.set_by_flags:
        return kubelet.kube_reserved
    shares = [*_CORE_SHARES, *([_LATER_SHARE] * max(cores - len(_CORE_SHARES), 0))]
    if configuration.family != "Bottlerocket":
        pods = _pods_of_network(kind, configuration)
    defaults = {
        "cpu": f"{int(sum(shares[:cores]))}m",
        "memory": f"{255 + 11 * pods}Mi",
        STORAGE: _RESERVED_STORAGE,
    }
    return {**defaults, **kubelet.kube_reserved}


def _of(resource: str, quantities: Mapping[str, str]) -> int:
    """A quantity in thousandths of a core or of a byte."""
    return milli(quantities.get(resource, "0"))


def _threshold(kubelet: KubeletConfiguration, memory: int) -> int:
    """The hard eviction threshold of memory, in thousandths of a byte."""
    default = "0" if "evictionHard" in kubelet.set_by_flags else _EVICTION_THRESHOLD
    text = kubelet.eviction_hard.get("memory.available", default)
    if text.endswith("%"):
        return int(memory * MIB * 1000 * float(text.removesuffix("%")) / 100)
    return milli(text)


def _devices(kind: Mapping[str, Any], accelerator: Accelerator | None) -> dict[str, str]:
    if accelerator == "nvidia":
        gpus = kind.get("GpuInfo", {}).get("Gpus", [])
        count = sum(gpu["Count"] for gpu in gpus if gpu.get("Manufacturer") == "NVIDIA")
        return {"nvidia.com/gpu": str(count)} if count else {}
    if accelerator == "neuron":
        devices = kind.get("NeuronInfo", {}).get("NeuronDevices", [])
        count = sum(device["Count"] for device in devices)
        return {"aws.amazon.com/neuron": str(count)} if count else {}
    return {}
