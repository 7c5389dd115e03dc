"""Boots the instances of fleets: an instance joins if its user data is what its AMI needs.

The AMI's family decides how user data is read. The kubelet then has to reach the cluster: endpoint,
CA and name must be those of one cluster, and the instance needs a profile for its token. A refusal
is journalled as `boot-refused` with a reason; the instance runs on and never joins.
"""

import base64
from typing import Any

from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.eks.models import eks_backends

from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.fleet_launch import efas_of
from leeway_sandbox.aws.images import accelerator_of, family_of, image_of, version_of
from leeway_sandbox.aws.node_resources import resources
from leeway_sandbox.user_data.configuration import BootError, Family, NodeConfiguration
from leeway_sandbox.user_data.families import read_user_data

_SYSTEMS: dict[Family, tuple[str, str]] = {
    "AL2": ("linux", "Amazon Linux 2"),
    "AL2023": ("linux", "Amazon Linux 2023"),
    "Bottlerocket": ("linux", "Bottlerocket OS"),
    "Windows": ("windows", "Windows Server 2022 Datacenter"),
}
_SNAPSHOTS: dict[Family, int] = {"AL2": 20, "AL2023": 20, "Bottlerocket": 20, "Windows": 50}
_DATA_VOLUME = "/dev/xvdb"
WINDOWS_BUILD = "10.0.20348"


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
        return None
    cloud.journal.add(
        "boot",
        instance=instance.id,
        cluster=cluster,
        family=configuration.family,
        ignored=list(configuration.ignored),
    )
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
    if configuration.certificate_authority != base64.b64decode(authority):
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
    kubelet, zone = configuration.kubelet, instance.placement.zone
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
            "labels": _labels(instance, name, system, architecture) | dict(kubelet.labels),
        },
        "spec": {
            "providerID": f"aws:///{zone}/{instance.id}",
            "taints": [_taint(one.key, one.value, one.effect) for one in kubelet.taints],
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
    return max([_SNAPSHOTS[family], *found])


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


def _taint(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, **({"value": value} if value else {}), "effect": effect}
