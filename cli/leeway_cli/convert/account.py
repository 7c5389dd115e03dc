"""Reads the Auto Scaling groups and the managed node groups of an account.

Source: the API references of Auto Scaling (CreateAutoScalingGroup), EC2 (RequestLaunchTemplateData)
and EKS (Nodegroup). Every field of them is either read here or listed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from leeway.aws.group_templates import template_version
from leeway.selection.labels import ARCH, CAPACITY_TYPE, INSTANCE, ON_DEMAND, RESERVED, SPOT
from leeway.selection.offers.allocatable import AmiFamily

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
from leeway_cli.convert.user_data import family_of, read_user_data, taint_of
from leeway_cli.errors import CannotBeDoneError

_OF_LABELS = "k8s.io/cluster-autoscaler/node-template/label/"
_OF_TAINTS = "k8s.io/cluster-autoscaler/node-template/taint/"

_IMAGES: tuple[tuple[str, AmiFamily], ...] = (
    ("amazon-eks-node-al2023", AmiFamily.AL2023),
    ("/amazon-linux-2023/", AmiFamily.AL2023),
    ("amazon-eks-node-", AmiFamily.AL2),
    ("amazon-eks-gpu-node-", AmiFamily.AL2),
    ("amazon-eks-arm64-node-", AmiFamily.AL2),
    ("/amazon-linux-2", AmiFamily.AL2),
    ("bottlerocket", AmiFamily.BOTTLEROCKET),
    *((f"Windows_Server-{year}-English", AmiFamily(f"Windows{year}")) for year in WINDOWS),
)
"""Parts of the names of EKS images and of their SSM parameters, the longest of a family first."""

_GROUP_READ = """
    AutoScalingGroupName AutoScalingGroupARN AvailabilityZones AvailabilityZoneIds CreatedTime
    DesiredCapacity Instances LaunchTemplate MaxInstanceLifetime MaxSize MinSize
    MixedInstancesPolicy ServiceLinkedRoleARN Status Tags VPCZoneIdentifier DefaultCooldown
    HealthCheckType HealthCheckGracePeriod TerminationPolicies DesiredCapacityType
    TrafficSources PredictedCapacity AvailabilityZoneDistribution
    NewInstancesProtectedFromScaleIn"""
"""The fields of a group that are read, or say nothing about its nodes."""

RESERVATIONS = "select reservations by capacityReservationSelectorTerms of the EC2NodeClass."
_OF_GROUP = {
    "CapacityRebalance": REBALANCE,
    "CapacityReservationSpecification": RESERVATIONS,
    "EnabledMetrics": "a pool has no Auto Scaling group: Leeway's metrics take their place.",
    "LoadBalancerNames": (
        "Leeway registers no nodes with load balancers: use a Service of type LoadBalancer, or an "
        "Ingress."
    ),
    "PlacementGroup": PLACEMENT,
    "SuspendedProcesses": "a pool has no Auto Scaling group: nothing of these runs.",
    "TargetGroupARNs": TARGET_GROUPS,
    "WarmPoolConfiguration": "a pool has no warm pool: keep spare capacity with a Headroom.",
}

_TEMPLATE_READ = """
    BlockDeviceMappings CapacityReservationSpecification EbsOptimized IamInstanceProfile ImageId
    InstanceMarketOptions InstanceRequirements InstanceType MetadataOptions Monitoring
    NetworkInterfaces SecurityGroupIds TagSpecifications UserData"""
_OF_TEMPLATE = {
    "CpuOptions": "Leeway launches instances with all of their cores and threads.",
    "CreditSpecification": CREDITS,
    "DisableApiTermination": "Leeway ends the nodes of its pools: nothing is to do.",
    "EnclaveOptions": "Leeway launches no nodes with Nitro Enclaves: keep this group for them.",
    "KeyName": NO_SSH,
    "Placement": (
        "Leeway launches no nodes in placement groups or with dedicated tenancy: keep this group "
        "for pods that need it."
    ),
    "SecurityGroups": "Leeway selects security groups by id, by name or by tags: set them.",
}

_OF_DEVICES = {
    "NoDevice": "a node class cannot leave a mapping of the image out: look at what it adds.",
    "VirtualName": "a node class has instance store only by spec.instanceStorePolicy.",
}
_OF_INTERFACE = {
    "InterfaceType": EFAS,
    **dict.fromkeys(
        ("Ipv6AddressCount", "Ipv6Addresses", "Ipv6PrefixCount", "Ipv6Prefixes", "PrimaryIpv6"),
        "Leeway asks for IPv6 as the cluster's network needs it: nothing is to do for a cluster "
        "of IPv6.",
    ),
    "SubnetId": "select subnets by subnetSelectorTerms of the EC2NodeClass.",
}
_OF_METADATA = {
    "InstanceMetadataTags": (
        "nodes of pools cannot read their tags from the metadata service: let what needs them call "
        "ec2:DescribeTags."
    ),
}
_COUNTED = {"vcpu": "cpu", "memory-mib": "memory"}
"""What a group counts, by its DesiredCapacityType; every other one counts instances."""

_OF_OVERRIDES = {
    "WeightedCapacity": "a pool counts CPU and memory: write limits of cpu, not of nodes.",
    "LaunchTemplateSpecification": (
        "a NodePool has one node class: write a pool for the types with another launch template."
    ),
}

_NODEGROUP_READ = """
    amiType capacityType clusterName createdAt diskSize health instanceTypes labels
    launchTemplate modifiedAt nodeRole nodegroupArn nodegroupName releaseVersion resources
    scalingConfig status subnets tags taints version"""
_OF_NODEGROUP = {
    "nodeRepairConfig": REPAIR,
    "remoteAccess": NO_SSH,
    "updateConfig": BUDGETS,
}
_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
_AMI_TYPES = (
    ("AL2023", AmiFamily.AL2023),
    ("AL2_", AmiFamily.AL2),
    ("BOTTLEROCKET", AmiFamily.BOTTLEROCKET),
    *(
        (f"WINDOWS_{edition}_{year}", AmiFamily(f"Windows{year}"))
        for edition in ("CORE", "FULL")
        for year in WINDOWS
    ),
)


class Account:
    """The groups of an account in one region. `client` returns the boto3 client of a service."""

    def __init__(self, client: Callable[[str], Any], region: str, catalog: OpenCatalog) -> None:
        self._client, self._region, self._catalog = client, region, catalog

    def scaling_group(self, name: str) -> NodeGroup:
        """Read an Auto Scaling group.

        Raises:
            CannotBeDoneError: there is none.
            NotConvertible: no pool can launch what it launches.
        """
        found = self._client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[name]
        )["AutoScalingGroups"]
        if not found:
            raise CannotBeDoneError(
                f"Region {self._region} has no Auto Scaling group {name}. Check --group and "
                "AWS_REGION."
            )
        (given,) = found
        mixed = given.get("MixedInstancesPolicy") or {}
        of_mixed = mixed.get("LaunchTemplate") or {}
        specification = given.get("LaunchTemplate") or of_mixed.get("LaunchTemplateSpecification")
        if not specification:
            raise NotConvertible(
                "it has a launch configuration: give it a launch template first, as EC2 does not "
                "accept new launch configurations"
            )
        template = self._template(specification)
        group = self._group(f"Auto Scaling group {name}", name, template)
        overrides = of_mixed.get("Overrides") or []
        tags = {t["Key"]: t["Value"] for t in given.get("Tags", ()) if t.get("PropagateAtLaunch")}
        every = {t["Key"]: t["Value"] for t in given.get("Tags", ())}
        _read_autoscaler_tags(group, every)
        group.tags |= tags
        group.counts = _COUNTED.get(given.get("DesiredCapacityType") or "", "nodes")
        self._types(group, template, overrides)
        self._market(group, template, mixed.get("InstancesDistribution"))
        group.most, group.least = int(given["MaxSize"]), int(given["MinSize"])
        group.lifetime = given.get("MaxInstanceLifetime") or None
        if subnets := (given.get("VPCZoneIdentifier") or "").split(","):
            ids = [one.strip() for one in subnets if one.strip()]
            group.node_class["subnetSelectorTerms"] = [{"id": one} for one in ids]
        if not group.node_class.get("subnetSelectorTerms"):
            group.zones = tuple(given.get("AvailabilityZones", ()))
        _list_others(group, given, _GROUP_READ, _OF_GROUP)
        _distribution_notes(group, mixed.get("InstancesDistribution") or {})
        return group

    def managed(self, cluster: str, name: str) -> NodeGroup:
        """Read a managed node group.

        Raises:
            CannotBeDoneError: there is none.
            NotConvertible: no pool can launch what it launches.
        """
        eks = self._client("eks")
        try:
            given = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        except eks.exceptions.ResourceNotFoundException:
            raise CannotBeDoneError(
                f"Region {self._region} has no managed node group {cluster}/{name}. Check "
                "--nodegroup and AWS_REGION."
            ) from None
        place = f"managed node group {cluster}/{name}"
        template: Mapping[str, Any] = {}
        if of_eks := given.get("launchTemplate"):
            named = {"LaunchTemplateId": of_eks.get("id"), "LaunchTemplateName": of_eks.get("name")}
            template = self._template({**named, "Version": of_eks.get("version")})
        ami_type = str(given.get("amiType", ""))
        group = self._group(place, name, template, _family_of_type(ami_type))
        if "ImageId" not in template:
            group.node_class["amiSelectorTerms"] = _release(group, given)
        group.labels |= given.get("labels") or {}
        for taint in given.get("taints") or ():
            kept = {name: taint[name] for name in ("key", "value") if taint.get(name)}
            effect = _EFFECTS.get(taint.get("effect", ""), str(taint.get("effect")))
            group.taints.append({**kept, "effect": effect})
        group.tags |= given.get("tags") or {}
        overrides = [{"InstanceType": one} for one in given.get("instanceTypes") or ()]
        self._types(group, template, overrides)
        kind = given.get("capacityType", "ON_DEMAND")
        of_kind = {"SPOT": SPOT, "CAPACITY_BLOCK": RESERVED}.get(kind, ON_DEMAND)
        group.requirements = [one for one in group.requirements if one["key"] != CAPACITY_TYPE]
        group.requirements.append(capacity_types(of_kind))
        _reserve(group, template)
        sizes = given.get("scalingConfig") or {}
        group.most, group.least = sizes.get("maxSize"), int(sizes.get("minSize") or 0)
        group.node_class["role"] = str(given.get("nodeRole", "")).rpartition("/")[2]
        group.node_class.pop("instanceProfile", None)
        group.node_class["subnetSelectorTerms"] = [{"id": one} for one in given.get("subnets", ())]
        if not group.node_class.get("securityGroupSelectorTerms"):
            terms = [{"tags": {"aws:eks:cluster-name": cluster}}]
            group.node_class["securityGroupSelectorTerms"] = terms
        if not group.node_class.get("blockDeviceMappings") and given.get("diskSize"):
            group.node_class["blockDeviceMappings"] = [_disk(group.family, given["diskSize"])]
        _list_others(group, given, _NODEGROUP_READ, _OF_NODEGROUP)
        group.differs("", LABELS_OF_EKS)
        return group

    def _template(self, specification: Mapping[str, Any]) -> Mapping[str, Any]:
        found = template_version(self._client("ec2"), specification)
        data: Mapping[str, Any] = found["LaunchTemplateData"]
        return data

    def _group(
        self,
        place: str,
        name: str,
        template: Mapping[str, Any],
        known: AmiFamily | None = None,
    ) -> NodeGroup:
        """Read a launch template: how the nodes boot, and what they boot with."""
        image, user_data = str(template.get("ImageId", "")), str(template.get("UserData", ""))
        family, terms, arch = self._image(image, user_data)
        group = NodeGroup(name=name, place=place, family=known or family)
        if terms:
            group.node_class["amiSelectorTerms"] = terms
        group.requirements += [required(ARCH, "In", arch)] if arch else []
        read = read_user_data(user_data, group.family)
        group.labels, group.taints, group.kubelet = read.labels, read.taints, read.kubelet
        group.node_class["userData"] = read.kept
        if read.problem and user_data:
            group.differs(
                "UserData",
                f"it is left out, because {read.problem}: write what nodes still need as "
                "spec.userData of the EC2NodeClass.",
            )
        if read.advice:
            group.differs("UserData", read.advice)
        if group.family is AmiFamily.CUSTOM:
            group.differs(
                "ImageId",
                f"{image or 'the image'} is no image of EKS that Leeway knows: nodes boot with the "
                "user data as it is, and have to register with the taint "
                "karpenter.sh/unregistered:NoExecute.",
            )
        group.node_class |= _network(template) | _profile(template) | _options(group, template)
        group.node_class["blockDeviceMappings"] = _devices(group, template)
        for specification in template.get("TagSpecifications") or ():
            if specification.get("ResourceType") == "instance":
                group.tags |= {one["Key"]: one["Value"] for one in specification.get("Tags", ())}
        _list_inside(group, template)
        _list_others(group, template, _TEMPLATE_READ, _OF_TEMPLATE)
        return group

    def _image(self, image: str, user_data: str) -> tuple[AmiFamily, list[Document], str]:
        """Return the family of an image, the term that selects it, and its architecture."""
        guess = family_of(user_data)
        if not image:
            return guess or AmiFamily.AL2023, [], ""
        if image.startswith("resolve:ssm:"):
            parameter = image.removeprefix("resolve:ssm:").partition(":")[0]
            family = _by_name(parameter) or guess or AmiFamily.CUSTOM
            return family, [{"ssmParameter": parameter}], _arch_of(parameter)
        described = self._client("ec2").describe_images(
            Filters=[{"Name": "image-id", "Values": [image]}], IncludeDeprecated=True
        )["Images"]
        found = described[0] if described else {}
        family = _by_name(str(found.get("Name", ""))) or guess or AmiFamily.CUSTOM
        return family, [{"id": image}], _arch_of(str(found.get("Architecture", "")))

    def _types(
        self, group: NodeGroup, template: Mapping[str, Any], overrides: Iterable[Mapping[str, Any]]
    ) -> None:
        given = [*overrides]
        listed = [one["InstanceType"] for one in given if one.get("InstanceType")]
        asked = [one["InstanceRequirements"] for one in given if one.get("InstanceRequirements")]
        asked = asked or [r for r in [template.get("InstanceRequirements")] if r]
        for name, sentence in _OF_OVERRIDES.items():
            if any(name in one and str(one[name]) != "1" for one in given):
                group.differs(f"Overrides.{name}", sentence)
        others = {k: v for one in given for k, v in one.items() if k not in _OF_OVERRIDES}
        _list_others(group, others, "InstanceType InstanceRequirements", {}, "Overrides.")
        if listed or template.get("InstanceType"):
            group.types = listed or [str(template["InstanceType"])]
            group.requirements = [one for one in group.requirements if one["key"] != ARCH]
        elif asked:
            if len(asked) > 1:
                group.differs("Overrides", "a NodePool has one set of requirements: the first.")
            _read_requirements(group, asked[0], self._catalog)
        else:
            raise NotConvertible("neither the group nor its launch template has instance types")

    def _market(
        self,
        group: NodeGroup,
        template: Mapping[str, Any],
        distribution: Mapping[str, Any] | None,
    ) -> None:
        market = (template.get("InstanceMarketOptions") or {}).get("MarketType")
        if distribution is not None:
            percentage = distribution.get("OnDemandPercentageAboveBaseCapacity")
            group.buys(
                int(distribution.get("OnDemandBaseCapacity") or 0),
                100 if percentage is None else int(percentage),
                self._catalog,
                "InstancesDistribution.OnDemandBaseCapacity",
            )
        elif market == "capacity-block":
            group.requirements.append(capacity_types(RESERVED))
        else:
            group.requirements.append(capacity_types(SPOT if market == "spot" else ON_DEMAND))
        _reserve(group, template)


def _reserve(group: NodeGroup, template: Mapping[str, Any]) -> None:
    """Use the capacity reservation of a launch template, before what the group buys."""
    reservation = template.get("CapacityReservationSpecification") or {}
    target = (reservation.get("CapacityReservationTarget") or {}).get("CapacityReservationId")
    if target:
        group.node_class["capacityReservationSelectorTerms"] = [{"id": target}]
        for one in group.requirements:
            if one["key"] == CAPACITY_TYPE and RESERVED not in one["values"]:
                one["values"].insert(0, RESERVED)
    elif reservation:
        group.differs("CapacityReservationSpecification", RESERVATIONS)


def _by_name(name: str) -> AmiFamily | None:
    return next((family for part, family in _IMAGES if part in name), None)


def _arch_of(text: str) -> str:
    return "arm64" if "arm64" in text else "amd64" if "x86_64" in text else ""


def _family_of_type(ami_type: str) -> AmiFamily | None:
    if "FIPS" in ami_type:
        raise NotConvertible(
            f"Leeway has no AMI family for {ami_type}: select the image by an ssmParameter term of "
            "an EC2NodeClass of your own"
        )
    return next((family for prefix, family in _AMI_TYPES if ami_type.startswith(prefix)), None)


_RELEASE = re.compile(r"\d+\.\d+\.\d+-(\d{8})")
_BOTTLEROCKET_RELEASE = re.compile(r"(\d+\.\d+\.\d+)(?:-[0-9a-f]+)?")


def _release(group: NodeGroup, given: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Select the release that the group runs."""
    bottlerocket = group.family is AmiFamily.BOTTLEROCKET
    pattern = _BOTTLEROCKET_RELEASE if bottlerocket else _RELEASE
    found = pattern.fullmatch(str(given.get("releaseVersion", "")))
    if found and not group.family.windows:
        group.differs(
            "releaseVersion",
            f"the alias pins release {found[1]}, which EKS would update by hand only: write "
            f"{group.family.value.lower()}@latest to follow new releases.",
        )
        return family_of_alias(group.family, f"v{found[1]}")
    return family_of_alias(group.family)


