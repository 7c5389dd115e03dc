"""Boots instances of fleets and with user data: one joins if its user data is what its AMI needs.

The AMI's family decides how user data is read. The kubelet then has to reach the cluster: endpoint,
CA and name must be those of one cluster, and the instance needs a profile for its token. A refusal
is journalled as `boot-refused` with a reason; the instance runs on and never joins.

Sources of capacity and allocatable: `nodeadm/internal/kubelet/config.go` and
`templates/al2/runtime/bootstrap.sh` of awslabs/amazon-eks-ami (pods by network interfaces; reserved
CPU by cores, reserved memory by pods), `sources/api/schnauzer` of
bottlerocket-os/bottlerocket-core-kit (the same, by the pods that are set). Allocatable is capacity
without what is reserved and the hard eviction threshold.

Instances print few lines to their console, shaped as those of cloud-init, nodeadm and the kubelet.
Sources: EC2 API reference, GetConsoleOutput; EC2 user guide, "Instance console output". EC2 has
nothing during the first moments, and the latest output only of instances of the Nitro System.
"""

import base64
from collections.abc import Mapping
from typing import Any, Literal

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.ec2.responses.general import General
from moto.eks.models import eks_backends

from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.fleet_launch import efas_of
from leeway_sandbox.aws.images import accelerator_of, family_of, image_of, snapshots_of, version_of
from leeway_sandbox.aws.user_data import BootError, Family, NodeConfiguration, read_user_data
from leeway_sandbox.kubernetes.quantities import milli

type Accelerator = Literal["nvidia", "neuron"]

_PLAIN = NodeConfiguration("AL2023", "", None, None, {}, {}, (), frozenset())
"""The settings of an instance without user data, as those of Auto Scaling groups are."""

_SYSTEMS: dict[Family, tuple[str, str]] = {
    "AL2": ("linux", "Amazon Linux 2"),
    "AL2023": ("linux", "Amazon Linux 2023"),
    "Bottlerocket": ("linux", "Bottlerocket OS"),
    "Windows": ("windows", "Windows Server 2022 Datacenter"),
}
_DATA_VOLUME = "/dev/xvdb"
WINDOWS_BUILD = "10.0.20348"
VISIBLE = 0.925  # of the memory that EC2 advertises; the hypervisor has the rest
MIB = 2**20
STORAGE = "ephemeral-storage"
DEFAULT_PODS = 110  # if an instance type's network is not known
_CORE_SHARES = (60, 10, 5, 5)  # millicores that are reserved of each of the first cores
_LATER_SHARE = 2.5  # and of every other one
_EVICTION_THRESHOLD = "100Mi"
_RESERVED_STORAGE = "1Gi"
_STORAGE_SHARE = 0.1  # of the volume: the kubelet's default eviction threshold


def boot(cloud: Cloud, instance: Instance) -> tuple[str, dict[str, Any]] | None:
    """The cluster that an instance joins, and the Node that it registers; None if it joins none."""
    try:
        image = _image(instance)
        configuration = _read(instance, image)
        cluster = _cluster(cloud, instance, configuration)
    except BootError as refusal:
        cloud.journal.add(
            "boot-refused", instance=instance.id, image=instance.image_id, reason=str(refusal)
        )
        _print(instance, f"cloud-init[1207]: nodeadm: level=fatal msg={str(refusal)!r}")
        return None
    cloud.journal.add(
        "boot",
        instance=instance.id,
        cluster=cluster,
        family=configuration.family,
    )
    _print(instance, f"kubelet[1402]: Successfully registered node in cluster {cluster}")
    return cluster, _node(instance, image, configuration)


def _image(instance: Instance) -> Ami:
    image = image_of(instance)
    if image is None:
        raise BootError(f"there is no AMI {instance.image_id}")
    return image


