"""Evicts a pod, and completes an eviction that its budget has counted already."""

from leeway.drain.answers import Meaning, read_answer
from leeway.ports.kubernetes import Cluster, ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod, Response

_MAY_BE_GRANTED = frozenset({Meaning.BLOCKED, Meaning.TRANSIENT})


def evict(cluster: Cluster, pod: Pod, grace: int | None) -> Response:
    """Evict a pod; return the API server's answer.

    An API server evicts in two steps: it counts the pod in its budget's status, then it deletes
    the pod. If the client disconnects between the two steps, the disruption is counted and the
    pod still runs: further evictions of it are refused, or count another disruption. Such a pod is
    deleted by its UID.
    """
    response = cluster.evict(pod, grace)
    if read_answer(response).meaning not in _MAY_BE_GRANTED:
        return response
    try:
        granted = cluster.eviction_is_granted(pod)
    except (ClusterUnavailable, ClusterRefused):
        return response
    return cluster.delete(pod, grace) if granted else response