def _list_others(
    group: NodeGroup,
    given: Mapping[str, Any],
    read: str,
    sentences: Mapping[str, str],
    place: str = "",
) -> None:
    """List the settings that are not read; `place` has the names around them, each with a dot."""
    known = {*read.split(), "ResponseMetadata"}
    for name, value in given.items():
        if name in sentences and value:
            group.differs(f"{place}{name}", sentences[name])
        elif name not in known and value:
            group.differs(f"{place}{name}", "Leeway has no counterpart for this setting.")


def _list_inside(group: NodeGroup, template: Mapping[str, Any]) -> None:
    """List what the parts of a launch template have beyond what is read."""
    options = template.get("MetadataOptions") or {}
    options = {name: value for name, value in options.items() if value != "disabled"}
    read = "HttpEndpoint HttpProtocolIpv6 HttpPutResponseHopLimit HttpTokens State"
    _list_others(group, options, read, _OF_METADATA, "MetadataOptions.")
    market = template.get("InstanceMarketOptions") or {}
    _list_others(group, market, "MarketType", {}, "InstanceMarketOptions.")
    for index, one in enumerate(template.get("NetworkInterfaces") or ()):
        place = f"NetworkInterfaces[{index}]"
        kind = one.get("InterfaceType") or "interface"
        given = {name: value for name, value in one.items() if value != "interface"}
        read = "AssociatePublicIpAddress DeleteOnTermination DeviceIndex Groups NetworkCardIndex"
        _list_others(group, given, read, _OF_INTERFACE, f"{place}.")
        if index and kind == "interface":
            group.differs(place, "Leeway attaches one network interface, as the first one is.")
    for one in template.get("BlockDeviceMappings") or ():
        place = f"BlockDeviceMappings.{one.get('DeviceName')}."
        _list_others(group, one, "DeviceName Ebs", _OF_DEVICES, place)
        _list_others(group, one.get("Ebs") or {}, " ".join(_EBS.values()), {}, f"{place}Ebs.")
    for one in template.get("TagSpecifications") or ():
        tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
        others = [key for key, value in tags.items() if group.tags.get(key) != value]
        if others:
            group.differs(
                f"TagSpecifications.{one.get('ResourceType')}",
                "a node class has one set of tags, for instances and their volumes: add "
                f"{', '.join(others)} to spec.tags if the instances may have them too.",
            )


