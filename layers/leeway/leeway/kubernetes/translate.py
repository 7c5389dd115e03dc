"""Nodes and Pods: `objects` as the values of `ports`, the patches that mark, exclude and
release a node, and which names may become part of an API path. No I/O."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from leeway.kubernetes.objects import Affinity, Metadata, Owner, PodSpec, Toleration, Volume
from leeway.kubernetes.objects import Node as NodeObject
from leeway.kubernetes.objects import Pod as PodObject
from leeway.ports.kubernetes import Marks
from leeway.ports.kubernetes_objects import (
    RETIRING,
    Condition,
    Controller,
    Node,
    Pod,
    Taint,
    protected_until,
)
from leeway.printable import printable
from leeway.retirement.pods import DAEMONSET, FINISHED_PHASES
from leeway.selection.labels import CAPACITY_TYPE, ON_DEMAND, RESERVATION_LABELS, RESERVED
from leeway.selection.resources import parse

# A field that refers to another object may contain any text. In a URL, `a/status` is a subresource
# and `../pods` another resource; in a field selector, a comma starts another condition.
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_SEGMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]*[A-Za-z0-9])?")
_API_VERSION = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?v[a-z0-9]+")
LONGEST = 253
"""Characters. Source: Kubernetes documentation, "Object Names and IDs"."""


def is_subdomain(name: str) -> bool:
    """Whether a name is a DNS subdomain, as names of workloads and nodes must be."""
    return len(name) <= LONGEST and _SUBDOMAIN.fullmatch(name) is not None


def is_segment(name: str) -> bool:
    """Whether a name is one path segment, as names of all kinds must be. Names of RBAC objects may
    contain colons and capitals."""
    return len(name) <= LONGEST and _SEGMENT.fullmatch(name) is not None


def is_api_version(text: str) -> bool:
    """Whether a text is an API version, with or without a group: `apps/v1`, `v1`."""
    return len(text) <= LONGEST and _API_VERSION.fullmatch(text) is not None


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
ZONE_LABEL = "topology.kubernetes.io/zone"
DEFAULT_GRACE = 30
"""Seconds: the API server's default for a pod's terminationGracePeriodSeconds."""


def to_node(node: NodeObject) -> Node:
    """Translate a Node object."""
    meta = node.metadata or Metadata()
    conditions = (node.status.conditions if node.status else None) or []
    return Node(
        name=meta.name or "",
        uid=meta.uid or "",
        provider_id=(node.spec.provider_id if node.spec else None) or "",
        unschedulable=bool(node.spec and node.spec.unschedulable),
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        labels=dict(meta.labels or {}),
        annotations=dict(meta.annotations or {}),
        taints=tuple(
            Taint(t.key, t.value or "", t.effect)
            for t in (node.spec.taints if node.spec else None) or ()
        ),
        devices=_devices((node.status.allocatable if node.status else None) or {}),
        version=meta.resource_version or "",
        conditions=tuple(
            Condition(c.type, c.status, _in_utc(c.last_transition_time)) for c in conditions
        ),
    )


HUGE_PAGES = "hugepages-"
"""The prefix of huge pages, which a node offers when its kubelet has found them."""


def _devices(allocatable: dict[str, str]) -> dict[str, int]:
    """Return the extended resources and huge pages of a node's allocatable resources.

    Source: Kubernetes documentation, "Resource Management for Pods and Containers": names of
    extended resources are fully qualified and outside kubernetes.io; quantities are integers.
    """
    return {
        name: int(parse(quantity))
        for name, quantity in allocatable.items()
        if name.startswith(HUGE_PAGES)
        or ("/" in name and not name.partition("/")[0].endswith("kubernetes.io"))
    }


def to_pod(pod: PodObject) -> Pod:
    """Translate a Pod object, without a lookup of its controller."""
    meta, spec, status = pod.metadata or Metadata(), pod.spec or PodSpec(), pod.status
    owner = next((o for o in meta.owner_references or [] if o.controller), None)
    volumes = spec.volumes or []
    grace = spec.termination_grace_period_seconds
    return Pod(
        namespace=meta.namespace or "",
        name=meta.name or "",
        uid=meta.uid or "",
        phase=(status.phase if status else None) or "",
        grace=DEFAULT_GRACE if grace is None else grace,
        controller=_controller(owner),
        priority_class=spec.priority_class_name or "",
        mirror=MIRROR_ANNOTATION in (meta.annotations or {}),
        empty_dir=any(v.empty_dir is not None for v in volumes),
        claims=tuple(_claims(meta, volumes)),
        deletion=_in_utc(meta.deletion_timestamp),
        kept_by=_kept_by(meta),
        cordon_toleration=_cordon_toleration(spec.tolerations or []),
        labels=meta.labels or {},
        protected_until=_protected_until(pod),
        bound_to_zone=_bound_to_zone(spec),
        created=_in_utc(meta.creation_timestamp),
    )


def _bound_to_zone(spec: PodSpec) -> str:
    """Return the field of a pod's spec that keeps the pod in its zone; empty if there is none.
    Preferences do not count.

    Source: Kubernetes documentation, "Assigning Pods to Nodes", "Pod Topology Spread Constraints".
    """
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity
    required = nodes.required if nodes else None
    selectors = (required.node_selector_terms if required else None) or []
    expressions = [expr for term in selectors for expr in term.match_expressions or []]
    if ZONE_LABEL in (spec.node_selector or {}) or any(e.key == ZONE_LABEL for e in expressions):
        return "node affinity"
    by_pods = [rule for rule in (affinity.pod_affinity, affinity.pod_anti_affinity) if rule]
    hard = [rule.required or [] for rule in by_pods]
    if any(term.topology_key == ZONE_LABEL for terms in hard for term in terms):
        return "pod affinity"
    spread = spec.topology_spread_constraints or []
    keys = {rule.topology_key for rule in spread if rule.when_unsatisfiable == "DoNotSchedule"}
    return "topology spread" if ZONE_LABEL in keys else ""


def _kept_by(meta: Metadata) -> tuple[str, ...]:
    """Return the finalizers of a pod whose containers have ended.

    The kubelet then deletes the pod with a grace period of zero. The API server stores that even if
    finalizers keep the object. Source: Kubernetes documentation, "Pod Lifecycle".
    """
    done = meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds == 0
    return tuple(meta.finalizers or ()) if done else ()


def _protected_until(pod: PodObject) -> datetime | None:
    """Return the end of a pod's protection. Terminating and finished pods are not protected."""
    meta, status = pod.metadata or Metadata(), pod.status
    if meta.deletion_timestamp or (status and status.phase in FINISHED_PHASES):
        return None
    started = (status.start_time if status else None) or meta.creation_timestamp
    return protected_until(meta.annotations, _in_utc(started))


