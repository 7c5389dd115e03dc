"""Reads a ClusterConfig of eksctl: its node groups, and the fields that have no counterpart.

Every field of a group is either read here or listed. Source: eksctl's schema of
`eksctl.io/v1alpha5`, its defaults, and what its stacks create for a node group.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import tomli_w
from leeway.bootstrap.amazon_linux import NODE_CONFIG, SHELL, Part, archive
from leeway.manifests.base import (
    IpAddress,
    Labels,
    Path,
    Problem,
    TagText,
    near_miss,
    rendered,
)
from leeway.manifests.cluster import NAME
from leeway.manifests.documents import Value, read_documents
from leeway.manifests.node_class import PASSED, KubeletSettings
from leeway.manifests.node_pool import TaintSpec
from leeway.manifests.reading import explained
from leeway.selection.labels import ARCH, INSTANCE, ON_DEMAND, RESERVED, SPOT
from leeway.selection.offers.allocatable import AmiFamily
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic import ValidationError as Invalid
from pydantic.alias_generators import to_camel

from leeway_cli.convert.node_group import (
    BUDGETS,
    CREDITS,
    EFAS,
    LABELS_OF_EKS,
    MAX_PRICE,
    NO_SSH,
    PLACEMENT,
    REBALANCE,
    REPAIR,
    TARGET_GROUPS,
    WINDOWS,
    Document,
    NodeGroup,
    NotConvertible,
    OpenCatalog,
    capacity_types,
    family_of_alias,
    required,
)
from leeway_cli.convert.user_data import Read, read_text
from leeway_cli.errors import BadInputError, as_clause

API_VERSION, KIND = "eksctl.io/v1alpha5", "ClusterConfig"

Whole = Annotated[int, Field(ge=0, le=100_000)]
Percent = Annotated[int, Field(ge=0, le=100)]
Text = Annotated[str, StringConstraints(max_length=10_000)]
InstanceType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}\.[a-z0-9-]{1,40}$")]
Zone = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}$")]
Device = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/]{1,40}$")]
GroupId = Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-z]+$")]


class _Part(BaseModel):
    """A part of the file. Fields that Leeway does not read stay in `model_extra`."""

    model_config = ConfigDict(
        alias_generator=to_camel, defer_build=True, extra="allow", frozen=True, strict=True
    )


def _as_list(taints: object) -> object:
    """Turn the map form of taints, `key: value:effect` or `key: effect`, into the list form."""
    if isinstance(taints, list):
        return tuple(taints)
    if not isinstance(taints, dict):
        return taints
    listed = []
    for key, text in taints.items():
        value, colon, effect = str(text).partition(":")
        listed.append(
            {"key": key, "value": value if colon else "", "effect": effect if colon else value}
        )
    return tuple(listed)


class _Distribution(_Part):
    instance_types: tuple[InstanceType, ...] = ()
    on_demand_base_capacity: Whole = 0
    on_demand_percentage_above_base_capacity: Percent = 100


class _Selector(_Part):
    vcpus: Annotated[Whole, Field(alias="vCPUs")] = 0
    memory: Annotated[str, StringConstraints(max_length=40)] = ""
    gpus: Whole | None = None
    neuron_devices: Annotated[Whole | None, Field(alias="neuron_devices")] = None
    cpu_architecture: Annotated[str, StringConstraints(pattern="^(x86_64|amd64|arm64)$")] = "x86_64"
    allow: Annotated[str, StringConstraints(max_length=1000)] | None = None
    deny: Annotated[str, StringConstraints(max_length=1000)] | None = None


class _Disk(_Part):
    volume_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    volume_type: Text | None = None
    volume_name: Device | None = None
    volume_encrypted: bool | None = None
    volume_kms_key_id: Annotated[Text | None, Field(alias="volumeKmsKeyID")] = None
    volume_iops: Annotated[Whole | None, Field(alias="volumeIOPS")] = None
    volume_throughput: Whole | None = None


class _Volume(_Disk):
    snapshot_id: Annotated[Text | None, Field(alias="snapshotID")] = None


class _Iam(_Part):
    instance_profile_arn: Annotated[Text, Field(alias="instanceProfileARN")] = ""
    instance_role_arn: Annotated[Text, Field(alias="instanceRoleARN")] = ""


class _SecurityGroups(_Part):
    attach_ids: Annotated[tuple[GroupId, ...], Field(alias="attachIDs")] = ()
    with_shared: bool | None = None
    with_local: bool | None = None


class _Bottlerocket(_Part):
    enable_admin_container: bool | None = None
    settings: dict[str, Any] = {}


class _Target(_Part):
    capacity_reservation_id: Annotated[Text, Field(alias="capacityReservationID")] = ""


class _Reservation(_Part):
    capacity_reservation_target: _Target = _Target()


class _Market(_Part):
    market_type: Text = ""


class _Group(_Disk):
    """A node group. The first of its fields are those of its root volume."""

    name: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9][A-Za-z0-9-]{0,62}$")]
    instance_type: Annotated[
        str | None, StringConstraints(pattern=r"^(mixed|[a-z0-9-]{1,40}\.[a-z0-9-]{1,40})$")
    ] = None
    instance_types: tuple[InstanceType, ...] = ()
    instances_distribution: _Distribution | None = None
    instance_selector: _Selector = _Selector()
    ami_family: Text = "AmazonLinux2023"
    ami: Text = ""
    release_version: Text = ""
    availability_zones: tuple[Zone, ...] = ()
    local_zones: tuple[Zone, ...] = ()
    subnets: tuple[Text, ...] = ()
    private_networking: bool = False
    labels: Labels = {}
    taints: Annotated[tuple[TaintSpec, ...], BeforeValidator(_as_list)] = ()
    tags: dict[TagText, Text] = {}
    min_size: Whole | None = None
    max_size: Whole | None = None
    desired_capacity: Whole | None = None
    additional_volumes: tuple[_Volume, ...] = ()
    iam: _Iam = _Iam()
    security_groups: _SecurityGroups = _SecurityGroups()
    max_pods_per_node: Whole = 0
    cluster_dns: Annotated[IpAddress | None, Field(alias="clusterDNS")] = None
    kubelet_extra_config: Document = {}
    pre_bootstrap_commands: tuple[Text, ...] = ()
    override_bootstrap_command: Text | None = None
    bottlerocket: _Bottlerocket = _Bottlerocket()
    disable_imds_v1: Annotated[bool, Field(alias="disableIMDSv1")] = True
    disable_pod_imds: Annotated[bool, Field(alias="disablePodIMDS")] = False
    enable_detailed_monitoring: bool | None = None
    max_instance_lifetime: Annotated[int, Field(ge=86_400, le=31_536_000)] | None = None
    capacity_reservation: _Reservation = _Reservation()
    instance_market_options: _Market = _Market()
    spot: bool = False


class _Subnet(_Part):
    id: Annotated[str, StringConstraints(pattern="^subnet-[0-9a-z]+$")] | None = None
    az: Zone | None = None


class _Subnets(_Part):
    private: dict[str, _Subnet] = {}
    public: dict[str, _Subnet] = {}


class _Vpc(_Part):
    subnets: _Subnets = _Subnets()
    shared_node_security_group: GroupId | None = None


class _Metadata(_Part):
    name: Annotated[str, StringConstraints(pattern=NAME)]
    region: Zone
    version: Text = ""
    tags: dict[TagText, Text] = {}


class ClusterConfig(_Part):
    """The file: the cluster, its network, and its node groups."""

    api_version: Annotated[str, StringConstraints(pattern=f"^{re.escape(API_VERSION)}$")]
    kind: Annotated[str, StringConstraints(pattern=f"^{KIND}$")]
    metadata: _Metadata
    vpc: _Vpc = _Vpc()
    node_groups: tuple[_Group, ...] = ()
    managed_node_groups: tuple[_Group, ...] = ()


_OF_GROUP_OF_ASG = "it is a setting of an Auto Scaling group, and a pool has none"

DIFFERENCES: Mapping[str, str] = {
    "asgMetricsCollection": f"{_OF_GROUP_OF_ASG}: Leeway's metrics and events take its place.",
    "asgSuspendProcesses": f"{_OF_GROUP_OF_ASG}: nothing of it runs.",
    "classicLoadBalancerNames": (
        "Leeway registers no nodes with load balancers: use a Service of type LoadBalancer, or an "
        "Ingress, whose controller registers the nodes or the pods."
    ),
    "targetGroupARNs": TARGET_GROUPS,
    "containerRuntime": "the EKS images have only containerd: remove what needs another runtime.",
    "cpuCredits": CREDITS,
    "ebsOptimized": "current instance types are always EBS-optimized: nothing is to do.",
    "efaEnabled": EFAS,
    "enclaveEnabled": (
        "Leeway launches no nodes with Nitro Enclaves: keep this group for pods that need them."
    ),
    "iam.attachPolicy": "Leeway writes no IAM: attach the policy to the role of the pool's nodes.",
    "iam.attachPolicyARNs": (
        "Leeway writes no IAM: attach these policies to the role of the pool's nodes."
    ),
    "iam.instanceRoleName": (
        "it is the name of a role that eksctl deletes with the group: see iam."
    ),
    "iam.instanceRolePermissionsBoundary": (
        "Leeway writes no IAM: set the boundary on the role of the pool's nodes."
    ),
    "iam.withAddonPolicies": (
        "Leeway writes no IAM: give these rights to the pods' own roles (Pod Identity), or attach "
        "the policies to the role of the pool's nodes."
    ),
    "instanceName": "it became the tag Name of the instances, without a suffix.",
    "instancePrefix": "the instances are called CLUSTER-POOL: set spec.tags.Name for another name.",
    "instancesDistribution.capacityRebalance": REBALANCE,
    "instancesDistribution.maxPrice": MAX_PRICE,
    "instancesDistribution.spotAllocationStrategy": (
        "Leeway chooses the offerings itself, and its fleets use price-capacity-optimized."
    ),
    "instancesDistribution.spotInstancePools": (
        "Leeway uses all of the instance types and zones of the pool."
    ),
    "capacityReservation.capacityReservationPreference": (
        "a pool uses only the reservations that capacityReservationSelectorTerms select: add them "
        "to the EC2NodeClass."
    ),
    "capacityReservation.capacityReservationTarget.capacityReservationResourceGroupARN": (
        "a node class selects reservations, not resource groups: name them by "
        "capacityReservationSelectorTerms of the EC2NodeClass."
    ),
    "nodeRepairConfig": REPAIR,
    "placement": PLACEMENT,
    "propagateASGTags": f"{_OF_GROUP_OF_ASG}.",
    "ssh": NO_SSH,
    "updateConfig": BUDGETS,
}
"""What becomes of the fields of a node group that Leeway does not read, by their paths in it."""

_REFUSED: Mapping[str, str] = {
    "launchTemplate": (
        "its settings are in a launch template, not in this file: run `leeway convert --nodegroup "
        "CLUSTER/NAME`"
    ),
    "outpostARN": "Leeway launches no nodes on Outposts",
}
"""The fields because of which a group cannot be converted."""

_OF_CLUSTER = frozenset(
    (
        *("accessConfig", "addons", "addonsConfig", "autoModeConfig", "availabilityZones"),
        *("capabilities", "cloudWatch", "controlPlaneScalingConfig", "fargateProfiles", "gitops"),
        *("iam", "iamIdentityMappings", "identityProviders", "karpenter", "kubeAPIServerConfig"),
        *("kubeControllerManagerConfig", "kubeSchedulerConfig", "kubernetesNetworkConfig"),
        *("localZones", "outpost", "privateCluster", "remoteNetworkConfig", "secretsEncryption"),
        *("upgradePolicy", "zonalShiftConfig"),
    )
)
"""The fields of the file about the cluster, which say nothing about its node groups."""

_FAMILIES = {
    "amazonlinux2023": AmiFamily.AL2023,
    "amazonlinux2": AmiFamily.AL2,
    "bottlerocket": AmiFamily.BOTTLEROCKET,
    **{
        f"windowsserver{year}{edition}container": AmiFamily(f"Windows{year}")
        for year in WINDOWS
        for edition in ("core", "full")
    },
}
_ALWAYS_LATEST = frozenset({"", "auto", "auto-ssm", "static"})
_RELEASES = (
    (re.compile(r"\d+\.\d+\.\d+-(\d{8})"), (AmiFamily.AL2023, AmiFamily.AL2), "v{}"),
    (re.compile(r"(\d+\.\d+\.\d+)(?:-[0-9a-f]+)?"), (AmiFamily.BOTTLEROCKET,), "v{}"),
)
_DEFAULT_TYPE = "m5.large"
_DEFAULT_GIB = 80
_DATA_DEVICE = {AmiFamily.BOTTLEROCKET: "/dev/xvdb"}
_OS_DEVICE, _OS_GIB = "/dev/xvda", 4
"""The device of Bottlerocket's operating system, and the size that its image has."""
_LEAST_IOPS = {"io1": 100, "io2": 100}


