"""The Eviction API.

Rules: the `pods/eviction` subresource of policy/v1. It reads the pod and its budget, writes the
budget's status at the version that it has read, and then deletes the pod. Every other write of the
budget in between, by an eviction or by the disruption controller, is a conflict: the eviction waits
half a second and reads the budget again, up to twenty times. The preconditions of the request are
those of the deletion: an eviction with a wrong UID has used a disruption when it is refused. A
client that disconnects cancels the deletion, but not the write of the budget: the pod stays in
`status.disruptedPods` for two minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from leeway_sandbox.kubernetes import errors, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.disruption import Disruption
from leeway_sandbox.kubernetes.deletion import check_preconditions, delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    condition,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
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
_TRIES, _PAUSE_SECONDS, _JITTER = 20, 0.5, 0.1  # of a conflicting write: EvictionsRetry


class Evictions:
    """Evicts the pods of one cluster."""

    def __init__(self, cluster: Cluster, disruption: Disruption) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._disruption = disruption
        self._granting: dict[asyncio.Task[None], str] = {}
        self._posts: list[str] = []

    def is_under_way(self, uid: str) -> bool:
        """Whether an eviction of this pod is under way, or was left by its client while the server
        still writes the budget."""
        return uid in self._posts or uid in self._granting.values()

    async def evict(self, namespace: str, name: str, eviction: Object, hold: float) -> Object:
        """Evict a pod; return the `Status` of a granted eviction. `hold` are the seconds between
        the write of the budget and the deletion of the pod.

        404 without the pod, 409 if a precondition fails or the conflicts of the budget do not end,
        429 if the budget blocks, 500 if several budgets match the pod.
        """
        if (eviction.get("metadata") or {}).get("name") != name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options = eviction.get("deleteOptions") or {}
        pod = self._store.read(registry.POD, namespace, name)
        self._posts.append(uid_of(pod))
        try:
            return await self._evict(pod, options, hold)
        finally:
            self._posts.remove(uid_of(pod))

    async def _evict(self, pod: Object, options: Object, hold: float) -> Object:
        namespace, name = namespace_of(pod), name_of(pod)
        if _is_free(pod):
            return await self._retry(self._delete, namespace, name, options)
        budgets = self._disruption.budgets_of(pod)
        if len(budgets) > 1:
            raise errors.ApiError(500, None, _SEVERAL)
        if budgets:
            # A task of its own: a client that disconnects cancels only the wait for it.
            granting = self._retry(self._grant, pod, name_of(budgets[0]), options)
            task = asyncio.create_task(granting)
            self._granting[task] = uid_of(pod)
            task.add_done_callback(self._granted)
            await asyncio.shield(task)
        await asyncio.sleep(hold)
        return await self._delete(namespace, name, options)

    def _granted(self, task: asyncio.Task[None]) -> None:
        del self._granting[task]
        if not task.cancelled():
            task.exception()  # nobody else reads it if the client has disconnected

    async def _retry[*Given, Result](
        self, attempt: Callable[[*Given], Awaitable[Result]], *given: *Given
    ) -> Result:
        tries = 1
        while True:
            try:
                return await attempt(*given)
            except errors.ApiError as error:
                if error.code != 409 or tries == _TRIES:
                    raise
            tries += 1
            await asyncio.sleep(_PAUSE_SECONDS * (1 + _JITTER * self._cluster.random.random()))

    async def _grant(self, pod: Object, name: str, options: Object) -> None:
        """Count the pod in its budget; 409 if the budget has changed since it was read."""
        read = self._store.read(registry.BUDGET, namespace_of(pod), name)
        taken = _ask_budget(read, pod, dry_run=bool(options.get("dryRun")))
        if taken is None:
            return
        await asyncio.sleep(self._cluster.jitter(self._cluster.settings.budget_write))
        if self._store.read(registry.BUDGET, namespace_of(pod), name) is not read:
            raise errors.conflict(registry.BUDGET, name)
        self._store.amend(registry.BUDGET, read, status=taken)

    async def _delete(self, namespace: str, name: str, options: Object) -> Object:
        pod = self._store.read(registry.POD, namespace, name)
        check_preconditions(registry.POD, pod, options)
        delete(self._cluster, registry.POD, pod, options, via="eviction")
        return _GRANTED


def _is_free(pod: Object) -> bool:
    """Whether no budget applies: the pod has finished, has not started, or is terminating."""
    return is_terminating(pod) or pod["status"].get("phase") in _PHASES_WITHOUT_BUDGET


def _ask_budget(budget: Object, pod: Object, *, dry_run: bool) -> Object | None:
    """Return the fields of the budget's status that the eviction writes; None if it writes none."""
    status = budget["status"]
    if not is_ready(pod):
        policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        is_healthy = status["currentHealthy"] >= status["desiredHealthy"] > 0
        if policy == "AlwaysAllow" or is_healthy:
            return None
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        why = f"The disruption budget {name_of(budget)} is still being processed by the server."
        raise _blocked(why, retry_after=_BUDGET_LAGS_SECONDS)
    if status["disruptionsAllowed"] <= 0:
        raise _blocked(_why_blocked(budget))
    if dry_run:
        return None
    disrupted = {**status.get("disruptedPods", {}), name_of(pod): timestamp()}
    allowed = status["disruptionsAllowed"] - 1
    taken = {"disruptionsAllowed": allowed, "disruptedPods": disrupted}
    if allowed == 0:
        taken["conditions"] = [
            {**one, "status": "False", "reason": "InsufficientPods"}
            if one["type"] == "DisruptionAllowed"
            else one
            for one in status.get("conditions", ())
        ]
    return taken


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