def _distribution_notes(group: NodeGroup, distribution: Mapping[str, Any]) -> None:
    if distribution.get("SpotMaxPrice"):
        group.differs(
            "InstancesDistribution.SpotMaxPrice",
            MAX_PRICE,
        )
    for name in ("OnDemandAllocationStrategy", "SpotAllocationStrategy"):
        if distribution.get(name) not in {None, "", "price-capacity-optimized", "lowest-price"}:
            group.differs(
                f"InstancesDistribution.{name}",
                "Leeway chooses the offerings itself: its fleets use price-capacity-optimized for "
                "Spot and lowest-price for on-demand.",
            )


def _read_autoscaler_tags(group: NodeGroup, tags: Mapping[str, str]) -> None:
    """Read the labels and taints that tags tell Cluster Autoscaler."""
    for key, value in tags.items():
        if key.startswith(_OF_LABELS):
            group.labels.setdefault(key.removeprefix(_OF_LABELS), value)
        elif key.startswith(_OF_TAINTS):
            taint = taint_of(f"{key.removeprefix(_OF_TAINTS)}={value}")
            if taint not in group.taints:
                group.taints.append(taint)


def _network(template: Mapping[str, Any]) -> Document:
    interfaces = template.get("NetworkInterfaces") or ()
    first: Mapping[str, Any] = interfaces[0] if interfaces else {}
    groups = template.get("SecurityGroupIds") or first.get("Groups") or ()
    public = first.get("AssociatePublicIpAddress")
    return {"securityGroupSelectorTerms": [{"id": one} for one in groups]} | (
        {} if public is None else {"associatePublicIPAddress": bool(public)}
    )