class EksctlFile:
    """One ClusterConfig.

    Raises:
        BadInputError: the file is no ClusterConfig, or a field is wrong.
    """

    def __init__(self, value: Value, source: str) -> None:
        self._value, self._source = value, source
        document = _without_nulls(value.plain())
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise BadInputError(f"{source}:{value.line}: expected a {KIND} of {API_VERSION}.")
        try:
            self._config = ClusterConfig.model_validate_json(json.dumps(document))
        except Invalid as error:
            path, message = explained(error, document, ClusterConfig)[0]
            raise self._problem(path, message) from None
        for name in self._config.model_extra or {}:
            if name not in _OF_CLUSTER:
                known = [*_OF_CLUSTER, "nodeGroups", "managedNodeGroups", "metadata", "vpc"]
                raise self._problem((name,), f"unknown field{near_miss(name, known)}")
        self.refused: list[tuple[str, str]] = []

    @property
    def region(self) -> str:
        """The region of the cluster."""
        return self._config.metadata.region

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._config.metadata.name

    def groups(self, catalog: OpenCatalog) -> Iterator[NodeGroup]:
        """Read the groups that can be converted; the others go to `refused`."""
        for kind, listed in (
            ("nodeGroups", self._config.node_groups),
            ("managedNodeGroups", self._config.managed_node_groups),
        ):
            for index, group in enumerate(listed):
                path = (kind, index)
                try:
                    yield self._group(group, path, catalog)
                except NotConvertible as error:
                    self.refused.append((f"{self._place(path)} {group.name}", str(error)))

    def _place(self, path: Path) -> str:
        return f"{self._source}:{self._value.line_of(path)}: {rendered(path)}"

    def _problem(self, path: Path, message: str) -> BadInputError:
        problem = Problem(self._source, self._value.line_of(path), path, message)
        return BadInputError(f"{as_clause(problem)}.")

    def _group(self, given: _Group, path: Path, catalog: OpenCatalog) -> NodeGroup:
        of_eks = path[0] == "managedNodeGroups"
        for name, why in _REFUSED.items():
            if name in (given.model_extra or {}):
                raise NotConvertible(why)
        if "outpost" in (self._config.model_extra or {}):
            raise NotConvertible(_REFUSED["outpostARN"])
        family = self._family(given)
        group = NodeGroup(
            name=given.name,
            place=f"{self._place(path)} {given.name}",
            family=family,
            zones=(*given.availability_zones, *given.local_zones),
            labels={
                "alpha.eksctl.io/cluster-name": self.cluster,
                "alpha.eksctl.io/nodegroup-name": given.name,
                **given.labels,
            },
            taints=[one.model_dump(include={"key", "value", "effect"}) for one in given.taints],
            tags={**self._config.metadata.tags, **given.tags},
            lifetime=given.max_instance_lifetime,
        )
        group.taints = [{k: v for k, v in one.items() if v} for one in group.taints]
        _list_unread(group, given, ())
        self._buy(group, given, path, catalog)
        _size(group, given)
        group.kubelet = self._kubelet(group, given, path)
        group.node_class = {
            "amiSelectorTerms": _images(group, given),
            "subnetSelectorTerms": self._subnets(group, given, path),
            "securityGroupSelectorTerms": self._security_groups(group, given, of_eks),
            **_role(group, given.iam),
            "userData": self._user_data(group, given, path),
            "blockDeviceMappings": self._volumes(given, family, path),
            "metadataOptions": _metadata_options(given),
            "detailedMonitoring": given.enable_detailed_monitoring,
            **_reservations(group, given),
        }
        if instance_name := (given.model_extra or {}).get("instanceName"):
            group.tags.setdefault("Name", str(instance_name))
        if of_eks:
            group.differs("", LABELS_OF_EKS)
        return group

    def _family(self, given: _Group) -> AmiFamily:
        written = given.ami_family or "AmazonLinux2023"
        family = _FAMILIES.get(written.lower())
        if family is None:
            raise NotConvertible(
                f"Leeway has no AMI family for {written}: write an EC2NodeClass of the family "
                "Custom, whose user data joins the cluster"
            )
        return family

    def _buy(self, group: NodeGroup, given: _Group, path: Path, catalog: OpenCatalog) -> None:
        """Set what the group buys: its instance types, Spot or on-demand."""
        distribution = given.instances_distribution
        listed = distribution.instance_types if distribution else given.instance_types
        if listed:
            group.types = listed
        elif given.instance_type not in {None, "mixed"}:
            group.types = (str(given.instance_type),)
        elif given.instance_selector != _Selector():
            self._select(group, given.instance_selector, (*path, "instanceSelector"), catalog)
        elif distribution is not None:
            raise self._problem(
                (*path, "instancesDistribution", "instanceTypes"), "expected at least one type"
            )
        else:
            group.types = (_DEFAULT_TYPE,)
        block = given.instance_market_options.market_type == "capacity-block"
        if given.capacity_reservation.capacity_reservation_target.capacity_reservation_id:
            group.requirements.append(capacity_types(RESERVED, *([] if block else [ON_DEMAND])))
        elif distribution is not None:
            group.buys(
                distribution.on_demand_base_capacity,
                distribution.on_demand_percentage_above_base_capacity,
                catalog,
                "instancesDistribution.onDemandBaseCapacity",
            )
        else:
            group.requirements.append(capacity_types(SPOT if given.spot else ON_DEMAND))

    def _select(self, group: NodeGroup, asked: _Selector, path: Path, catalog: OpenCatalog) -> None:
        """Write an instanceSelector as requirements. Regular expressions have none: the types that
        match now are listed."""
        arch = "arm64" if asked.cpu_architecture == "arm64" else "amd64"
        group.requirements.append(required(ARCH, "In", arch))
        if asked.vcpus:
            group.requirements.append(required(f"{INSTANCE}cpu", "In", str(asked.vcpus)))
        if asked.memory:
            mib = _mebibytes(asked.memory)
            if mib is None:
                raise self._problem(
                    (*path, "memory"), f"expected a size such as 4 or 4GiB, got {asked.memory!r}"
                )
            group.requirements.append(required(f"{INSTANCE}memory", "In", str(mib)))
        for name, count in (("gpu", asked.gpus), ("accelerator", asked.neuron_devices)):
            if count is not None:
                label = f"{INSTANCE}{name}-count"
                group.requirements.append(
                    required(label, "In", str(count)) if count else required(label, "DoesNotExist")
                )
        if asked.allow is None and asked.deny is None:
            return
        patterns = [self._pattern(path, asked, name) for name in ("allow", "deny")]
        allow, deny = patterns
        found = [
            name
            for name in group.matching(catalog())
            if (allow is None or allow.search(name)) and not (deny and deny.search(name))
        ]
        if not found:
            raise NotConvertible("its instanceSelector matches no instance type of the region")
        group.types = sorted(found)
        group.differs(
            "instanceSelector",
            "a NodePool has no regular expressions: the types that match today are listed. Add "
            "later types to the list.",
        )

    def _pattern(self, path: Path, asked: _Selector, name: str) -> re.Pattern[str] | None:
        text = getattr(asked, name)
        try:
            return None if text is None else re.compile(text)
        except re.error as error:
            raise self._problem(
                (*path, name), f"expected a regular expression, got {text[:80]!r}: {error}"
            ) from None

    def _subnets(self, group: NodeGroup, given: _Group, path: Path) -> list[Document]:
        """The subnets that the group names; else those of its kind in the file, or in the VPC that
        eksctl has created."""
        of_vpc = self._config.vpc.subnets
        if given.subnets:
            terms = [
                self._subnet(group, one, (*path, "subnets", index))
                for index, one in enumerate(given.subnets)
            ]
            return [one for n, one in enumerate(terms) if one not in terms[:n]]
        kind = of_vpc.private if given.private_networking else of_vpc.public
        zones = {*given.availability_zones, *given.local_zones}
        ids = [
            {"id": one.id}
            for zone, one in kind.items()
            if one.id and (not zones or (one.az or zone) in zones)
        ]
        if ids:
            return ids
        return [self._created_subnets("internal-elb" if given.private_networking else "elb")]

    def _subnet(self, group: NodeGroup, written: str, path: Path) -> Document:
        """The term of a subnet that a group names: by its id, or by its name in vpc.subnets."""
        if re.fullmatch("subnet-[0-9a-z]+", written):
            return {"id": written}
        of_vpc = self._config.vpc.subnets
        for role, named in (("internal-elb", of_vpc.private), ("elb", of_vpc.public)):
            if (found := named.get(written)) is not None:
                if found.id:
                    return {"id": found.id}
                group.zones = (*group.zones, *([found.az] if found.az else ()))
                group.differs(
                    f"subnets.{written}",
                    "the file has no id of this subnet: all subnets of its kind in its zone are "
                    "used. Write its id into subnetSelectorTerms of the EC2NodeClass.",
                )
                return self._created_subnets(role)
        raise self._problem(
            path, f"expected the id of a subnet, or a name of vpc.subnets, got {written[:80]!r}"
        )

    def _created_subnets(self, role: str) -> Document:
        """The term of the subnets that eksctl creates with a VPC, by what balances load there."""
        return {
            "tags": {
                "alpha.eksctl.io/cluster-name": self.cluster,
                f"kubernetes.io/role/{role}": "1",
            }
        }

    def _security_groups(self, group: NodeGroup, given: _Group, of_eks: bool) -> list[Document]:
        """The security groups of the cluster that eksctl and EKS create. A group's own one is
        deleted with the group."""
        asked = given.security_groups
        terms: list[Document] = [{"tags": {"aws:eks:cluster-name": self.cluster}}]
        if not of_eks:
            if asked.with_shared is not False:
                shared = self._config.vpc.shared_node_security_group
                name = f"eksctl-{self.cluster}-cluster/ClusterSharedNodeSecurityGroup"
                terms.append({"id": shared} if shared else {"tags": {"Name": name}})
            if asked.with_local is not False:
                group.differs(
                    "securityGroups",
                    "eksctl deletes the group's own security group with the group: the nodes get "
                    "the security group of the cluster in its place. Add rules that you have "
                    "added by hand to a group of your own.",
                )
        return [*terms, *({"id": one} for one in asked.attach_ids)]

    def _kubelet(self, group: NodeGroup, given: _Group, path: Path) -> Document:
        extra = dict(given.kubelet_extra_config)
        if extra and group.family is not AmiFamily.AL2023:
            for name in sorted(extra):
                if name in PASSED:
                    del extra[name]
                    group.differs(
                        f"kubeletExtraConfig.{name}",
                        f"Leeway does not set it on {group.family}: use AL2023, or spec.userData.",
                    )
        if "registerWithTaints" in extra:
            raise self._problem(
                (*path, "kubeletExtraConfig", "registerWithTaints"), "expected taints of the group"
            )
        try:
            own = {k: v for k, v in extra.items() if k not in PASSED}
            KubeletSettings.model_validate_json(json.dumps(own))
        except Invalid as error:
            inside, message = explained(error, own, KubeletSettings)[0]
            if message.startswith("unknown field"):
                pass  # `leeway apply` passes it on, with a warning that is listed
            else:
                raise self._problem((*path, "kubeletExtraConfig", *inside), message) from None
        if given.cluster_dns:
            extra.setdefault("clusterDNS", [given.cluster_dns])
        if given.max_pods_per_node:
            extra["maxPods"] = given.max_pods_per_node
        return extra

    def _user_data(self, group: NodeGroup, given: _Group, path: Path) -> str:
        if group.family is AmiFamily.BOTTLEROCKET:
            return self._settings(given, path)
        if group.family.windows:
            lines = given.pre_bootstrap_commands
            return "\n".join(("<powershell>", *lines, "</powershell>")) if lines else ""
        parts = [Part(SHELL, f"#!/bin/bash\n{one}") for one in given.pre_bootstrap_commands]
        override = given.override_bootstrap_command
        if override is not None and group.family is AmiFamily.AL2023:
            self._check_node_config(override, (*path, "overrideBootstrapCommand"))
            read = read_text(archive([Part(NODE_CONFIG, override)]), group.family)
            _add(group, read)
            if read.kept:
                parts.append(Part(NODE_CONFIG, read.kept))
        elif override is not None:
            _add(group, read_text(override, group.family))
            group.differs(
                "overrideBootstrapCommand",
                f"Leeway calls the bootstrap script of {group.family} itself, and the helper files "
                "of eksctl are not on its nodes: write the arguments as spec.kubelet of the "
                "EC2NodeClass, and other commands as spec.userData.",
            )
        if len(parts) == 1:
            return parts[0].body
        return archive(parts) if parts else ""

    def _check_node_config(self, text: str, path: Path) -> None:
        read = read_documents(text, "")
        found = [value.plain() for value in read.values]
        named = [str(one.get("apiVersion")) for one in found if isinstance(one, dict)]
        if read.problems or not found or not all(n.startswith("node.eks.aws/") for n in named):
            raise self._problem(path, "expected a NodeConfig of node.eks.aws/v1alpha1 in YAML")

    def _settings(self, given: _Group, path: Path) -> str:
        settings = dict(given.bottlerocket.settings)
        if given.bottlerocket.enable_admin_container is not None:
            hosts = {**_table(settings, "host-containers")}
            admin = {"enabled": given.bottlerocket.enable_admin_container, **_table(hosts, "admin")}
            settings["host-containers"] = {**hosts, "admin": admin}
        if not settings:
            return ""
        try:
            return tomli_w.dumps({"settings": settings})
        except (TypeError, ValueError, RecursionError) as error:
            raise self._problem(
                (*path, "bottlerocket", "settings"), f"expected settings for TOML: {error}"
            ) from None

    def _volumes(self, given: _Group, family: AmiFamily, path: Path) -> list[Document]:
        device = "/dev/sda1" if family.windows else _DATA_DEVICE.get(family, "/dev/xvda")
        found = [_volume(given, given.volume_name or device)]
        if given.volume_name not in {None, device}:
            found[0]["rootVolume"] = True
        for index, one in enumerate(given.additional_volumes):
            if one.volume_name is None:
                raise self._problem(
                    (*path, "additionalVolumes", index), "expected volumeName, such as /dev/xvdb"
                )
            found.append(_volume(one, one.volume_name))
        if (
            family is AmiFamily.BOTTLEROCKET
            and given.volume_encrypted
            and all(one["deviceName"] != _OS_DEVICE for one in found)
        ):
            found.append(_os_volume(given))
        return found