def _claims(meta: Metadata, volumes: list[Volume]) -> Iterator[str]:
    """Yield the claims of a pod's volumes. The claim of an ephemeral volume is named
    `<pod>-<volume>`."""
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            yield f"{meta.namespace}/{volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"{meta.namespace}/{meta.name}-{volume.name}"


def _controller(owner: Owner | None) -> Controller | None:
    """Translate an owner reference. The API server accepts any text as its kind and name.

    A DaemonSet of another API group, or with an invalid name, can't exist: its pod is drained like
    a pod whose DaemonSet was deleted.
    """
    if owner is None:
        return None
    kind, name = printable(owner.kind), printable(owner.name)
    if owner.kind != DAEMONSET:
        return Controller(kind, name)
    if owner.api_version != "apps/v1":
        problem = f"its owner is a DaemonSet of {printable(owner.api_version)}, not of apps/v1"
        return Controller(kind, name, exists=False, problem=problem)
    if not is_subdomain(owner.name):
        problem = "its owner's name is not a valid DaemonSet name"
        return Controller(kind, name, exists=False, problem=problem)
    return Controller(kind, name)


def _in_utc(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC) if time else None


def _cordon_toleration(tolerations: list[Toleration]) -> str | None:
    """Return a description of the toleration that lets a pod onto a cordoned node, or None."""
    for toleration in tolerations:
        if toleration.effect not in (None, "", "NoSchedule"):
            continue
        if toleration.operator == "Exists" and not toleration.key:
            return "(operator Exists for every key)"
        if toleration.key == UNSCHEDULABLE_TAINT:
            return f"({UNSCHEDULABLE_TAINT})"
    return None


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


def cordoned(node: NodeObject, marks: Marks | None) -> Patch | None:
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


def released(node: NodeObject, attempt: int | None) -> Patch | None:
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


def excluded(node: NodeObject) -> Patch | None:
    """Return the merge patch that excludes a node from load balancers; None if it is excluded."""
    if EXCLUDED_LABEL in _labels(node):
        return None
    return {
        "metadata": {"labels": {EXCLUDED_LABEL: "true"}, "annotations": {EXCLUDED: "true"}},
    }


def set_up(
    node: NodeObject,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    without: Collection[str],
    annotations: Mapping[str, str],
) -> Patch | None:
    """Return the merge patch that adds labels, taints and annotations, and removes the taints with
    the keys `without`; None if nothing would change. A node has one taint for a key and an
    effect."""
    before = _taints(node)
    new = [{"key": one.key, "value": one.value, "effect": one.effect} for one in taints]
    replaced = {(one["key"], one["effect"]) for one in new}
    kept = [
        taint
        for taint in before
        if taint["key"] not in without and (taint["key"], taint["effect"]) not in replaced
    ]
    missing = _missing(labels, _labels(node))
    notes = _missing(annotations, _annotations(node))
    retained = len(kept) == len(before) and not new
    if not missing and not notes and retained:
        return None
    patch: Patch = {"metadata": {"labels": missing}}
    if notes:
        patch["metadata"]["annotations"] = notes
    if not retained:
        patch["spec"] = {"taints": [*kept, *new]}
    return patch


def _missing(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def no_more_reserved(node: NodeObject) -> Patch | None:
    """Return the merge patch that labels a node as on-demand; None if it is not labelled as
    reserved."""
    present = _labels(node)
    if present.get(CAPACITY_TYPE) != RESERVED:
        return None
    removed = {key: None for key in RESERVATION_LABELS if key in present}
    return {"metadata": {"labels": {CAPACITY_TYPE: ON_DEMAND, **removed}}}


def out_of_service(node: NodeObject) -> Patch | None:
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


def _metadata(node: NodeObject) -> Metadata:
    return node.metadata or Metadata()


def _annotations(node: NodeObject) -> dict[str, str]:
    return _metadata(node).annotations or {}


def _labels(node: NodeObject) -> dict[str, str]:
    return _metadata(node).labels or {}


def _taints(node: NodeObject) -> list[dict[str, Any]]:
    return [to_builtins(taint) for taint in (node.spec.taints if node.spec else None) or []]


def _taints_except(node: NodeObject, *keys: str) -> list[dict[str, Any]]:
    return [taint for taint in _taints(node) if taint["key"] not in keys]
