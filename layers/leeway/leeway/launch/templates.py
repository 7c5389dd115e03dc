"""Launch templates: their data, and a name that contains the hash of the data."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from leeway.bootstrap.node import ClusterDetails
from leeway.launch.node_settings import NodeSettings, cluster_tags
from leeway.manifests.node_class import BlockDevice, MetadataOptions, Volume
from leeway.selection.offers.allocatable import GIB, AmiFamily
from leeway.selection.offers.reservations import BLOCK, INTERRUPTIBLE, ReservedCapacity
from leeway.selection.resources import whole


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A launch template. `data` is its LaunchTemplateData as JSON. Equal data has one name, and the
    name in EC2 begins with it."""

    name: str
    data: str
    tags: Mapping[str, str]


class LaunchTemplates(Protocol):
    """Launch templates of EC2."""

    def ensure(self, templates: Collection[LaunchTemplate]) -> Mapping[str, str]:
        """Create those that this object has not created; return the id of each by its name."""
        ...

    def doubt(self, ids: Collection[str]) -> None:
        """Look for these templates at the next `ensure`: they may have been deleted."""
        ...


@dataclass(frozen=True, slots=True)
class OwnedTemplate:
    """A launch template of EC2 with the tags of a cluster's launch templates."""

    id: str
    name: str
    created_at: datetime


class OwnedLaunchTemplates(Protocol):
    """The launch templates that Leeway created for a cluster."""

    def owned_by(self, cluster: str) -> Sequence[OwnedTemplate]:
        """List the launch templates whose tags name Leeway as the owner, and this cluster."""
        ...

    def delete_template(self, template: str) -> None:
        """Delete a launch template by its id. One that does not exist any more is not an error."""
        ...


VERSION = "1"
"""The version that fleets use: Leeway creates no other one, and EC2 changes none."""


@dataclass(frozen=True, slots=True)
class NodeResources:
    """The resources of AWS that all nodes of a node class use. `tags` are the user's."""

    security_groups: tuple[str, ...]
    profile: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TemplateImage:
    """The AMI of a template; `root_device` is empty if the family's device is used."""

    id: str
    root_device: str = ""


def network_cards(efas: int, first: int) -> tuple[str, ...]:
    """Return the type of the network interface on each network card that is used, the primary one
    first. `efas` is the number of EFAs, `first` the first card that takes one.

    Sources: Karpenter's network interfaces; EC2 user guide, "Maximize network bandwidth on Amazon
    EC2 instances with multiple network cards". An EFA-only interface has no IP address.
    """
    if not efas:
        return ("interface",)
    if first == 0:
        return ("efa",) * efas
    return ("interface",) * first + ("efa-only",) * efas


def template_of(
    cluster: ClusterDetails,
    settings: NodeSettings,
    resources: NodeResources,
    image: TemplateImage,
    user_data: str,
    cards: Sequence[str] = ("interface",),
    *,
    spot: bool = False,
    reservation: ReservedCapacity | None = None,
) -> LaunchTemplate:
    """Make the launch template of nodes that boot with this AMI and this user data. `cards` has
    the type of the network interface on each network card. EC2 accepts tags of Spot requests only
    for Spot Instances. Nodes are launched into `reservation` and nowhere else."""
    own = cluster_tags(cluster.name)
    tags = {**resources.tags, **own}
    data: dict[str, Any] = {
        "ImageId": image.id,
        "IamInstanceProfile": {"Name": resources.profile},
        "MetadataOptions": _metadata(settings.metadata),
        "Monitoring": {"Enabled": settings.detailed_monitoring},
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(tags)}
            for kind in ("network-interface", *(["spot-instances-request"] if spot else []))
        ],
        # EC2 accepts security groups either of the instance or of its network interfaces.
        "NetworkInterfaces": [
            _interface(card, kind, settings, resources.security_groups, cluster.ipv6)
            for card, kind in enumerate(cards)
        ],
    }
    devices = settings.block_devices or _default_devices(
        settings.template.pool.node_class.family, image.root_device
    )
    if devices:
        data["BlockDeviceMappings"] = [_device(one, image.root_device) for one in devices]
    if user_data:
        data["UserData"] = b64encode(user_data.encode()).decode()
    data |= _capacity(reservation, keeps_out=settings.reservations is not None and not spot)
    text = json.dumps(data, sort_keys=True)
    digest = hashlib.sha256(f"{cluster.name}\n{text}".encode()).hexdigest()[:12]
    return LaunchTemplate(f"leeway-{cluster.name}-{digest}", text, own)