def _profile(template: Mapping[str, Any]) -> Document:
    profile = template.get("IamInstanceProfile") or {}
    name = profile.get("Name") or str(profile.get("Arn", "")).rpartition("/")[2]
    return {"instanceProfile": name} if name else {}


_UNSET_METADATA = {
    "HttpTokens": (
        "it is not set, so nodes of the group have what EKS, the image or the account sets. Nodes "
        "of the pool refuse requests without a token (IMDSv1): set spec.metadataOptions.httpTokens "
        "of the EC2NodeClass to optional if pods make such requests."
    ),
    "HttpPutResponseHopLimit": (
        "it is not set, so nodes of the group have what EKS, the image or the account sets. Nodes "
        "of the pool have 1, with which only pods on the host network get a token: set "
        "spec.metadataOptions.httpPutResponseHopLimit of the EC2NodeClass to 2 if other pods read "
        "instance metadata or use the role of the node."
    ),
}
"""What a pool limits by default, and EC2 may not. Source: Amazon EC2 User
Guide, 'Order of precedence for instance metadata options'."""


def _options(group: NodeGroup, template: Mapping[str, Any]) -> Document:
    given = template.get("MetadataOptions") or {}
    for name, sentence in _UNSET_METADATA.items():
        if not given.get(name) and given.get("HttpEndpoint") != "disabled":
            group.differs(f"MetadataOptions.{name}", sentence)
    options = {
        "httpTokens": given.get("HttpTokens"),
        "httpPutResponseHopLimit": given.get("HttpPutResponseHopLimit"),
        "httpEndpoint": given.get("HttpEndpoint"),
        "httpProtocolIPv6": given.get("HttpProtocolIpv6"),
    }
    kept = {name: value for name, value in options.items() if value is not None}
    found: Document = {"metadataOptions": kept} if kept else {}
    if (template.get("Monitoring") or {}).get("Enabled"):
        found["detailedMonitoring"] = True
    return found