def _read(instance: Instance, image: Ami) -> NodeConfiguration:
    family = family_of(image)
    if family is None:
        raise BootError(f"AMI {image.id} ({image.name}) starts no kubelet that the sandbox knows")
    if instance.metadata_options.http_endpoint == "disabled":
        raise BootError("user data cannot be read: the instance metadata service is disabled")
    if not instance.user_data:
        raise BootError("the instance has no user data")
    return read_user_data(family, base64.b64decode(str(instance.user_data)))


def _cluster(cloud: Cloud, instance: Instance, configuration: NodeConfiguration) -> str:
    """The name of the cluster in which the kubelet registers; raises BootError."""
    if not instance.iam_instance_profile:
        raise BootError("the instance has no instance profile: its kubelet gets no token")
    clusters = eks_backends[ACCOUNT][cloud.region].clusters
    name, endpoint = configuration.cluster, configuration.endpoint
    if endpoint is None:
        if name not in clusters:
            raise BootError(f"DescribeCluster finds no cluster named {name!r}")
        return name
    at = _plain(endpoint)
    found = [known for known, cluster in clusters.items() if _plain(cluster.endpoint) == at]
    if not found:
        raise BootError(f"the kubelet cannot reach {endpoint}: no cluster has this endpoint")
    authority = clusters[found[0]].certificate_authority["data"]
    if configuration.authority != base64.b64decode(authority):
        raise BootError(
            f"the kubelet does not trust {endpoint}: x509: certificate signed by unknown authority "
            "(the user data has the CA of another cluster)"
        )
    if name not in found:
        raise BootError(
            f"{endpoint} refuses the kubelet (401): its token is for cluster {name!r}, and the "
            f"endpoint is that of {found[0]!r}"
        )
    return name


def _plain(url: str | None) -> str:
    return (url or "").rstrip("/").lower()


def _node(instance: Instance, image: Ami, configuration: NodeConfiguration) -> dict[str, Any]:
    system, os_image = _SYSTEMS[configuration.family]
    zone = instance.placement.zone
    name = instance.id if configuration.is_named_by_instance else instance.private_dns_name
    architecture = "arm64" if image.architecture == "arm64" else "amd64"
    capacity, allocatable = resources(
        INSTANCE_TYPES[instance.instance_type],
        configuration,
        accelerator_of(image),
        _storage(instance, image, configuration.family),
        efas_of(instance),
    )
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": _labels(instance, name, system, architecture) | dict(configuration.labels),
        },
        "spec": {
            "providerID": f"aws:///{zone}/{instance.id}",
            "taints": [{k: v for k, v in one.items() if v} for one in configuration.taints],
        },
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                {"type": "InternalIP", "address": instance.private_ip},
                {"type": "Hostname", "address": instance.private_dns_name},
                {"type": "InternalDNS", "address": instance.private_dns_name},
            ],
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "6.12.0-sandbox",
                "osImage": os_image,
                "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": f"v{version_of(image)}.0-eks-sandbox",
                "kubeProxyVersion": "",
                "operatingSystem": system,
                "architecture": architecture,
            },
        },
    }


def _storage(instance: Instance, image: Ami, family: Family) -> int:
    """The size in GiB of the volume with the kubelet's data: on Bottlerocket the data volume, else
    the root volume. It is never smaller than the AMI's snapshot."""
    device = _DATA_VOLUME if family == "Bottlerocket" else str(image.root_device_name)
    found = [int(one.size) for name, one in instance.get_block_device_mapping if name == device]
    return max([*(size for _, size in snapshots_of(image).values()), *found])


def _labels(instance: Instance, name: str, system: str, architecture: str) -> dict[str, str]:
    """The labels of the kubelet and of the cloud's node controller."""
    kind, zone, region = instance.instance_type, instance.placement.zone, instance.region_name
    labels = {
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/instance-type": kind,
        "beta.kubernetes.io/os": system,
        "failure-domain.beta.kubernetes.io/region": region,
        "failure-domain.beta.kubernetes.io/zone": str(zone),
        "kubernetes.io/arch": architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": system,
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": str(zone),
    }
    if system == "windows":
        labels["node.kubernetes.io/windows-build"] = WINDOWS_BUILD
    return labels


