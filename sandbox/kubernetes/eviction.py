"""The Eviction API.

Rules: the `pods/eviction` subresource of policy/v1. The check and the decrement of the allowed
disruptions are one atomic step, so concurrent evictions never exceed the budget. From then on the
status of the budget names the pod. The deletion is a second step. A client that disconnects between
the two steps leaves the pod in `status.disruptedPods` for two minutes.
"""

from __future__ import annotations

from sandbox.kubernetes import errors, registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.controllers.disruption import Disruption
from sandbox.kubernetes.deletion import check_preconditions, delete
from sandbox.kubernetes.objects import (
    Object,
    condition,
    is_ready,
    is_terminating,
    name_of,
    timestamp,
    uid_of,
)

_GRANTED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
_PHASES_WITHOUT_BUDGET = ("Succeeded", "Failed", "Pending")
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_BUDGET_LAGS_SECONDS = 10


def grant(
    cluster: Cluster, disruption: Disruption, namespace: str, name: str, eviction: Object
) -> None:
    """Do the first step of an eviction: check and decrement the pod's budget.

    404 without the pod, 409 if a precondition fails, 429 if the budget blocks, 500 if several
    budgets match the pod.
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = eviction.get("deleteOptions") or {}
    pod = cluster.store.read(registry.POD, namespace, name)
    _check_preconditions(pod, options)
    if not _is_free(pod):
        budgets = disruption.budgets_of(pod)
        if len(budgets) > 1:
            raise errors.ApiError(500, None, _SEVERAL)
        if budgets:
            _ask_budget(cluster, budgets[0], pod, dry_run=bool(options.get("dryRun")))


def complete(cluster: Cluster, namespace: str, name: str, eviction: Object) -> Object:
    """Do the second step: delete the pod; return the `Status` of a granted eviction."""
    options = eviction.get("deleteOptions") or {}
    pod = cluster.store.read(registry.POD, namespace, name)
    _check_preconditions(pod, options)
    delete(cluster, registry.POD, pod, options, via="eviction")
    return _GRANTED


def _check_preconditions(pod: Object, options: Object) -> None:
    uid = (options.get("preconditions") or {}).get("uid")
    if uid is not None and uid != uid_of(pod):
        message = (
            f'Operation cannot be fulfilled on Pod "{name_of(pod)}": the UID in the precondition '
            f"({uid}) does not match the UID in record ({uid_of(pod)}). The object might have "
            "been deleted and then recreated"
        )
        details = {"name": name_of(pod), "kind": "Pod"}
        raise errors.ApiError(409, "Conflict", message, details)
    check_preconditions(registry.POD, pod, options)


def _is_free(pod: Object) -> bool:
    """Whether no budget applies: the pod has finished, has not started, or is terminating."""
    return is_terminating(pod) or pod["status"].get("phase") in _PHASES_WITHOUT_BUDGET


def _ask_budget(cluster: Cluster, budget: Object, pod: Object, *, dry_run: bool) -> None:
    status = budget["status"]
    if not is_ready(pod):
        policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        is_healthy = status["currentHealthy"] >= status["desiredHealthy"] > 0
        if policy == "AlwaysAllow" or is_healthy:
            return
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        why = f"The disruption budget {name_of(budget)} is still being processed by the server."
        raise _blocked(why, retry_after=_BUDGET_LAGS_SECONDS)
    if status["disruptionsAllowed"] <= 0:
        raise _blocked(_why_blocked(budget))
    if dry_run:
        return
    disrupted = {**status.get("disruptedPods", {}), name_of(pod): timestamp()}
    allowed = status["disruptionsAllowed"] - 1
    taken = {"disruptionsAllowed": allowed, "disruptedPods": disrupted}
    if allowed == 0:
        conditions = [
            {**one, "status": "False", "reason": "InsufficientPods"}
            if one["type"] == "DisruptionAllowed"
            else one
            for one in status.get("conditions", ())
        ]
        taken["conditions"] = conditions
    cluster.store.amend(registry.BUDGET, budget, status=taken)


def _why_blocked(budget: Object) -> str:
    status, name = budget["status"], name_of(budget)
    allowed = condition(budget, "DisruptionAllowed")
    if allowed is not None and allowed["reason"] == "SyncFailed":
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it "
            f"failed sync: {allowed['message']}"
        )
    return (
        f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods and has "
        f"{status['currentHealthy']} currently"
    )


def _blocked(why: str, retry_after: int = 0) -> errors.ApiError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if not retry_after:
        return errors.ApiError(429, "TooManyRequests", _BLOCKED, details)
    details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)}
    return errors.ApiError(429, "TooManyRequests", _BLOCKED, details, headers)
