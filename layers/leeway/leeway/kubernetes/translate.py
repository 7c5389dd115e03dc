"""From lightkube's objects to Leeway's own values."""

from collections.abc import Iterator
from datetime import UTC, datetime

from lightkube.models.core_v1 import Affinity, PodSpec, Toleration, Volume
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import Node as NodeObject
from lightkube.resources.core_v1 import Pod as PodObject
from lightkube.utils.quantity import parse_quantity

from leeway.drain.decide_pod import DAEMONSET, FINISHED_PHASES
from leeway.durations import parse_duration
from leeway.kubernetes.names import is_subdomain
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Controller, Node, Pod, Taint
from leeway.printable import printable

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
ZONE_LABEL = "topology.kubernetes.io/zone"
DEFAULT_GRACE = 30
"""Seconds, where a pod's spec does not say; the API server's own default."""


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
    """Return the extended resources among what a node has to give.

    Source: Kubernetes documentation, "Resource Management for Pods and Containers": their names
    are fully qualified and outside of kubernetes.io, their quantities whole numbers.
    """
    return {
        name: int(parse_quantity(quantity) or 0)
        for name, quantity in allocatable.items()
        if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    }


def to_pod(pod: PodObject) -> Pod:
    """Translate a Pod object; whether its controller still exists is not looked up here."""
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
    """Say by what a pod's spec keeps it in the zone where it runs. What is only preferred does not.

    Source: Kubernetes documentation, "Assigning Pods to Nodes", "Pod Topology Spread Constraints".
    """
    affinity = spec.affinity or Affinity()
    nodes = affinity.nodeAffinity
    required = nodes.requiredDuringSchedulingIgnoredDuringExecution if nodes else None
    selectors = required.nodeSelectorTerms if required else []
    terms = [one for term in selectors for one in term.matchExpressions or []]
    if ZONE_LABEL in (spec.nodeSelector or {}) or any(one.key == ZONE_LABEL for one in terms):
        return "node affinity"
    by_pods = [one for one in (affinity.podAffinity, affinity.podAntiAffinity) if one]
    hard = [one.requiredDuringSchedulingIgnoredDuringExecution or [] for one in by_pods]
    if any(term.topologyKey == ZONE_LABEL for terms_of in hard for term in terms_of):
        return "pod affinity"
    spread = spec.topologySpreadConstraints or []
    keys = {one.topologyKey for one in spread if one.whenUnsatisfiable == "DoNotSchedule"}
    return "topology spread" if ZONE_LABEL in keys else ""


def _kept_by(meta: ObjectMeta) -> tuple[str, ...]:
    """Return the finalizers of a pod that its kubelet is done with.

    A kubelet whose pod has ended deletes it with a grace of zero, which the API server writes down
    even where finalizers keep the object. Source: Kubernetes documentation, "Pod Lifecycle".
    """
    done = meta.deletionTimestamp is not None and meta.deletionGracePeriodSeconds == 0
    return tuple(meta.finalizers or ()) if done else ()


def _protected_until(pod: PodObject) -> datetime | None:
    """Read until when a pod asks not to be disrupted: for good, or for a while from its start.

    A pod that ends or has ended no longer does. Source: Karpenter documentation, "Disruption".
    """
    meta, status = pod.metadata or ObjectMeta(), pod.status
    said = (meta.annotations or {}).get(DO_NOT_DISRUPT, "")
    if not said or meta.deletionTimestamp or (status and status.phase in FINISHED_PHASES):
        return None
    if said == "true":
        return datetime.max.replace(tzinfo=UTC)
    try:
        protected_for = parse_duration(said)
    except ValueError:
        return None
    started = _in_utc((status.startTime if status else None) or meta.creationTimestamp)
    try:
        return started + protected_for if started else None
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _claims(meta: ObjectMeta, volumes: list[Volume]) -> Iterator[str]:
    """Yield the claims behind a pod's volumes; an ephemeral volume's is named after both."""
    for volume in volumes:
        if volume.persistentVolumeClaim is not None:
            yield f"{meta.namespace}/{volume.persistentVolumeClaim.claimName}"
        elif volume.ephemeral is not None:
            yield f"{meta.namespace}/{meta.name}-{volume.name}"


def _controller(owner: OwnerReference | None) -> Controller | None:
    """Read an owner, whose kind and name the API server takes as any text.

    A DaemonSet that is none of apps/v1, or has a name that no object can have, is not there to look
    up: its pod is drained like one whose DaemonSet is gone.
    """
    if owner is None:
        return None
    kind, name = printable(owner.kind), printable(owner.name)
    if owner.kind != DAEMONSET:
        return Controller(kind, name)
    if owner.apiVersion != "apps/v1":
        said = f"its owner is of {printable(owner.apiVersion)}, and no DaemonSet of apps/v1"
        return Controller(kind, name, exists=False, problem=said)
    if not is_subdomain(owner.name):
        return Controller(
            kind, name, exists=False, problem="no DaemonSet can have the owner's name"
        )
    return Controller(kind, name)


def _in_utc(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC) if time else None


def _cordon_toleration(tolerations: list[Toleration]) -> str | None:
    """Return the toleration, in words, by which a pod is put on a cordoned node; None if none."""
    for toleration in tolerations:
        if toleration.effect not in (None, "", "NoSchedule"):
            continue
        if toleration.operator == "Exists" and not toleration.key:
            return "(operator Exists for every key)"
        if toleration.key == UNSCHEDULABLE_TAINT:
            return f"({UNSCHEDULABLE_TAINT})"
    return None
