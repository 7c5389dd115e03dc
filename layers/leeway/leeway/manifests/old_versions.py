"""Provisioners, AWSNodeTemplates and the kinds of v1beta1, and their conversion to v1.

`leeway apply`, and each command that reads files, convert a manifest when it comes in. The table
holds the result, with the manifest as the user wrote it beside it: functions read only v1.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from leeway.durations import render_duration
from leeway.manifests.base import (
    Amounts,
    Duration,
    Manifest,
    Name,
    NotActedOn,
    Note,
    Strict,
    Tags,
    TagText,
)
from leeway.manifests.node_class import (
    KUBELET,
    BlockDevice,
    KubeletSettings,
    MetadataOptions,
    NodeClassFields,
)
from leeway.manifests.node_pool import (
    POOL_ANNOTATIONS,
    Budget,
    FlexibleRequirement,
    LabelRequirement,
    Never,
    PoolAnnotations,
    PoolLabels,
    TaintSpec,
    TemplateMetadata,
)
from leeway.selection.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    normalised,
)
from leeway.selection.offers.allocatable import AmiFamily

type Conversion = tuple[dict[str, Any], tuple[Note, ...]]
"""The document of v1, and warnings whose paths refer to the manifest as written."""

OldAmiFamily = Literal[
    "AL2",
    "AL2023",
    "Bottlerocket",
    "Windows2019",
    "Windows2022",
    "Windows2025",
    "Custom",
    "Ubuntu",
]
"""The AMI families of node classes before v1."""

# The volume that Karpenter gives to nodes of Ubuntu. Source: Karpenter v1.0, the conversion of
# `karpenter.k8s.aws/v1beta1` EC2NodeClasses.
_VOLUME = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"encrypted": True, "volumeType": "gp3", "volumeSize": "20Gi"},
}


def _without_ubuntu(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a node class with Ubuntu converted to AL2."""
    if spec.get("amiFamily") != "Ubuntu":
        return spec
    volumes = spec.get("blockDeviceMappings") or [_VOLUME]
    return {**spec, "amiFamily": AmiFamily.AL2.value, "blockDeviceMappings": volumes}


def _notes_on(family: OldAmiFamily | None, *, images: bool) -> Iterator[Note]:
    """Warn how Ubuntu is converted. `images`: whether the node class selects images."""
    if family != "Ubuntu":
        return
    path = ("spec", "amiFamily")
    yield Note(
        path, "Ubuntu is converted to AL2, whose user data has the same format, as in Karpenter"
    )
    if not images:
        yield Note(path, "expected amiSelectorTerms: Leeway has no default image for Ubuntu")


# The requirements of a Provisioner that does not mention a label, and the instance types of one
# that restricts no types. Source: Karpenter v0.31's defaults on AWS.
_DEFAULTS = ((OS, "linux"), (ARCH, "amd64"), (CAPACITY_TYPE, ON_DEMAND))
_OF_TYPES = frozenset(
    {INSTANCE_TYPE, f"{INSTANCE}family", f"{INSTANCE}category", f"{INSTANCE}generation"}
)
_TYPES_BY_DEFAULT = (
    {"key": f"{INSTANCE}category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": f"{INSTANCE}generation", "operator": "Gt", "values": ["2"]},
)

LONGEST = 2**31 - 1
"""Seconds: the largest integer of the API."""


class Consolidation(Strict):
    """Removal of underutilized nodes."""

    enabled: bool = False
    """Whether underutilized nodes are removed."""


class Limits(Strict):
    """Limits on the sum of all nodes."""

    resources: Amounts = Field(default_factory=dict)
    """Limit for each resource."""


class ProviderRef(Strict):
    """A reference to the AWSNodeTemplate of the nodes."""

    api_version: str | None = None
    """API version of the AWSNodeTemplate."""
    kind: str | None = None
    """Kind of the AWSNodeTemplate."""
    name: Name
    """Name of the AWSNodeTemplate."""


class OldKubeletSettings(KubeletSettings):
    """Kubelet settings of a Provisioner."""

    container_runtime: Annotated[Any, NotActedOn("nodes run containerd")] = None
    """Container runtime."""