def _without_nulls(value: Any) -> Any:
    """Leave out members without a value, as eksctl does. Items of lists keep their places."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _list_unread(group: NodeGroup, part: BaseModel, path: Path) -> None:
    """List the fields of a group that Leeway does not read."""
    for name, value in (part.model_extra or {}).items():
        if not _says_something(value):
            continue
        inside = rendered((*path, name))
        if inside in DIFFERENCES:
            group.differs(inside, DIFFERENCES[inside])
        else:
            guess = near_miss(name, _names(type(part)))
            group.differs(inside, f"Leeway does not know this field, and ignores it{guess or '.'}")
    for name, info in type(part).model_fields.items():
        read = getattr(part, name)
        inside_path = (*path, info.alias or name)
        for index, one in enumerate(read if isinstance(read, tuple) else (read,)):
            if isinstance(one, _Part):
                at = (*inside_path, index) if isinstance(read, tuple) else inside_path
                _list_unread(group, one, at)


def _says_something(value: object) -> bool:
    """Whether a value is more than `false`, zero or nothing."""
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    return bool(value)


def _names(model: type[BaseModel]) -> Sequence[str]:
    known = [info.alias or name for name, info in model.model_fields.items()]
    return [*known, *(name for name in DIFFERENCES if "." not in name)]


def _add(group: NodeGroup, read: Read) -> None:
    """Add what overrideBootstrapCommand says of the nodes. It has the last word, as in eksctl."""
    group.labels |= read.labels
    group.kubelet |= read.kubelet
    group.taints += [one for one in read.taints if one not in group.taints]
    if read.advice:
        group.differs("overrideBootstrapCommand", read.advice)


def _size(group: NodeGroup, given: _Group) -> None:
    """Set the sizes with eksctl's defaults."""
    wanted = given.desired_capacity
    least = given.min_size if given.min_size is not None else wanted if wanted is not None else 2
    group.least = least
    group.most = given.max_size if given.max_size is not None else max(least, wanted or 0, 1)


