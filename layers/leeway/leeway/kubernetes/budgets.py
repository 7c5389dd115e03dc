"""PodDisruptionBudgets: which of them guard a pod, and whether one has granted its eviction."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from lightkube.resources.policy_v1 import PodDisruptionBudget

from leeway.kubernetes.connection import Connection
from leeway.kubernetes.label_selectors import selects
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes_objects import Pod

GRANT_HOLDS = timedelta(minutes=2)
"""How long a budget's status names a pod that was not deleted. Source: Kubernetes' disruption
controller, DeletionTimeout."""

KNOWN_FOR = 2.0
"""Seconds for which a namespace's budgets are not listed again."""

LIST_SECONDS = 3.0


class Budgets:
    """The budgets of one cluster. Safe to use from several threads.

    `now` tells the time of the API server's own clock.
    """

    def __init__(self, connection: Connection, now: Callable[[], datetime]) -> None:
        self._connection = connection
        self._now = now
        self._known: dict[str, tuple[float, list[PodDisruptionBudget]]] = {}
        self._listing = threading.Lock()

    def names_for(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the budgets whose selectors match the pod."""
        budgets = self._young(pod.namespace) or self._list(pod.namespace)
        return tuple(name for name, _ in _guarding(budgets, pod))

    def has_granted(self, pod: Pod) -> bool:
        """Whether the pod's budget counts it as evicted although it was not deleted.

        False as well while another thread lists budgets: a later try asks again. A budget names
        pods and no UIDs: what it says of an earlier pod of the name, as StatefulSets make them,
        does not count.
        """
        budgets = self._young(pod.namespace)
        if budgets is None and self._listing.acquire(blocking=False):
            try:
                budgets = self._list(pod.namespace)
            finally:
                self._listing.release()
        guarding = list(_guarding(budgets or [], pod))
        if len(guarding) != 1 or pod.created is None:
            return False
        ((_, budget),) = guarding
        granted = (budget.status and budget.status.disruptedPods) or {}
        at = _in_utc(granted.get(pod.name))
        return at is not None and pod.created < at and self._now() - at < GRANT_HOLDS

    def _young(self, namespace: str) -> list[PodDisruptionBudget] | None:
        at, budgets = self._known.get(namespace, (0.0, []))
        return budgets if at and time.monotonic() - at < KNOWN_FOR else None

    def _list(self, namespace: str) -> list[PodDisruptionBudget]:
        asked_at = time.monotonic()
        with within(LIST_SECONDS):
            budgets = self._connection.call(
                lambda c: list(c.typed.list(PodDisruptionBudget, namespace=namespace))
            )
        self._known[namespace] = (asked_at, budgets)
        return budgets


def _guarding(
    budgets: list[PodDisruptionBudget], pod: Pod
) -> Iterator[tuple[str, PodDisruptionBudget]]:
    for one in budgets:
        name = one.metadata and one.metadata.name
        if name and one.spec and selects(one.spec.selector, pod.labels):
            yield name, one


def _in_utc(moment: object) -> datetime | None:
    """Read a time of a map, which lightkube leaves as the API server writes it."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return moment.astimezone(UTC) if isinstance(moment, datetime) else None
