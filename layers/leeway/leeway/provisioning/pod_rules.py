"""The rules which pods count as waiting for a node, and which need another place after a drain.

Pods must be validated.
"""

from leeway.selection.reading.objects import (
    Document,
    bound_node,
    daemon_of,
    is_finished,
    is_terminating,
    needs_node,
)

DEFAULT_SCHEDULER = "default-scheduler"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


def waits_for_node(pod: Document) -> bool:
    """Whether a node may be launched for a pod, unless the scheduler preempts others for it.

    kube-scheduler binds a pod of the default scheduler as soon as a node holds it. Another
    scheduler may hold pods back on purpose, for example until all pods of a job fit. Its pods count
    only after it has set the condition PodScheduled to False with the reason Unschedulable.
    """
    if not needs_node(pod):
        return False
    scheduler = (pod.get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER
    return scheduler == DEFAULT_SCHEDULER or _was_unschedulable(pod)


def _was_unschedulable(pod: Document) -> bool:
    return any(
        condition.get("type") == "PodScheduled"
        and condition.get("status") == "False"
        and condition.get("reason") == "Unschedulable"
        for condition in (pod.get("status") or {}).get("conditions") or ()
    )


def is_mirror(pod: Document) -> bool:
    """Whether a pod is the mirror pod of a static pod."""
    metadata = pod.get("metadata") or {}
    return MIRROR_ANNOTATION in (metadata.get("annotations") or {})


def needs_another_place(pod: Document) -> bool:
    """Whether a pod will be pending after a drain of its node, by the rules of the drain.

    The drain leaves pods of DaemonSets and static pods. Nothing creates a pod without a controller
    again. The successor of a terminating pod exists already, except in a StatefulSet, which creates
    it after the pod has ended.
    """
    metadata = pod.get("metadata") or {}
    if not bound_node(pod) or is_finished(pod) or daemon_of(pod):
        return False
    if is_mirror(pod):
        return False
    owners = metadata.get("ownerReferences") or ()
    kinds = {owner["kind"] for owner in owners if owner.get("controller")}
    return "StatefulSet" in kinds if is_terminating(pod) else bool(kinds)
