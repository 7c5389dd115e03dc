"""The EC2 settings of a pool's nodes: from its node class, or from the Cluster's defaults."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from leeway.bootstrap.node import NodeTemplate, templates_of
from leeway.instances.facts import INTENT_TAG, OWNED_PREFIX, OWNER_TAG, POOL_TAG, SETTINGS_TAG
from leeway.manifests.base import (
    CapacityReservationTerm,
    Manifest,
    SecurityGroupTerm,
    SubnetTerm,
)
from leeway.manifests.cluster import Cluster, Defaults
from leeway.manifests.node_class import (
    AmiTerm,
    BlockDevice,
    ConnectionTracking,
    EC2NodeClass,
    EC2NodeClassSpec,
    MetadataOptions,
)
from leeway.manifests.node_pool import NodePool
from leeway.reasons import ReasonCode, counted
from leeway.selection.labels import JOINED, NODE_CLASS, NODEPOOL

POOL_SETTING_WRONG = ReasonCode(
    "PoolSettingWrong",
    "A setting of a node pool is missing or wrong: {problem}.",
    "a-node-pool-launches-no-nodes",
)


class NotLaunchable(Exception):
    """Nothing can be launched from a pool. The problem names the manifest and the field to
    correct."""

    def __init__(self, problem: str) -> None:
        self.reason = POOL_SETTING_WRONG(problem=problem)
        super().__init__(self.reason.message)


@dataclass(frozen=True, slots=True)
class Setting[T]:
    """The value of a setting, and the manifest and the field that it is from."""

    value: T
    place: str


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The EC2 settings of one pool's nodes. A setting that no manifest has is None.

    `profile` is the name of an instance profile, `role` that of an IAM role: a node class has one
    of the two. `images` are the terms of the node class; without terms, the AMI family has
    default images.
    """

    template: NodeTemplate
    node_class: str
    images: Setting[tuple[AmiTerm, ...]]
    subnets: Setting[tuple[SubnetTerm, ...]] | None
    security_groups: Setting[tuple[SecurityGroupTerm, ...]] | None
    profile: Setting[str] | None
    role: Setting[str] | None
    tags: tuple[Setting[Mapping[str, str]], ...] = ()
    block_devices: tuple[BlockDevice, ...] = ()
    metadata: MetadataOptions = field(default_factory=MetadataOptions)
    public_address: bool | None = None
    detailed_monitoring: bool = False
    reservations: Setting[tuple[CapacityReservationTerm, ...]] | None = None
    connection_tracking: ConnectionTracking | None = None

    @property
    def pool(self) -> str:
        """The name of the pool."""
        return self.template.pool.name


def settings_of(manifests: Iterable[Manifest]) -> tuple[NodeSettings, ...]:
    """Return the settings of each NodePool, the pool of the largest weight first."""
    given = tuple(manifests)
    classes = {m.metadata.name: m for m in given if isinstance(m, EC2NodeClass)}
    references = {
        m.metadata.name: m.spec.template.spec.node_class_ref.name
        for m in given
        if isinstance(m, NodePool)
    }
    cluster = next((m for m in given if isinstance(m, Cluster)), None)
    return tuple(
        _settings(template, references[template.pool.name], classes, cluster)
        for template in templates_of(given)
    )


def _settings(
    template: NodeTemplate,
    name: str,
    classes: Mapping[str, EC2NodeClass],
    cluster: Cluster | None,
) -> NodeSettings:
    spec = classes[name].spec if name in classes else EC2NodeClassSpec()
    defaults = cluster.spec.defaults if cluster else Defaults()
    own = f"EC2NodeClass {name}, spec."
    common = f"Cluster {cluster.metadata.name if cluster else ''}, spec.defaults."
    profile = _setting(spec.instance_profile, f"{own}instanceProfile")
    role = _setting(spec.role, f"{own}role")
    if profile is None and role is None:
        role = _setting(defaults.node_role, f"{common}nodeRole")
    return NodeSettings(
        template=template,
        node_class=name,
        images=Setting(spec.ami_selector_terms, f"{own}amiSelectorTerms"),
        subnets=_setting(spec.subnet_selector_terms, f"{own}subnetSelectorTerms")
        or _setting(defaults.subnet_selector_terms, f"{common}subnetSelectorTerms"),
        security_groups=_setting(
            spec.security_group_selector_terms, f"{own}securityGroupSelectorTerms"
        )
        or _setting(defaults.security_group_selector_terms, f"{common}securityGroupSelectorTerms"),
        profile=profile,
        role=role,
        tags=(Setting(defaults.tags, f"{common}tags"), Setting(spec.tags, f"{own}tags")),
        block_devices=spec.block_device_mappings,
        metadata=spec.metadata_options,
        public_address=spec.associate_public_ip_address,
        detailed_monitoring=bool(spec.detailed_monitoring),
        reservations=_setting(
            spec.capacity_reservation_selector_terms or None,
            f"{own}capacityReservationSelectorTerms",
        ),
        connection_tracking=spec.connection_tracking,
    )


