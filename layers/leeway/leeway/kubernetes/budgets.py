"""Whether a label selector selects an object."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from urllib.parse import quote

from leeway.kubernetes.connection import Connection
from leeway.kubernetes.list_watch import list_objects
from leeway.kubernetes.objects import BUDGETS, Budget, LabelSelector, Requirement
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes_objects import Pod


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Match labels. An empty selector selects everything, a missing one nothing.

    Source: Kubernetes API, `LabelSelector` and `PodDisruptionBudgetSpec.selector`.
    """
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return equal and all(_matches(one, labels) for one in selector.match_expressions or ())


def _matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in (requirement.values or ())
        case "NotIn":
            return value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


DELETION_TIMEOUT = timedelta(minutes=2)
"""How long a budget's status names a pod that was not deleted. Source: Kubernetes, disruption
controller, DeletionTimeout."""

CACHE_SECONDS = 2.0
"""How long the budgets of a namespace are cached."""

LIST_SECONDS = 3.0


class Budgets:
    """The budgets of one cluster, with a cache. Safe to use from several threads.

    `now` returns the time of the API server's clock.
    """

    def __init__(self, connection: Connection, now: Callable[[], datetime]) -> None:
        self._connection = connection
        self._now = now
        self._cache: dict[str, tuple[float, list[Budget]]] = {}
        self._listing = threading.Lock()

    def names_for(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the budgets whose selectors match the pod."""
        budgets = self._cached(pod.namespace) or self._list(pod.namespace)
        return tuple(name for name, _ in _selecting(budgets, pod))

    def has_granted(self, pod: Pod) -> bool:
        """Whether the pod's budget counts it as disrupted although it was not deleted.

        Also False while another thread lists budgets: a later pass repeats the check. A budget
        names pods without UIDs: an entry older than the pod belongs to an earlier pod of this name,
        for example of a StatefulSet, and does not count.
        """
        budgets = self._cached(pod.namespace)
        if budgets is None and self._listing.acquire(blocking=False):
            try:
                budgets = self._list(pod.namespace)
            finally:
                self._listing.release()
        selecting = list(_selecting(budgets or [], pod))
        if len(selecting) != 1 or pod.created is None:
            return False
        ((_, budget),) = selecting
        disrupted = (budget.status and budget.status.disrupted_pods) or {}
        at = disrupted.get(pod.name)
        return at is not None and pod.created < at and self._now() - at < DELETION_TIMEOUT

    def _cached(self, namespace: str) -> list[Budget] | None:
        listed_at, budgets = self._cache.get(namespace, (0.0, []))
        is_fresh = listed_at and time.monotonic() - listed_at < CACHE_SECONDS
        return budgets if is_fresh else None

    def _list(self, namespace: str) -> list[Budget]:
        listed_at = time.monotonic()
        path = f"/apis/policy/v1/namespaces/{quote(namespace, safe='')}"
        with within(LIST_SECONDS):
            budgets = self._connection.call(
                lambda c: list_objects(c, f"{path}/poddisruptionbudgets", BUDGETS)
            )
        self._cache[namespace] = (listed_at, budgets)
        return budgets


def _selecting(budgets: list[Budget], pod: Pod) -> Iterator[tuple[str, Budget]]:
    for budget in budgets:
        name = budget.metadata and budget.metadata.name
        if name and budget.spec and selects(budget.spec.selector, pod.labels):
            yield name, budget