_EBS = {
    "volumeSize": "VolumeSize",
    "volumeType": "VolumeType",
    "iops": "Iops",
    "throughput": "Throughput",
    "encrypted": "Encrypted",
    "kmsKeyID": "KmsKeyId",
    "snapshotID": "SnapshotId",
    "deleteOnTermination": "DeleteOnTermination",
    "volumeInitializationRate": "VolumeInitializationRate",
}
"""The fields of a volume, and those of a launch template that they are read from."""


def _devices(group: NodeGroup, template: Mapping[str, Any]) -> list[Document]:
    found = []
    for one in template.get("BlockDeviceMappings") or ():
        ebs = one.get("Ebs") or {}
        size = ebs.get("VolumeSize")
        if not (size or ebs.get("SnapshotId")):
            group.differs(
                f"BlockDeviceMappings.{one.get('DeviceName')}",
                "a volume of a node class needs a size: Leeway leaves this mapping out, and the "
                "size of the image applies.",
            )
            continue
        kept = {name: ebs[key] for name, key in _EBS.items() if ebs.get(key) is not None}
        if size:
            kept["volumeSize"] = f"{size}Gi"
        found.append({"deviceName": one.get("DeviceName"), "ebs": kept})
    return found


def _disk(family: AmiFamily, size: int) -> Document:
    device = "/dev/xvdb" if family is AmiFamily.BOTTLEROCKET else "/dev/xvda"
    if family.windows:
        device = "/dev/sda1"
    ebs = {"volumeSize": f"{size}Gi", "volumeType": "gp3", "deleteOnTermination": True}
    return {"deviceName": device, "ebs": ebs}