def _images(group: NodeGroup, given: _Group) -> Sequence[Mapping[str, str]]:
    family = group.family
    if given.ami.startswith("ami-"):
        return [{"id": given.ami}]
    if given.ami not in _ALWAYS_LATEST:
        group.differs("ami", "Leeway does not know this value, and uses the latest EKS image.")
    if given.ami_family.lower().endswith("fullcontainer"):
        group.differs("amiFamily", "Leeway uses the Core edition of Windows Server.")
    if given.release_version:
        for pattern, families, release in _RELEASES:
            found = pattern.fullmatch(given.release_version)
            if found and family in families:
                return family_of_alias(family, release.format(found[1]))
        group.differs(
            "releaseVersion", f"Leeway cannot pin this release of {family}, and uses the latest."
        )
    return family_of_alias(family)


def _role(group: NodeGroup, iam: _Iam) -> Document:
    if iam.instance_profile_arn:
        return {"instanceProfile": iam.instance_profile_arn.rpartition("/")[2]}
    if iam.instance_role_arn:
        return {"role": iam.instance_role_arn.rpartition("/")[2]}
    group.differs(
        "iam",
        "eksctl deletes the role that it creates for a group with the group: set spec.role of the "
        "EC2NodeClass, or spec.defaults.nodeRole of the Cluster manifest, to a role that stays.",
    )
    return {}


