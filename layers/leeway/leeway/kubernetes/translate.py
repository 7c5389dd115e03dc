"""Translates lightkube's objects into the values of `ports`."""

from collections.abc import Iterator
from datetime import UTC, datetime

from lightkube.models.core_v1 import Affinity, PodSpec, Toleration, Volume
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import Node as NodeObject
from lightkube.resources.core_v1 import Pod as PodObject
from lightkube.utils.quantity import parse_quantity

from leeway.durations import parse_duration
from leeway.kubernetes.names import is_subdomain
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Controller, Node, Pod, Taint
from leeway.printable import printable
from leeway.retirement.pods import DAEMONSET, FINISHED_PHASES

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
ZONE_LABEL = "topology.kubernetes.io/zone"
DEFAULT_GRACE = 30
"""Seconds: the API server's default for a pod's terminationGracePeriodSeconds."""


def to_node(node: NodeObject) -> Node:
    """Translate a Node object."""
    meta = node.metadata or ObjectMeta()
    conditions = (node.status.conditions if node.status else None) or []
    return Node(
        name=meta.name or "",
        uid=meta.uid or "",
        provider_id=(node.spec.providerID if node.spec else None) or "",
        unschedulable=bool(node.spec and node.spec.unschedulable),
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        labels=dict(meta.labels or {}),
        annotations=dict(meta.annotations or {}),
        taints=tuple(
            Taint(t.key, t.value or "", t.effect)
            for t in (node.spec.taints if node.spec else None) or ()
        ),
        devices=_devices((node.status.allocatable if node.status else None) or {}),
        version=meta.resourceVersion or "",
    )


def _devices(allocatable: dict[str, str]) -> dict[str, int]:
    """Return the extended resources of a node's allocatable resources.

    Source: Kubernetes documentation, "Resource Management for Pods and Containers": names of
    extended resources are fully qualified and outside kubernetes.io; quantities are integers.
    """
    return {
        name: int(parse_quantity(quantity) or 0)
        for name, quantity in allocatable.items()
        if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    }


def to_pod(pod: PodObject) -> Pod:
    """Translate a Pod object, without a lookup of its controller."""
    meta, spec, status = pod.metadata or ObjectMeta(), pod.spec or PodSpec([]), pod.status
    owner = next((o for o in meta.ownerReferences or [] if o.controller), None)
    volumes = spec.volumes or []
    grace = spec.terminationGracePeriodSeconds
    return Pod(
        namespace=meta.namespace or "",
        name=meta.name or "",
        uid=meta.uid or "",
        phase=(status.phase if status else None) or "",
        grace=DEFAULT_GRACE if grace is None else grace,
        controller=_controller(owner),
        priority_class=spec.priorityClassName or "",
        mirror=MIRROR_ANNOTATION in (meta.annotations or {}),
        empty_dir=any(v.emptyDir is not None for v in volumes),
        claims=tuple(_claims(meta, volumes)),
        deletion=_in_utc(meta.deletionTimestamp),
        kept_by=_kept_by(meta),
        cordon_toleration=_cordon_toleration(spec.tolerations or []),
        labels=meta.labels or {},
        protected_until=_protected_until(pod),
        bound_to_zone=_bound_to_zone(spec),
        created=_in_utc(meta.creationTimestamp),
    )


def _bound_to_zone(spec: PodSpec) -> str:
    """Return the field of a pod's spec that keeps the pod in its zone; empty if there is none.
    Preferences do not count.

    Source: Kubernetes documentation, "Assigning Pods to Nodes", "Pod Topology Spread Constraints".
    """
    affinity = spec.affinity or Affinity()
    nodes = affinity.nodeAffinity
    required = nodes.requiredDuringSchedulingIgnoredDuringExecution if nodes else None
    selectors = required.nodeSelectorTerms if required else []
    expressions = [expr for term in selectors for expr in term.matchExpressions or []]
    if ZONE_LABEL in (spec.nodeSelector or {}) or any(e.key == ZONE_LABEL for e in expressions):
        return "node affinity"
    by_pods = [rule for rule in (affinity.podAffinity, affinity.podAntiAffinity) if rule]
    hard = [rule.requiredDuringSchedulingIgnoredDuringExecution or [] for rule in by_pods]
    if any(term.topologyKey == ZONE_LABEL for terms in hard for term in terms):
        return "pod affinity"
    spread = spec.topologySpreadConstraints or []
    keys = {rule.topologyKey for rule in spread if rule.whenUnsatisfiable == "DoNotSchedule"}
    return "topology spread" if ZONE_LABEL in keys else ""


def _kept_by(meta: ObjectMeta) -> tuple[str, ...]:
    """Return the finalizers of a pod whose containers have ended.

    The kubelet then deletes the pod with a grace period of zero. The API server stores that even if
    finalizers keep the object. Source: Kubernetes documentation, "Pod Lifecycle".
    """
    done = meta.deletionTimestamp is not None and meta.deletionGracePeriodSeconds == 0
    return tuple(meta.finalizers or ()) if done else ()


def _protected_until(pod: PodObject) -> datetime | None:
    """Return the end of a pod's protection by its do-not-disrupt annotation: `true` has no end, and
    a duration counts from the pod's start.

    Terminating and finished pods are not protected. Source: Karpenter documentation, "Disruption".
    """
    meta, status = pod.metadata or ObjectMeta(), pod.status
    value = (meta.annotations or {}).get(DO_NOT_DISRUPT, "")
    if not value or meta.deletionTimestamp or (status and status.phase in FINISHED_PHASES):
        return None
    if value == "true":
        return datetime.max.replace(tzinfo=UTC)
    try:
        protected_for = parse_duration(value)
    except ValueError:
        return None
    started = _in_utc((status.startTime if status else None) or meta.creationTimestamp)
    try:
        return started + protected_for if started else None
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _claims(meta: ObjectMeta, volumes: list[Volume]) -> Iterator[str]:
    """Yield the claims of a pod's volumes. The claim of an ephemeral volume is named
    `<pod>-<volume>`."""
    for volume in volumes:
        if volume.persistentVolumeClaim is not None:
            yield f"{meta.namespace}/{volume.persistentVolumeClaim.claimName}"
        elif volume.ephemeral is not None:
            yield f"{meta.namespace}/{meta.name}-{volume.name}"


def _controller(owner: OwnerReference | None) -> Controller | None:
    """Translate an owner reference. The API server accepts any text as its kind and name.

    A DaemonSet of another API group, or with an invalid name, can't exist: its pod is drained like
    a pod whose DaemonSet was deleted.
    """
    if owner is None:
        return None
    kind, name = printable(owner.kind), printable(owner.name)
    if owner.kind != DAEMONSET:
        return Controller(kind, name)
    if owner.apiVersion != "apps/v1":
        problem = f"its owner is a DaemonSet of {printable(owner.apiVersion)}, not of apps/v1"
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
