"""EC2NodeClass of `karpenter.k8s.aws/v1beta1`, and its conversion to v1."""

import json
from typing import Annotated, Literal

from pydantic import Field

from leeway.manifests.base import Manifest
from leeway.manifests.interpreting import Converted
from leeway.manifests.node_class import EC2NodeClass, MetadataOptions, NodeClassFields
from leeway.manifests.ubuntu import OldAmiFamily, notes_on, without_ubuntu


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


def as_node_class(old: EC2NodeClassV1Beta1) -> Converted:
    """Convert an EC2NodeClass of v1beta1 to the equivalent one of v1."""
    spec = old.spec
    written = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    written["metadataOptions"] = spec.metadata_options.model_dump(mode="json", by_alias=True)
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {
            "name": old.metadata.name,
            "labels": old.metadata.labels,
            "annotations": old.metadata.annotations,
        },
        "spec": without_ubuntu(written),
    }
    notes = notes_on(spec.ami_family, images=bool(spec.ami_selector_terms))
    return Converted(EC2NodeClass.model_validate_json(json.dumps(node_class)), tuple(notes))
