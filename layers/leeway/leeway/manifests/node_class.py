"""EC2NodeClass of `karpenter.k8s.aws/v1`: how a machine is made into a node."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from leeway.manifests.base import Manifest, NotActedOn, Strict
from leeway.manifests.kubelet import KubeletSettings
from leeway.manifests.problems import Note
from leeway.manifests.selectors import SecurityGroupTerms, SubnetTerms, Tags
from leeway.selection.offers.node_class import AmiFamily
from leeway.selection.quantities import quantity, whole

_ALIASES = {family.value.lower(): family for family in AmiFamily if family != AmiFamily.CUSTOM}


def _is_alias(alias: str) -> str:
    family, at, version = alias.partition("@")
    if family not in _ALIASES or not at or not version:
        raise ValueError(
            f"expected a family and a version like al2023@latest, of {', '.join(_ALIASES)}"
        )
    if _ALIASES[family].windows and version != "latest":
        raise ValueError("expected the version latest: Windows images are not pinned")
    return alias


class AmiTerm(Strict):
    """An image matches a term if it has all that the term says."""

    alias: Annotated[str, StringConstraints(max_length=30), AfterValidator(_is_alias)] | None = None
    """A family and a version of EKS's own images, like `al2023@latest`; alone."""
    id: Annotated[str, StringConstraints(pattern=r"^ami-[0-9a-z]+$")] | None = None
    """An image's id; alone in its term."""
    name: Annotated[str, StringConstraints(min_length=1)] | None = None
    """An image's name (not its `Name` tag)."""
    owner: Annotated[str, StringConstraints(min_length=1)] | None = None
    """The image's owner: an account, `self`, `amazon` or `aws-marketplace`."""
    ssm_parameter: str | None = None
    """The SSM parameter that holds an image's id; alone in its term."""
    tags: Tags = Field(default_factory=dict)
    """Tags that an image has; the value `*` stands for any."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        alone = sum(x is not None for x in (self.alias, self.id, self.ssm_parameter))
        with_others = self.name is not None or bool(self.tags)
        if alone + with_others != 1 or (alone and self.owner is not None):
            raise ValueError(
                "expected one of alias, id and ssmParameter, or name, owner and tags in a term"
            )
        return self


def _is_size(size: str) -> str:
    read = quantity(size)
    if not 2**30 <= read.value <= 64 * 10**12 or not size.endswith(("Gi", "G", "Ti", "T")):
        raise ValueError("expected a size from 1Gi to 64T, in Gi, G, Ti or T")
    return size


class Volume(Strict):
    """An EBS volume."""

    volume_size: Annotated[str, AfterValidator(_is_size)] | None = None
    """Its size, in Gi, G, Ti or T."""
    volume_type: Literal["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"] | None = None
    """Its type."""
    iops: int | None = None
    """Operations per second."""
    throughput: int | None = None
    """MiB per second, for gp3."""
    encrypted: bool | None = None
    """Whether it is encrypted."""
    kms_key_id: Annotated[str | None, Field(alias="kmsKeyID")] = None
    """The key it is encrypted with."""
    snapshot_id: Annotated[str | None, Field(alias="snapshotID")] = None
    """The snapshot it is made of."""
    delete_on_termination: bool | None = None
    """Whether it goes with its instance."""
    volume_initialization_rate: Annotated[int, Field(ge=100, le=300)] | None = None
    """MiB per second that its snapshot is read with."""

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if self.volume_size is None and self.snapshot_id is None:
            raise ValueError("expected volumeSize or snapshotID")
        return self


class BlockDevice(Strict):
    """A volume at a device's name."""

    device_name: str | None = None
    """The device's name, such as /dev/xvda."""
    ebs: Volume | None = None
    """The volume."""
    root_volume: bool = False
    """Whether it holds the kubelet's data."""


class MetadataOptions(Strict):
    """Who may reach the instance metadata service."""

    http_endpoint: Literal["enabled", "disabled"] = "enabled"
    """Whether it can be reached at all."""
    http_protocol_ipv6: Annotated[
        Literal["enabled", "disabled"], Field(alias="httpProtocolIPv6")
    ] = "disabled"
    """Whether it can be reached by IPv6."""
    http_put_response_hop_limit: Annotated[int, Field(ge=1, le=64)] = 1
    """From how many hops away: 2 lets pods reach it."""
    http_tokens: Literal["required", "optional"] = "required"
    """Whether a session token is needed."""


class NodeClassFields(Strict):
    """What every version of a node class has."""

    ami_selector_terms: Annotated[tuple[AmiTerm, ...], Field(max_length=30)] = ()
    """Which images nodes boot: those that match any of the terms."""
    subnet_selector_terms: SubnetTerms | None = None
    """Which subnets nodes are launched into: those that match any of the terms."""
    security_group_selector_terms: SecurityGroupTerms | None = None
    """Which security groups nodes get: those that match any of the terms."""
    role: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """Name of the nodes' IAM role."""
    instance_profile: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """Name of the nodes' instance profile, in place of a role."""
    user_data: str | None = None
    """What nodes boot with, beside what Leeway adds."""
    tags: Tags = Field(default_factory=dict)
    """Tags of the instances and volumes."""
    block_device_mappings: Annotated[tuple[BlockDevice, ...], Field(max_length=50)] = ()
    """The nodes' volumes."""
    instance_store_policy: Literal["RAID0"] | None = None
    """RAID0: local NVMe disks hold the pods' ephemeral storage."""
    metadata_options: MetadataOptions = Field(default_factory=MetadataOptions)
    """Who may reach the instance metadata service."""
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = (
        None
    )
    """Whether nodes get public addresses."""
    detailed_monitoring: bool | None = None
    """Whether CloudWatch watches nodes by the minute."""
    context: Annotated[Any, NotActedOn("EC2 reserves it")] = None
    """Reserved by EC2."""