class ProvisionerSpec(Strict):
    """The nodes that may be launched."""

    requirements: tuple[LabelRequirement, ...] = ()
    """Requirements on the labels of the nodes."""
    labels: PoolLabels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: PoolAnnotations = Field(default_factory=dict)
    """Annotations of the nodes. A node gets them once, when it joins."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints of the nodes; pods must tolerate them."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that another component removes while a node starts; pods do not have to tolerate
    them."""
    limits: Limits = Field(default_factory=Limits)
    """Limits on the sum of all nodes."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Weight of the pool: of the pools that fit a pod, the one with the largest weight is used."""
    ttl_seconds_after_empty: Annotated[int | None, Field(ge=0, le=LONGEST)] = None
    """How long, in seconds, a node has to be empty before it is removed."""
    ttl_seconds_until_expired: Annotated[int | None, Field(ge=0, le=LONGEST)] = None
    """Maximum age of a node, in seconds."""
    consolidation: Consolidation = Field(default_factory=Consolidation)
    """Removal of underutilized nodes."""
    kubelet_configuration: OldKubeletSettings = Field(default_factory=OldKubeletSettings)
    """Kubelet settings."""
    provider_ref: ProviderRef | None = None
    """AWSNodeTemplate of the nodes. If it has no manifest, the Cluster's defaults apply."""
    provider: Annotated[Any, NotActedOn("write an AWSNodeTemplate and set providerRef")] = None
    """Fields of an AWSNodeTemplate, inline."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.consolidation.enabled and self.ttl_seconds_after_empty is not None:
            raise ValueError("expected either consolidation or ttlSecondsAfterEmpty")
        return self


class Provisioner(Manifest):
    """Nodes that may be launched, in Karpenter's first API. Leeway converts it to a NodePool."""

    api_version: Literal["karpenter.sh/v1alpha5"]
    kind: Literal["Provisioner"]
    spec: ProvisionerSpec
    """The nodes that may be launched."""

    known_annotations: ClassVar[frozenset[str]] = POOL_ANNOTATIONS


def pool_of_provisioner(old: Provisioner) -> Conversion:
    """Convert a Provisioner to the equivalent NodePool."""
    spec = old.spec
    written = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    kubelet = written.get("kubeletConfiguration", {})
    kubelet.pop("containerRuntime", None)
    node = {
        "nodeClassRef": {"name": spec.provider_ref.name if spec.provider_ref else "default"},
        "requirements": [*written.get("requirements", []), *_requirements_by_default(spec)],
        "taints": written.get("taints"),
        "startupTaints": written.get("startupTaints"),
        "expireAfter": _seconds(spec.ttl_seconds_until_expired),
    }
    pool = {
        "template": {
            "metadata": _set({"labels": spec.labels, "annotations": spec.annotations}),
            "spec": _set(node),
        },
        "disruption": _disruption(spec),
        "limits": spec.limits.resources,
        "weight": spec.weight,
    }
    return _node_pool(old, pool, kubelet), ()


def _requirements_by_default(spec: ProvisionerSpec) -> Iterable[dict[str, Any]]:
    said = {normalised(key) for key in (*(r.key for r in spec.requirements), *spec.labels)}
    for key, value in _DEFAULTS:
        if key not in said:
            yield {"key": key, "operator": "In", "values": [value]}
    if not said & _OF_TYPES:
        yield from _TYPES_BY_DEFAULT


def _disruption(spec: ProvisionerSpec) -> dict[str, Any]:
    if spec.consolidation.enabled:
        return {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    return {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": _seconds(spec.ttl_seconds_after_empty),
    }


def _seconds(seconds: int | None) -> str:
    return "Never" if seconds is None else render_duration(timedelta(seconds=seconds))


Selector = dict[Annotated[TagText, StringConstraints(max_length=128)], str]

# Keys of a selector that are not tags. Source: Karpenter v0.31, "Node Templates".
_IDS = ("aws-ids", "aws::ids")
_NAMES = ("aws::name",)
_OWNERS = ("aws::owners",)


class AWSNodeTemplateSpec(Strict):
    """EC2 settings of nodes."""

    ami_family: OldAmiFamily | None = None
    """AMI family of the nodes; the default is that of the Cluster."""
    ami_selector: Selector = Field(default_factory=dict)
    """Images of the nodes: those that match every key. Keys are tags, or `aws::ids`, `aws::name`
    and `aws::owners`; commas separate alternative values."""
    subnet_selector: Selector = Field(default_factory=dict)
    """Subnets of the nodes: those that match every key. Keys are tags, or `aws-ids`; commas
    separate alternative values."""
    security_group_selector: Selector = Field(default_factory=dict)
    """Security groups of the nodes: those that match every key. Keys are tags, `aws-ids` or
    `aws::name`; commas separate alternative values."""
    instance_profile: str | None = None
    """Name of the nodes' instance profile."""
    user_data: str | None = None
    """User data of the nodes."""
    tags: Tags = Field(default_factory=dict)
    """Tags of instances and volumes."""
    block_device_mappings: tuple[BlockDevice, ...] = ()
    """Volumes of the nodes. The size of the volume with the kubelet's data gives the ephemeral
    storage."""
    metadata_options: MetadataOptions | None = None
    """Access to the instance metadata service."""
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = (
        None
    )
    """Whether nodes have public IP addresses."""
    detailed_monitoring: bool | None = None
    """Whether detailed CloudWatch monitoring is enabled."""
    context: Annotated[Any, NotActedOn("EC2 reserves this field")] = None
    """Reserved by EC2."""
    launch_template: Annotated[Any, NotActedOn("launch templates are not supported")] = None
    """Name of a launch template."""
    api_version: Annotated[Any, NotActedOn("this field has no effect here")] = None
    """Left over from an older form."""
    kind: Annotated[Any, NotActedOn("this field has no effect here")] = None
    """Left over from an older form."""


class AWSNodeTemplate(Manifest):
    """EC2 settings of nodes, in Karpenter's first API. Leeway converts it to an EC2NodeClass."""

    api_version: Literal["karpenter.k8s.aws/v1alpha1"]
    kind: Literal["AWSNodeTemplate"]
    spec: AWSNodeTemplateSpec
    """EC2 settings of the nodes."""


def node_class_of_template(old: AWSNodeTemplate) -> Conversion:
    """Convert an AWSNodeTemplate to the equivalent EC2NodeClass."""
    spec = old.spec
    selectors = {"ami_selector", "subnet_selector", "security_group_selector"}
    ignored = {"context", "launch_template", "api_version", "kind"}
    kept = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude_none=True,
        exclude=selectors | ignored,
    )
    terms = {
        "amiSelectorTerms": spec.ami_selector,
        "subnetSelectorTerms": spec.subnet_selector,
        "securityGroupSelectorTerms": spec.security_group_selector,
    }
    chosen = {name: list(_terms(selector)) for name, selector in terms.items() if selector}
    return _node_class(old, {**_without_ubuntu(kept), **chosen}), _notes(spec)