_RANGES = {"VCpuCount": "cpu", "MemoryMiB": "memory", "AcceleratorCount": "gpu-count"}
_READ_REQUIREMENTS = frozenset(
    {*_RANGES, "AllowedInstanceTypes", "ExcludedInstanceTypes", "BareMetal", "InstanceGenerations"}
)
_METAL = ("metal", "metal-16xl", "metal-24xl", "metal-32xl", "metal-48xl")


def _read_requirements(group: NodeGroup, asked: Mapping[str, Any], catalog: OpenCatalog) -> None:
    """Write the InstanceRequirements of a group as requirements of a NodePool."""
    for name, label in _RANGES.items():
        given, key = asked.get(name) or {}, f"{INSTANCE}{label}"
        if given.get("Max") == 0:
            group.requirements.append(required(key, "DoesNotExist"))
            continue
        if given.get("Min"):
            group.requirements.append(required(key, "Gte", str(given["Min"])))
        if given.get("Max"):
            group.requirements.append(required(key, "Lte", str(given["Max"])))
    if asked.get("BareMetal", "excluded") == "excluded":
        group.requirements.append(required(f"{INSTANCE}size", "NotIn", *_METAL))
    for name in asked:
        if name not in _READ_REQUIREMENTS and asked[name]:
            group.differs(
                f"InstanceRequirements.{name}",
                "Leeway does not read this attribute: add a requirement to the NodePool, and look "
                "at its types with `leeway types -f`.",
            )
    allowed, excluded = asked.get("AllowedInstanceTypes"), asked.get("ExcludedInstanceTypes")
    if allowed or excluded:
        group.types = [
            one
            for one in group.matching(catalog())
            if (not allowed or _matches(one, allowed)) and not _matches(one, excluded or ())
        ]
        if not group.types:
            raise NotConvertible("its InstanceRequirements match no instance type of the region")
        group.differs(
            "InstanceRequirements",
            "a NodePool has no patterns of types: those that match today are listed. Add later "
            "types to the list.",
        )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
