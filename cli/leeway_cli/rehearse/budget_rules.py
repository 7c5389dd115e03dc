"""PodDisruptionBudgets → how many pods must stay healthy.

Source: Kubernetes documentation, "Specifying a Disruption Budget for your Application": percentages
are of the replicas of the pods' owners, and round up.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import cast

from leeway.kubernetes.budgets import selects
from leeway.selection.reading.objects import Document, name_of, namespace_of
from lightkube.models.meta_v1 import LabelSelector

from leeway_cli.rehearse.cluster import Budget

_PERCENT = re.compile(r"(\d{1,5})%", re.ASCII)

type Selects = Callable[[Mapping[str, str]], bool]


def selector_of(budget: Document) -> Selects:
    """Return whether a validated budget selects the pods with some labels."""
    given = (budget.get("spec") or {}).get("selector")
    read = cast(LabelSelector, LabelSelector.from_dict(given)) if given is not None else None
    return lambda labels: selects(read, labels)


def budget_of(document: Document, pods: int, replicas: int, manager: str) -> Budget:
    """Read a validated budget. `pods` are those that it selects now, `replicas` those that their
    workloads ask for. The disruption controller's own numbers in its status take precedence: it
    knows the scale of custom workloads too."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    generation = (document.get("metadata") or {}).get("generation") or 0
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    rule = f"maxUnavailable: {most}" if most is not None else f"minAvailable: {least or 1}"
    expected, desired, problem = _computed(most, least, pods, replicas)
    if "desiredHealthy" in status and (status.get("observedGeneration") or 0) >= generation:
        expected, desired = status.get("expectedPods") or 0, status["desiredHealthy"]
        problem = _sync_problem(status)
    return Budget(
        namespace_of(document),
        name_of(document),
        desired,
        expected,
        problem,
        evicts_unready=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
        written=rule,
        manager=manager,
    )


def _computed(
    most: int | str | None, least: int | str | None, pods: int, replicas: int
) -> tuple[int, int, str]:
    """Return the expected pods, those that must stay healthy, and a problem."""
    if most is None and (least is None or isinstance(least, int)):
        return pods, 1 if least is None else max(least, 0), ""
    given = most if most is not None else least
    share = _share(given, replicas)
    if share is None:
        return replicas, replicas, f"{given!r} is neither a number nor a percentage"
    return replicas, max(0, replicas - share) if most is not None else share, ""


def _share(given: int | str | None, of: int) -> int | None:
    if isinstance(given, int):
        return max(given, 0)
    found = _PERCENT.fullmatch(given or "")
    return math.ceil(of * int(found[1]) / 100) if found else None


def _sync_problem(status: Document) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionAllowed" and condition.get("reason") == "SyncFailed":
            return str(condition.get("message") or "the disruption controller cannot read it")
    return ""