def resources(
    kind: Mapping[str, Any],
    configuration: NodeConfiguration = _PLAIN,
    accelerator: Accelerator | None = "nvidia",
    storage: int = 20,
    efas: int = 0,
) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable of an instance type, as DescribeInstanceTypes describes it.

    `storage` is the size in GiB of the volume with the kubelet's data, `efas` the number of EFA
    interfaces. Accelerators are there if the AMI has their drivers, as their device plugin reports
    them.
    """
    system = configuration.config.get("systemReserved") or {}
    cores = int(kind["VCpuInfo"]["DefaultVCpus"])
    memory = int(kind["MemoryInfo"]["SizeInMiB"] * VISIBLE)
    pods = _pods(kind, configuration, cores)
    reserved = _reserved(kind, configuration, cores, pods)
    cpu = cores * 1000 - _of("cpu", reserved) - _of("cpu", system)
    kept = _of("memory", reserved) + _of("memory", system)
    left = memory * MIB * 1000 - kept - _threshold(configuration, memory)
    devices = _devices(kind, accelerator)
    if efas and configuration.family != "Windows":
        devices["vpc.amazonaws.com/efa"] = str(efas)
    if configuration.family == "Windows":
        addresses = str(_pods_of_network(kind, configuration))
        devices["vpc.amazonaws.com/PrivateIPv4Address"] = addresses
    storage_mib = storage * 1024
    kept_storage = _of(STORAGE, reserved) + _of(STORAGE, system)
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
    pods = configuration.config.get("maxPods") or _pods_of_network(kind, configuration)
    per_core = configuration.config.get("podsPerCore")
    return min(pods, per_core * cores) if per_core else pods


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
    given = configuration.config.get("kubeReserved") or {}
    if configuration.family == "Windows" or "kubeReserved" in configuration.flags:
        return given
    shares = [*_CORE_SHARES, *([_LATER_SHARE] * max(cores - len(_CORE_SHARES), 0))]
    if configuration.family != "Bottlerocket":
        pods = _pods_of_network(kind, configuration)
    defaults = {
        "cpu": f"{int(sum(shares[:cores]))}m",
        "memory": f"{255 + 11 * pods}Mi",
        STORAGE: _RESERVED_STORAGE,
    }
    return {**defaults, **given}


def _of(resource: str, quantities: Mapping[str, str]) -> int:
    """A quantity in thousandths of a core or of a byte."""
    return milli(quantities.get(resource, "0"))


def _threshold(configuration: NodeConfiguration, memory: int) -> int:
    """The hard eviction threshold of memory, in thousandths of a byte."""
    default = "0" if "evictionHard" in configuration.flags else _EVICTION_THRESHOLD
    given = configuration.config.get("evictionHard") or {}
    text = given.get("memory.available", default)
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


_MOST_OUTPUT = 64 * 1024  # bytes
_BEGIN = "[    0.000000] Linux version 6.12.0-sandbox"
_printed: dict[str, list[str]] = {}


def install() -> None:
    """Answer GetConsoleOutput here: moto has the same text for every instance."""
    General.get_console_output = _get_console_output  # type: ignore[method-assign]


def _print(instance: Instance, *lines: str) -> None:
    """Have an instance print lines."""
    _printed.setdefault(instance.id, [_BEGIN]).extend(lines)


def _get_console_output(self: General) -> ActionResult:
    self.error_on_dryrun()
    instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
    nitro = INSTANCE_TYPES[instance.instance_type].get("Hypervisor") == "nitro"
    if self._get_bool_param("Latest", False) and not nitro:
        raise EC2ClientError(
            "UnsupportedOperation",
            "This instance type does not support retrieving the latest console logs.",
        )
    text = "\n".join(_printed.get(instance.id, ())).encode()[-_MOST_OUTPUT:]
    output = {"Output": base64.b64encode(text).decode()} if text else {}
    return ActionResult({"InstanceId": instance.id, "Timestamp": utcnow(), **output})
