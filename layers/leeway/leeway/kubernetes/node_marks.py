"""Patches of Node objects: they mark, exclude and release a node. No I/O."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from leeway.ports.kubernetes import Marks
from leeway.ports.kubernetes_objects import RETIRING, Taint

ATTEMPT = "leeway.sh/attempt"
DEADLINE = "leeway.sh/deadline"
CORDONED = "leeway.sh/cordoned"
EXCLUDED = "leeway.sh/excluded"
TAINTED_OUT_OF_SERVICE = "leeway.sh/out-of-service"
"""Annotations. The last three record that Leeway set the cordon, the label for load balancers and
the out-of-service taint: a release removes only those, not the ones of other users."""

ANNOTATIONS = (ATTEMPT, DEADLINE, CORDONED, EXCLUDED, TAINTED_OUT_OF_SERVICE)

EXCLUDED_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Source: Kubernetes documentation, "Well-Known Labels, Annotations and Taints"."""

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NODE_SHUTDOWN = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
"""Source: Kubernetes documentation, "Non-graceful node shutdown handling"."""

type Patch = dict[str, Any]


def cordoned(node: Node, marks: Marks | None) -> Patch | None:
    """Return the merge patch that cordons and marks a node; None if nothing would change."""
    already = bool(node.spec and node.spec.unschedulable)
    if marks is None:
        return None if already else {"spec": {"unschedulable": True}}
    taint = {"key": RETIRING, "value": marks.kind, "effect": "NoSchedule"}
    annotations = {ATTEMPT: str(marks.attempt), DEADLINE: marks.deadline}
    if not already:
        annotations[CORDONED] = "true"
    present = _annotations(node)
    unchanged = (
        taint in _taints(node)
        and _labels(node).get(RETIRING) == marks.kind
        and all(present.get(key) == value for key, value in annotations.items())
    )
    if already and unchanged:
        return None
    return {
        "spec": {"unschedulable": True, "taints": [*_taints_except(node, RETIRING), taint]},
        "metadata": {"labels": {RETIRING: marks.kind}, "annotations": annotations},
    }


def released(node: Node, attempt: int | None) -> Patch | None:
    """Return the merge patch that removes Leeway's changes; None if there are none, or if they are
    of a later attempt."""
    annotations = _annotations(node)
    ours = [key for key in ANNOTATIONS if key in annotations]
    tainted = any(taint["key"] == RETIRING for taint in _taints(node))
    if not (ours or tainted or RETIRING in _labels(node)):
        return None
    if attempt is not None and _attempt(annotations) > attempt:
        return None
    labels: dict[str, None] = {RETIRING: None}
    if EXCLUDED in annotations:
        labels[EXCLUDED_LABEL] = None
    taints = {RETIRING, OUT_OF_SERVICE} if TAINTED_OUT_OF_SERVICE in annotations else {RETIRING}
    spec: Patch = {"taints": _taints_except(node, *taints)}
    if CORDONED in annotations:
        spec["unschedulable"] = None
    return {
        "spec": spec,
        "metadata": {"labels": labels, "annotations": dict.fromkeys(ours)},
    }


def excluded(node: Node) -> Patch | None:
    """Return the merge patch that excludes a node from load balancers; None if it is excluded."""
    if EXCLUDED_LABEL in _labels(node):
        return None
    return {
        "metadata": {"labels": {EXCLUDED_LABEL: "true"}, "annotations": {EXCLUDED: "true"}},
    }


def set_up(
    node: Node, labels: Mapping[str, str], taints: Sequence[Taint], without: Collection[str]
) -> Patch | None:
    """Return the merge patch that adds labels and taints, and removes the taints with the keys
    `without`; None if nothing would change. A node has one taint for a key and an effect."""
    before = _taints(node)
    new = [{"key": one.key, "value": one.value, "effect": one.effect} for one in taints]
    replaced = {(one["key"], one["effect"]) for one in new}
    kept = [
        taint
        for taint in before
        if taint["key"] not in without and (taint["key"], taint["effect"]) not in replaced
    ]
    present = _labels(node)
    missing = {key: value for key, value in labels.items() if present.get(key) != value}
    retained = len(kept) == len(before) and not new
    if not missing and retained:
        return None
    patch: Patch = {"metadata": {"labels": missing}}
    if not retained:
        patch["spec"] = {"taints": [*kept, *new]}
    return patch


def out_of_service(node: Node) -> Patch | None:
    """Return the merge patch that taints a node as out of service; None if it has the taint."""
    if any(taint["key"] == OUT_OF_SERVICE for taint in _taints(node)):
        return None
    return {
        "spec": {"taints": [*_taints(node), NODE_SHUTDOWN]},
        "metadata": {"annotations": {TAINTED_OUT_OF_SERVICE: "true"}},
    }


def _attempt(annotations: Mapping[str, str]) -> int:
    written = annotations.get(ATTEMPT, "")
    return int(written) if written.isdecimal() else 0


def _metadata(node: Node) -> ObjectMeta:
    return node.metadata or ObjectMeta()


def _annotations(node: Node) -> dict[str, str]:
    return _metadata(node).annotations or {}


def _labels(node: Node) -> dict[str, str]:
    return _metadata(node).labels or {}


def _taints(node: Node) -> list[dict[str, Any]]:
    return [taint.to_dict() for taint in (node.spec.taints if node.spec else None) or []]


def _taints_except(node: Node, *keys: str) -> list[dict[str, Any]]:
    return [taint for taint in _taints(node) if taint["key"] not in keys]