def _notes(spec: AWSNodeTemplateSpec) -> tuple[Note, ...]:
    if spec.ami_family is not None:
        return tuple(_notes_on(spec.ami_family, images=bool(spec.ami_selector)))
    said = "not set: Karpenter's default AL2 is no longer maintained; the Cluster's default applies"
    return (Note(("spec", "amiFamily"), said),)


def _terms(selector: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Convert a selector to terms. All keys of a selector must match, each with one of several
    values; terms are alternatives. The result has a term for each combination of values, and a
    separate term for each ID."""
    values = {
        key: [part.strip() or "*" for part in text.split(",")] for key, text in selector.items()
    }
    special = {*_IDS, *_NAMES, *_OWNERS}
    for ids in (values[key] for key in _IDS if key in values):
        for one in ids:
            yield {"id": one}
    others = {key: given for key, given in values.items() if key not in _IDS}
    if not others:
        return
    for combination in itertools.product(*others.values()):
        chosen = dict(zip(others, combination, strict=True))
        term: dict[str, Any] = {}
        tags = {key: value for key, value in chosen.items() if key not in special}
        if tags:
            term["tags"] = tags
        for keys, name in ((_NAMES, "name"), (_OWNERS, "owner")):
            for key in keys:
                if key in chosen:
                    term[name] = chosen[key]
        yield term


class NodeClassRefV1Beta1(Strict):
    """A reference to the node class of the nodes."""

    api_version: str | None = None
    """API version of the node class."""
    kind: str | None = None
    """Kind of the node class."""
    name: Name
    """Name of the node class."""


class TemplateSpecV1Beta1(Strict):
    """The specification of nodes."""

    node_class_ref: NodeClassRefV1Beta1 = Field(
        default_factory=lambda: NodeClassRefV1Beta1(name="default")
    )
    """Node class of the nodes. If it has no manifest, the Cluster's defaults apply."""
    requirements: Annotated[tuple[FlexibleRequirement, ...], Field(max_length=100)] = ()
    """Requirements on the labels of the nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints of the nodes; pods must tolerate them."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that another component removes while a node starts; pods do not have to tolerate
    them."""
    kubelet: KubeletSettings | None = None
    """Kubelet settings."""
    resources: Annotated[Any, NotActedOn("Karpenter sets this field")] = None
    """Requests of the pods of a node."""


class TemplateV1Beta1(Strict):
    """A template of nodes."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the nodes."""
    spec: TemplateSpecV1Beta1 = Field(default_factory=TemplateSpecV1Beta1)
    """Requirements, taints and node class of the nodes."""


class DisruptionV1Beta1(Strict):
    """When nodes are removed."""

    consolidate_after: Duration | Never | None = None
    """How long a node has to be empty; only with `WhenEmpty`."""
    consolidation_policy: Literal["WhenEmpty", "WhenUnderutilized"] = "WhenUnderutilized"
    """Which nodes are removed."""
    expire_after: Duration | Never = timedelta(hours=720)
    """Maximum age of a node."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget(),)
    """Disruption budgets; the strictest applies."""

    @model_validator(mode="after")
    def _after_with_its_policy(self) -> Self:
        waits = self.consolidate_after not in (None, "Never")
        if waits and self.consolidation_policy == "WhenUnderutilized":
            raise ValueError("expected consolidateAfter only with WhenEmpty")
        if self.consolidate_after is None and self.consolidation_policy == "WhenEmpty":
            raise ValueError("expected consolidateAfter with WhenEmpty")
        return self


class NodePoolV1Beta1Spec(Strict):
    """The nodes that may be launched."""

    template: TemplateV1Beta1 = Field(default_factory=TemplateV1Beta1)
    """Template of the nodes."""
    disruption: DisruptionV1Beta1 = Field(default_factory=DisruptionV1Beta1)
    """When nodes are removed."""
    limits: Amounts = Field(default_factory=dict)
    """Limits on the sum of all nodes of the pool: `cpu`, `memory` or any other resource."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Weight of the pool: of the pools that fit a pod, the one with the largest weight is used."""


class NodePoolV1Beta1(Manifest):
    """Nodes that may be launched, in Karpenter's second API. Leeway converts it to a NodePool of
    v1."""

    api_version: Literal["karpenter.sh/v1beta1"]
    kind: Literal["NodePool"]
    spec: NodePoolV1Beta1Spec
    """The nodes that may be launched."""

    known_annotations: ClassVar[frozenset[str]] = POOL_ANNOTATIONS


def pool_of_v1beta1(old: NodePoolV1Beta1) -> Conversion:
    """Convert a NodePool of v1beta1 to the equivalent one of v1."""
    written = old.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    template = written.get("template", {})
    spec = template.get("spec", {})
    kubelet = spec.pop("kubelet", {})
    spec.pop("resources", None)
    spec["nodeClassRef"] = {"name": old.spec.template.spec.node_class_ref.name}
    disruption = written.get("disruption", {})
    if "expireAfter" in disruption:
        spec["expireAfter"] = disruption.pop("expireAfter")
    if disruption.get("consolidationPolicy") == "WhenUnderutilized":
        disruption["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
    pool = {**written, "template": {**template, "spec": spec}, "disruption": disruption}
    return _node_pool(old, pool, kubelet), ()


class MetadataOptionsV1Beta1(MetadataOptions):
    """Access to the instance metadata service."""

    http_put_response_hop_limit: Annotated[int, Field(ge=1, le=64)] = 2
    """Maximum number of network hops of a response; pods need 2."""


class EC2NodeClassV1Beta1Spec(NodeClassFields):
    """EC2 settings of nodes. Fields that are not set take the Cluster's defaults."""

    ami_family: OldAmiFamily | None = None
    """AMI family of the nodes."""
    metadata_options: MetadataOptionsV1Beta1 = Field(default_factory=MetadataOptionsV1Beta1)
    """Access to the instance metadata service."""


class EC2NodeClassV1Beta1(Manifest):
    """EC2 settings of nodes, in Karpenter's second API. Leeway converts it to an EC2NodeClass of
    v1."""

    api_version: Literal["karpenter.k8s.aws/v1beta1"]
    kind: Literal["EC2NodeClass"]
    spec: EC2NodeClassV1Beta1Spec = Field(default_factory=EC2NodeClassV1Beta1Spec)
    """EC2 settings of the nodes."""


def node_class_of_v1beta1(old: EC2NodeClassV1Beta1) -> Conversion:
    """Convert an EC2NodeClass of v1beta1 to the equivalent one of v1."""
    spec = old.spec
    written = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    written["metadataOptions"] = spec.metadata_options.model_dump(mode="json", by_alias=True)
    notes = _notes_on(spec.ami_family, images=bool(spec.ami_selector_terms))
    return _node_class(old, _without_ubuntu(written)), tuple(notes)


def _node_pool(old: Manifest, spec: dict[str, Any], kubelet: dict[str, Any]) -> dict[str, Any]:
    """Return a NodePool. Kubelet settings belong to the node class in v1: those of an old pool
    become an annotation."""
    annotations = dict(old.metadata.annotations)
    if kubelet:
        annotations[KUBELET] = json.dumps(kubelet)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": _metadata(old, annotations),
        "spec": _set(spec),
    }


def _node_class(old: Manifest, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": _metadata(old, old.metadata.annotations),
        "spec": _set(spec),
    }


def _metadata(old: Manifest, annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {
        "name": old.metadata.name,
        "labels": old.metadata.labels,
        "annotations": annotations,
        "resourceVersion": old.metadata.resource_version,
    }
    return _set(metadata)


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}
