"""AWSNodeTemplate of `karpenter.k8s.aws/v1alpha1`, read as the EC2NodeClass that it became."""

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

# Keys of a selector that are no tags. Source: Karpenter v0.31, "Node Templates".
_IDS = ("aws-ids", "aws::ids")
_NAMES = ("aws::name",)
_OWNERS = ("aws::owners",)


class AWSNodeTemplateSpec(Strict):
    """How a machine is made into a node."""

    ami_family: OldAmiFamily | None = None
    """Operating system of the nodes."""
    ami_selector: Selector = Field(default_factory=dict)
    """Which images nodes boot: those that have all these tags, ids, names or owners."""
    subnet_selector: Selector = Field(default_factory=dict)
    """Which subnets nodes are launched into: those that have all these tags, or ids."""
    security_group_selector: Selector = Field(default_factory=dict)
    """Which security groups nodes get: those that have all these tags, ids or names."""
    instance_profile: str | None = None
    """Name of the nodes' instance profile."""
    user_data: str | None = None
    """What nodes boot with, beside what Leeway adds."""
    tags: Tags = Field(default_factory=dict)
    """Tags of the instances and volumes."""
    block_device_mappings: tuple[BlockDevice, ...] = ()
    """The nodes' volumes."""
    metadata_options: MetadataOptions | None = None
    """Who may reach the instance metadata service."""
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = (
        None
    )
    """Whether nodes get public addresses."""
    detailed_monitoring: bool | None = None
    """Whether CloudWatch watches nodes by the minute."""
    context: Annotated[Any, NotActedOn("EC2 reserves it")] = None
    """Reserved by EC2."""
    launch_template: Annotated[Any, NotActedOn("Leeway makes its own launch templates")] = None
    """A launch template of one's own."""
    api_version: Annotated[Any, NotActedOn("it says nothing here")] = None
    """A remainder of an older form."""
    kind: Annotated[Any, NotActedOn("it says nothing here")] = None
    """A remainder of an older form."""


class AWSNodeTemplate(Manifest):
    """How a machine is made into a node, as Karpenter's first API has it. An EC2NodeClass says the
    same."""

    api_version: Literal["karpenter.k8s.aws/v1alpha1"]
    kind: Literal["AWSNodeTemplate"]
    spec: AWSNodeTemplateSpec
    """How a machine is made into a node."""


def as_node_class(old: AWSNodeTemplate) -> Converted:
    """Convert an AWSNodeTemplate to the EC2NodeClass that means the same."""
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
    said = "AL2 was the default then, and is no longer maintained: the Cluster's default is taken"
    return (Note(("spec", "amiFamily"), said),)


def _terms(selector: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A selector's parts must all hold, each for one of several values between commas; terms are
    alternatives. So a term for every combination, ids and names each in terms of their own."""
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
