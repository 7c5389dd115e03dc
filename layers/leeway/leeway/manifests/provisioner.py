"""Provisioner of `karpenter.sh/v1alpha5`, read as the NodePool that it became."""

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
    NOT_GIVEN_BACK,
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

# What a Provisioner asks for where it says nothing of a label, and, where it says nothing at all
# of which types, which those are. Source: Karpenter v0.31's defaults on AWS.
_DEFAULTS = ((OS, "linux"), (ARCH, "amd64"), (CAPACITY_TYPE, ON_DEMAND))
_OF_TYPES = frozenset(
    {INSTANCE_TYPE, f"{INSTANCE}family", f"{INSTANCE}category", f"{INSTANCE}generation"}
)
_TYPES_BY_DEFAULT = (
    {"key": f"{INSTANCE}category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": f"{INSTANCE}generation", "operator": "Gt", "values": ["2"]},
)

LONGEST = 2**31 - 1
"""Seconds: as many as any whole number of the API has."""


class Consolidation(Strict):
    """Whether under-used nodes are given back."""

    enabled: bool = False
    """Whether they are."""


class Limits(Strict):
    """What all nodes together may have."""

    resources: Amounts = Field(default_factory=dict)
    """Amounts by resource."""


class ProviderRef(Strict):
    """Which node template makes the nodes."""

    api_version: str | None = None
    """Its API version."""
    kind: str | None = None
    """Its kind."""
    name: Name
    """Its name."""


class ProvisionerSpec(Strict):
    """Which nodes may be launched."""

    requirements: tuple[LabelRequirement, ...] = ()
    """What their labels have to be."""
    labels: PoolLabels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints that pods must tolerate."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that somebody takes off while a node starts."""
    limits: Limits = Field(default_factory=Limits)
    """What all nodes together may have."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Of pools that would do, that of the larger weight is taken."""
    ttl_seconds_after_empty: Annotated[int | None, Field(ge=0, le=LONGEST), NOT_GIVEN_BACK] = None
    """How long a node has to be empty before it is given back."""
    ttl_seconds_until_expired: Annotated[int | None, Field(ge=0, le=LONGEST), NOT_GIVEN_BACK] = None
    """How old a node may become."""
    consolidation: Annotated[Consolidation, NOT_GIVEN_BACK] = Field(default_factory=Consolidation)
    """Whether under-used nodes are given back."""
    kubelet_configuration: OldKubeletSettings = Field(default_factory=OldKubeletSettings)
    """How the kubelet is set."""
    provider_ref: ProviderRef | None = None
    """Which AWSNodeTemplate makes the nodes."""
    provider: Annotated[Any, NotActedOn("write an AWSNodeTemplate, and refer to it")] = None
    """An AWSNodeTemplate's fields in place."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.consolidation.enabled and self.ttl_seconds_after_empty is not None:
            raise ValueError("expected either consolidation or ttlSecondsAfterEmpty")
        return self


class Provisioner(Manifest):
    """Which nodes may be launched, as Karpenter's first API has it. A NodePool says the same."""

    api_version: Literal["karpenter.sh/v1alpha5"]
    kind: Literal["Provisioner"]
    spec: ProvisionerSpec
    """Which nodes may be launched."""


def as_node_pool(old: Provisioner) -> Converted:
    """Convert a Provisioner to the NodePool that means the same."""
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
