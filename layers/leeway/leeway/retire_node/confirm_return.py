"""Confirms, right after the cordon, that a node may be given back: by a fresh read of its pods.

The decision is some seconds old. Since then, a pod may have come, or may not be disrupted any more.
"""

from collections.abc import Sequence
from datetime import datetime

from leeway.drain.decide_pod import DAEMONSET, FINISHED_PHASES, PodAction, decide_pod
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Node, Pod
from leeway.reasons import Reason
from leeway.retire_node.reasons import NODE_GOT_PODS, POD_NOT_EVICTABLE
from leeway.retirement.reasons import NODE_PROTECTED
from leeway.retirement.record import ReturnTerms

MOST_TRIED = 100
"""Pods of a node whose eviction is tried; a node of EC2 seldom has more."""


def confirm_return(
    cluster: Cluster, node: Node, terms: ReturnTerms, now: datetime
) -> Reason | None:
    """Return why a cordoned node is kept; None if nothing keeps it.

    Raises:
        ClusterUnavailable, ClusterRefused: the pods cannot be read.
    """
    pods = [one for one in cluster.pods_on(node.name) if _counts(one, now)]
    if reason := why_kept(node, pods, terms, now):
        return reason
    if terms.forced:
        return None
    for pod in pods[:MOST_TRIED]:
        answer = cluster.evict(pod, None, dry_run=True)
        if answer.status not in {200, 201, 404, 409}:
            problem = answer.message or f"status {answer.status}"
            return POD_NOT_EVICTABLE(pod=pod.key, node=node.name, problem=problem)
    return None


def why_kept(node: Node, pods: Sequence[Pod], terms: ReturnTerms, now: datetime) -> Reason | None:
    """Decide by the pods that keep the node from being empty; terminating pods are among them."""
    if terms.pods is not None and len(pods) > terms.pods:
        return NODE_GOT_PODS(node=node.name, pods=len(pods), expected=terms.pods, cause=terms.cause)
    if terms.forced:
        return None
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        return NODE_PROTECTED(protections=f"node {node.name} has the annotation {DO_NOT_DISRUPT}")
    for pod in pods:
        if pod.protected_until is not None and now < pod.protected_until:
            return NODE_PROTECTED(protections=f"pod {pod.key} has the annotation {DO_NOT_DISRUPT}")
    return None


def _counts(pod: Pod, now: datetime) -> bool:
    of_daemonset = pod.controller is not None and pod.controller.kind == DAEMONSET
    leaves = decide_pod(pod, now).action is PodAction.LEAVE
    return not (of_daemonset or leaves or pod.phase in FINISHED_PHASES)