def _metadata_options(given: _Group) -> Document:
    required_tokens = given.disable_imds_v1 or given.disable_pod_imds
    return {
        "httpTokens": "required" if required_tokens else "optional",
        "httpPutResponseHopLimit": 1 if given.disable_pod_imds else 2,
    }


def _reservations(group: NodeGroup, given: _Group) -> Document:
    target = given.capacity_reservation.capacity_reservation_target.capacity_reservation_id
    if not target:
        if given.instance_market_options.market_type:
            group.differs(
                "instanceMarketOptions",
                "select the Capacity Block by capacityReservationSelectorTerms of the "
                "EC2NodeClass, and require karpenter.sh/capacity-type reserved in the NodePool.",
            )
        return {}
    return {"capacityReservationSelectorTerms": [{"id": target}]}


def _volume(given: _Disk, device: str) -> Document:
    kind = given.volume_type or "gp3"
    snapshot = given.snapshot_id if isinstance(given, _Volume) else None
    size = given.volume_size or (None if snapshot else _DEFAULT_GIB)
    takes_iops = kind in {"io1", "io2", "gp3"}
    fields = {
        "volumeSize": f"{size}Gi" if size else None,
        "volumeType": kind,
        "iops": (given.volume_iops or _LEAST_IOPS.get(kind)) if takes_iops else None,
        "throughput": given.volume_throughput if kind == "gp3" else None,
        "encrypted": given.volume_encrypted,
        "kmsKeyID": given.volume_kms_key_id,
        "snapshotID": snapshot,
        "deleteOnTermination": True,
    }
    return {
        "deviceName": device,
        "ebs": {name: value for name, value in fields.items() if value is not None},
    }


def _os_volume(given: _Disk) -> Document:
    """The volume of Bottlerocket's operating system: eksctl encrypts it as that of the data. Hard
    disks are too large to boot from."""
    kind = None if given.volume_type in {"st1", "sc1"} else given.volume_type
    of_data = {"volume_iops": None, "volume_throughput": None}
    changes = {"volume_size": _OS_GIB, "volume_type": kind, **of_data}
    return _volume(given.model_copy(update=changes), _OS_DEVICE)


_SIZE = re.compile(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS = {
    **dict.fromkeys(("m", "mi", "mb", "mib"), 1),
    **dict.fromkeys(("", "g", "gi", "gb", "gib"), 1024),
    **dict.fromkeys(("t", "ti", "tb", "tib"), 1024 * 1024),
}


def _mebibytes(text: str) -> int | None:
    """Read a size of memory as eksctl does: in GiB without a unit. None if it is none."""
    found = _SIZE.fullmatch(text)
    unit = _UNITS.get(found[2].lower()) if found else None
    return None if found is None or unit is None else round(float(found[1]) * unit)