def _capacity(reservation: ReservedCapacity | None, *, keeps_out: bool) -> dict[str, Any]:
    """Where the instance may run. `keeps_out`: its pool selects reservations, so no instance uses
    an open one that the plan has not counted. Otherwise EC2's default matches open reservations.

    Sources: EC2 API reference, LaunchTemplateCapacityReservationSpecificationRequest and
    LaunchTemplateInstanceMarketOptionsRequest.
    """
    if reservation is None:
        none = {"CapacityReservationPreference": "none"}
        return {"CapacityReservationSpecification": none} if keeps_out else {}
    found: dict[str, Any] = {
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation.id},
        }
    }
    if reservation.block or reservation.interruptible:
        market = BLOCK if reservation.block else INTERRUPTIBLE
        found["InstanceMarketOptions"] = {"MarketType": market}
    return found


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the form of EC2's requests, sorted."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _metadata(options: MetadataOptions) -> dict[str, Any]:
    """Tags are never in the metadata: EC2 refuses there the keys of Leeway, which contain a slash.
    If a template does not say so, the account's default decides."""
    return {
        "HttpEndpoint": options.http_endpoint,
        "HttpProtocolIpv6": options.http_protocol_ipv6,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": "disabled",
    }


def _interface(
    card: int, kind: str, settings: NodeSettings, groups: Sequence[str], ipv6: bool
) -> dict[str, Any]:
    """The network interface of a card. Of an EFA, device 1 leaves device 0 to the primary
    interface."""
    found: dict[str, Any] = {
        "DeleteOnTermination": True,
        "DeviceIndex": 1 if card and kind == "efa" else 0,
        "Groups": list(groups),
        "NetworkCardIndex": card,
    }
    if kind != "interface":
        found["InterfaceType"] = kind
    if kind == "efa-only":
        return found
    if settings.public_address is not None:
        found["AssociatePublicIpAddress"] = settings.public_address
    if ipv6:
        found |= {"Ipv6AddressCount": 1, "PrimaryIpv6": True}
    if (tracking := settings.connection_tracking) is not None:
        found["ConnectionTrackingSpecification"] = {
            name: seconds
            for name, seconds in (
                ("TcpEstablishedTimeout", tracking.tcp_established_timeout),
                ("UdpStreamTimeout", tracking.udp_stream_timeout),
                ("UdpTimeout", tracking.udp_timeout),
            )
            if seconds is not None
        }
    return found


def _default_devices(family: AmiFamily, root_device: str) -> tuple[BlockDevice, ...]:
    """The volumes of a node class without mappings: as large as selection counts, encrypted."""
    match family:
        case AmiFamily.CUSTOM:
            root = BlockDevice.model_validate({"deviceName": root_device})
            return (root,) if root_device else ()
        case AmiFamily.BOTTLEROCKET:
            return (_volume("/dev/xvda", "4Gi"), _volume("/dev/xvdb", "20Gi"))
        case _ if family.windows:
            return (_volume("/dev/sda1", "50Gi"),)
        case _:
            return (_volume("/dev/xvda", "20Gi"),)


def _volume(device: str, size: str) -> BlockDevice:
    ebs = {"volumeSize": size, "volumeType": "gp3"}
    return BlockDevice.model_validate({"deviceName": device, "ebs": ebs})


def _device(device: BlockDevice, root_device: str) -> dict[str, Any]:
    name = device.device_name or root_device
    ebs = dict(_ebs(device.ebs)) if device.ebs else {"DeleteOnTermination": True, "Encrypted": True}
    return {**({"DeviceName": name} if name else {}), "Ebs": ebs}


def _ebs(volume: Volume) -> Iterator[tuple[str, Any]]:
    """A volume that says nothing else is encrypted, and ends with its instance."""
    yield "DeleteOnTermination", volume.delete_on_termination is not False
    yield "Encrypted", volume.encrypted is not False
    given = {
        "Iops": volume.iops,
        "KmsKeyId": volume.kms_key_id,
        "SnapshotId": volume.snapshot_id,
        "Throughput": volume.throughput,
        "VolumeInitializationRate": volume.volume_initialization_rate,
        "VolumeType": volume.volume_type,
        "VolumeSize": -(-whole(volume.volume_size) // GIB) if volume.volume_size else None,
    }
    yield from ((name, value) for name, value in given.items() if value is not None)
