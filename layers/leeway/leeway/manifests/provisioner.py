"""Provisioner of `karpenter.sh/v1alpha5`, and its conversion to a NodePool."""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from leeway.durations import render_duration
from leeway.manifests.amounts import Amounts
from leeway.manifests.base import LabelKey, Manifest, Name, NotActedOn, Strict
from leeway.manifests.interpreting import Converted
from leeway.manifests.kubelet import KUBELET, OldKubeletSettings
from leeway.manifests.node_pool import (
    LabelRequirement,
    NodePool,
    PoolLabels,
    TaintSpec,
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


class ProvisionerSpec(Strict):
    """The nodes that may be launched."""

    requirements: tuple[LabelRequirement, ...] = ()
    """Requirements on the labels of the nodes."""
    labels: PoolLabels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the nodes."""
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


def as_node_pool(old: Provisioner) -> Converted:
    """Convert a Provisioner to the equivalent NodePool."""
    spec = old.spec
    written = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    kubelet = written.get("kubeletConfiguration", {})
    kubelet.pop("containerRuntime", None)
    annotations = {**old.metadata.annotations}
    if kubelet:
        annotations[KUBELET] = json.dumps(kubelet)
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {
            "name": old.metadata.name,
            "labels": old.metadata.labels,
            "annotations": annotations,
        },
        "spec": {
            "template": {
                "metadata": {"labels": spec.labels, "annotations": spec.annotations},
                "spec": {
                    "nodeClassRef": {
                        "name": spec.provider_ref.name if spec.provider_ref else "default"
                    },
                    "requirements": [
                        *written.get("requirements", []),
                        *_requirements_by_default(spec),
                    ],
                    "taints": written.get("taints", []),
                    "startupTaints": written.get("startupTaints", []),
                    "expireAfter": _seconds(spec.ttl_seconds_until_expired),
                },
            },
            "disruption": _disruption(spec),
            "limits": spec.limits.resources,
            "weight": spec.weight,
        },
    }
    return Converted(NodePool.model_validate_json(json.dumps(pool)))


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