def _setting[T](value: T | None, place: str) -> Setting[T] | None:
    return None if value is None else Setting(value, place)


CLUSTER_TAG = "eks:eks-cluster-name"

MOST_TAGS = 50
"""Tags of one resource. Source: EC2 user guide, "Tag restrictions"."""

# Keys by which AWS, Karpenter and Leeway find out whose an instance is.
_RESERVED = (
    "aws:",
    "eks:",
    "leeway.sh/",
    "karpenter.sh/nodeclaim",
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
    OWNED_PREFIX,
)


def is_reserved(key: str) -> bool:
    """Whether only AWS, Karpenter and Leeway set a tag."""
    return key.lower().startswith(_RESERVED)


def user_tags(settings: NodeSettings) -> Mapping[str, str]:
    """Return the tags of the manifests: those of the node class replace those of the Cluster.

    Raises:
        NotLaunchable: a key is reserved, or there are too many.
    """
    merged: dict[str, str] = {}
    for setting in settings.tags:
        for key in setting.value:
            if is_reserved(key):
                raise NotLaunchable(f"key {key} of {setting.place} is reserved: remove the tag")
        merged |= setting.value
    most = MOST_TAGS - len(instance_tags("", "", "", "", merged).keys() - merged.keys())
    if len(merged) > most:
        raise NotLaunchable(
            f"pool {settings.pool} has {counted(len(merged), 'tag')} of its own, and EC2 accepts "
            f"{most} beside those of Leeway: remove tags from {settings.tags[-1].place}"
        )
    return merged


def cluster_tags(cluster: str) -> Mapping[str, str]:
    """Return the tags of everything that Leeway creates for a cluster."""
    return {CLUSTER_TAG: cluster, f"{OWNED_PREFIX}{cluster}": "owned", OWNER_TAG: "leeway"}


def instance_tags(
    cluster: str, pool: str, intent: str, launch_settings: str, own: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the tags of instances and volumes. `own` are the user's: they may set `Name`."""
    of_leeway = _of_leeway(cluster, pool, intent, launch_settings)
    return {"Name": f"{cluster}-{pool}", **own, **of_leeway}


def _of_leeway(cluster: str, pool: str, intent: str, launch_settings: str) -> Mapping[str, str]:
    known = {POOL_TAG: pool, INTENT_TAG: intent, SETTINGS_TAG: launch_settings}
    return {**cluster_tags(cluster), **known}


VERSION = "v1"
"""The version of this way to hash. If it changes, instances with hashes of another version have not
changed by them. Source: Karpenter's design "Drift Hash Versioning"."""

_LENGTH = 8


def settings_hashes(settings: NodeSettings) -> Mapping[str, str]:
    """Return a hash for each part of a pool's settings, by the name of the part."""
    return {name: _hash(value) for name, value in _parts(settings)}


def tag_value(hashes: Mapping[str, str]) -> str:
    """Return the value of the tag, in characters that EC2 allows in tags, at most 256 of them."""
    return " ".join((VERSION, *(f"{name}={value}" for name, value in sorted(hashes.items()))))


def read_tag_value(value: str) -> Mapping[str, str]:
    """Return the hashes in the value of a tag, which anybody may have written; empty if there are
    none of this version."""
    version, *parts = value.split(" ")
    if version != VERSION:
        return {}
    return {name: text for name, found, text in (one.partition("=") for one in parts) if found}


def _parts(settings: NodeSettings) -> Iterator[tuple[str, Any]]:
    """Fields with their defaults are left out, so that a new field changes no hash."""
    template, node_class = settings.template, settings.template.pool.node_class
    kubelet = template.kubelet.model_dump(mode="json", exclude_defaults=True)
    devices = [one.model_dump(mode="json", exclude_defaults=True) for one in settings.block_devices]
    tags: dict[str, str] = {}
    for setting in settings.tags:
        tags |= setting.value
    pool = template.pool
    own_labels = {k: v for k, v in pool.labels.items() if k not in {NODEPOOL, NODE_CLASS, *JOINED}}
    yield "annotations", dict(template.annotations)
    yield "block-devices", sorted(map(_text, devices))
    tracking = settings.connection_tracking
    yield "connections", tracking and tracking.model_dump(mode="json", exclude_none=True)
    yield "kubelet", [kubelet, node_class.prefix_delegation]
    yield "labels", own_labels
    yield "metadata-options", settings.metadata.model_dump(mode="json", exclude_defaults=True)
    yield "monitoring", settings.detailed_monitoring
    yield "public-address", settings.public_address
    yield "role", [one and one.value for one in (settings.role, settings.profile)]
    yield "tags", tags
    yield "taints", [sorted(map(str, some)) for some in (pool.taints, pool.startup_taints)]
    yield "user-data", [node_class.family, node_class.raid0, template.user_data]


def _hash(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()[:_LENGTH]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