class EC2NodeClassSpec(NodeClassFields):
    """How a machine is made into a node. What is left out is as the Cluster's defaults say."""

    ami_family: AmiFamily | None = None
    """Operating system of the nodes; by default that of the alias in amiSelectorTerms."""
    kubelet: KubeletSettings = Field(default_factory=KubeletSettings)
    """How the kubelet is set."""
    ip_prefix_count: Annotated[int, Field(ge=0)] | None = None
    """How many prefixes of 16 addresses a network interface gets. One or more: pods are counted
    as with prefix delegation."""
    capacity_reservation_selector_terms: Annotated[
        Any, NotActedOn("capacity reservations are not launched into")
    ] = None
    """Which capacity reservations nodes are launched into."""
    network_interfaces: Annotated[Any, NotActedOn("nodes get one network interface")] = None
    """The nodes' network interfaces."""
    placement_group_selector: Annotated[
        Any, NotActedOn("nodes are not launched into placement groups")
    ] = None
    """Which placement group nodes are launched into."""
    cpu_options: Annotated[
        Any, NotActedOn("every node is taken to have the vCPUs of its instance type")
    ] = None
    """How many threads each core runs, and other options of the processor."""
    connection_tracking: Annotated[
        Any, NotActedOn("idle connections are tracked as long as EC2 does by default")
    ] = None
    """How long EC2 tracks idle connections."""

    @model_validator(mode="after")
    def _means_one_thing(self) -> Self:
        if self.role is not None and self.instance_profile is not None:
            raise ValueError("expected either role or instanceProfile")
        if sum(device.root_volume for device in self.block_device_mappings) > 1:
            raise ValueError("blockDeviceMappings: expected at most one rootVolume")
        by_alias = self.alias_family
        if by_alias and len(self.ami_selector_terms) > 1:
            raise ValueError("amiSelectorTerms: expected an alias to be the only term")
        if by_alias and self.ami_family not in {None, by_alias, AmiFamily.CUSTOM}:
            raise ValueError(f"amiFamily: expected {by_alias} or Custom, as the alias says")
        return self

    @property
    def alias_family(self) -> AmiFamily | None:
        """The family that an alias among the image terms names."""
        named = [term.alias for term in self.ami_selector_terms if term.alias]
        return _ALIASES[named[0].partition("@")[0]] if named else None

    @property
    def family(self) -> AmiFamily | None:
        """The operating system, None where nothing is said about it."""
        return self.ami_family or self.alias_family


class EC2NodeClass(Manifest):
    """How a machine is made into a node."""

    api_version: Literal["karpenter.k8s.aws/v1"]
    kind: Literal["EC2NodeClass"]
    spec: EC2NodeClassSpec = Field(default_factory=EC2NodeClassSpec)
    """How a machine is made into a node."""

    summary_columns: ClassVar[tuple[str, ...]] = ("FAMILY", "ROLE")

    def summary(self) -> tuple[str, ...]:
        """Return what `leeway get` shows in a table."""
        spec = self.spec
        return (spec.family or "by default", spec.role or spec.instance_profile or "by default")

    def notes(self) -> tuple[Note, ...]:
        """Say too that AL2 gets no new images, and what Bottlerocket has no setting for."""
        if self.spec.family is AmiFamily.BOTTLEROCKET and self.spec.kubelet.pods_per_core:
            said = "Bottlerocket has no such setting: take maxPods"
            return (*super().notes(), Note(("spec", "kubelet", "podsPerCore"), said))
        if self.spec.family is not AmiFamily.AL2:
            return super().notes()
        field = "amiFamily" if self.spec.ami_family else "amiSelectorTerms"
        said = "EKS has published no images of AL2 since November 2025: take AL2023"
        return (*super().notes(), Note(("spec", field), said))

    def storage(self, family: AmiFamily) -> int | None:
        """Return the size in bytes of the volume that holds pods' ephemeral storage; None where
        no mapping says it."""
        devices = self.spec.block_device_mappings
        root = [d for d in devices if d.root_volume]
        named = [d for d in devices if d.device_name == _DATA_DEVICE.get(family)]
        # Nothing is known of a custom image: its last volume is taken to be the one for data.
        found = root or named or (list(devices[-1:]) if family is AmiFamily.CUSTOM else [])
        sizes = [d.ebs.volume_size for d in found if d.ebs and d.ebs.volume_size]
        return whole(sizes[0]) if sizes else None


# Where each family's images keep the kubelet's data.
_DATA_DEVICE = {
    AmiFamily.AL2: "/dev/xvda",
    AmiFamily.AL2023: "/dev/xvda",
    AmiFamily.BOTTLEROCKET: "/dev/xvdb",
    AmiFamily.WINDOWS_2019: "/dev/sda1",
    AmiFamily.WINDOWS_2022: "/dev/sda1",
    AmiFamily.WINDOWS_2025: "/dev/sda1",
}
