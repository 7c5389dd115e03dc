"""A Node, or the NodeClaim of one, converted to what a state needs of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leeway.provisioning.cluster_state import ClaimedNode
from leeway.provisioning.node_details import FOREVER, NodeDetails, details_of
from leeway.selection.labels import NODEPOOL
from leeway.selection.pods import ExistingNode
from leeway.selection.reading.cluster_objects import node_without_pods
from leeway.selection.reading.objects import Document, creation_time, is_terminating, name_of
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class KeptNode:
    """A Node without its pods. `created` is its time of creation as the API server writes it, empty
    without one."""

    node: ExistingNode
    instance: str
    created: str
    terminating: bool
    details: NodeDetails


def read_node(document: Document) -> KeptNode:
    """Read a validated Node.

    Raises:
        ValueError: an amount is invalid.
    """
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    instance = _instance(spec.get("providerID"))
    return KeptNode(
        node_without_pods(document),
        instance,
        str(metadata.get("creationTimestamp") or ""),
        is_terminating(document),
        details_of(document, instance),
    )


def read_claimed(document: Document) -> ClaimedNode | None:
    """Read a validated NodeClaim; None before its instance is launched, and while it is deleted.
    Karpenter writes the labels and amounts of the node when it has launched the instance.

    Raises:
        ValueError: its time of creation or an amount is invalid.
    """
    spec, status = document.get("spec") or {}, document.get("status") or {}
    instance = _instance(status.get("providerID"))
    if not instance or is_terminating(document):
        return None
    return ClaimedNode(
        instance,
        creation_time(document),
        node_without_pods(document),
        frozenset(one["key"] for one in spec.get("startupTaints") or ()),
    )


def reduced_node(document: Document) -> KeptNode:
    """Return a Node that can't be read: it counts as terminating, which no pod is planned for. Its
    names are valid, and its other fields may be of any shape."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    instance = _instance(spec.get("providerID"))
    labels = metadata.get("labels")
    named = labels.get(NODEPOOL) if isinstance(labels, Mapping) else None
    pool = named if isinstance(named, str) else ""
    return KeptNode(
        ExistingNode(name_of(document), {}, Resources(), pool=pool),
        instance,
        str(metadata.get("creationTimestamp") or ""),
        terminating=True,
        details=NodeDetails(instance, FOREVER),
    )


def _instance(provider_id: Any) -> str:
    """Return the instance of a provider id, `aws:///ZONE/INSTANCE`; empty for other providers."""
    text = str(provider_id or "")
    return text.rsplit("/", 1)[-1] if text.startswith("aws://") else ""
