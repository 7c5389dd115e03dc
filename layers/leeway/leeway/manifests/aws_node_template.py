"""AWSNodeTemplate of `karpenter.k8s.aws/v1alpha1`, and its conversion to an EC2NodeClass."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from leeway.manifests.base import Manifest, NotActedOn, Strict
from leeway.manifests.interpreting import Converted
from leeway.manifests.node_class import BlockDevice, EC2NodeClass, MetadataOptions
from leeway.manifests.problems import Note
from leeway.manifests.selectors import Tags, TagText
from leeway.manifests.ubuntu import OldAmiFamily, notes_on, without_ubuntu

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


def as_node_class(old: AWSNodeTemplate) -> Converted:
    """Convert an AWSNodeTemplate to the equivalent EC2NodeClass."""
    spec = old.spec
    kept = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude={
            "ami_selector",
            "subnet_selector",
            "security_group_selector",
            "context",
            "launch_template",
            "api_version",
            "kind",
        },
    )
    terms = {
        "amiSelectorTerms": spec.ami_selector,
        "subnetSelectorTerms": spec.subnet_selector,
        "securityGroupSelectorTerms": spec.security_group_selector,
    }
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {
            "name": old.metadata.name,
            "labels": old.metadata.labels,
            "annotations": old.metadata.annotations,
        },
        "spec": {
            **without_ubuntu({name: value for name, value in kept.items() if value is not None}),
            **{name: list(_terms(selector)) for name, selector in terms.items() if selector},
        },
    }
    return Converted(EC2NodeClass.model_validate_json(json.dumps(node_class)), _notes(spec))


def _notes(spec: AWSNodeTemplateSpec) -> tuple[Note, ...]:
    if spec.ami_family is not None:
        return tuple(notes_on(spec.ami_family, images=bool(spec.ami_selector)))
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
