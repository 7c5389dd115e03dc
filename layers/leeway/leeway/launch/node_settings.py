"""The EC2 settings of a pool's nodes: from its node class, or from the Cluster's defaults."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from leeway.bootstrap.node import NodeTemplate, templates_of
from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster, Defaults
from leeway.manifests.fields import SecurityGroupTerm, SubnetTerm
from leeway.manifests.node_class import (
    AmiTerm,
    BlockDevice,
    EC2NodeClass,
    EC2NodeClassSpec,
    MetadataOptions,
)
from leeway.manifests.node_pool import NodePool


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
    )


def _setting[T](value: T | None, place: str) -> Setting[T] | None:
    return None if value is None else Setting(value, place)
