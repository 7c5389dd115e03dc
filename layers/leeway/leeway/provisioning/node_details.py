"""What decides whether a node may be given back: its age, and its pods with their protections.

Pods and nodes must be validated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from leeway.durations import parse_duration
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT
from leeway.selection.pods import LabelSelector, Pod
from leeway.selection.reading.objects import Document, name_of, namespace_of
from leeway.selection.reading.pod_objects import selector_of

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod that runs on a node, and is neither a DaemonSet's nor a static pod.

    `controlled`: a controller creates it again. `protected_until` is until when an annotation
    forbids to disrupt it. `created_at` is None if it is not known.
    """

    pod: Pod
    uid: str
    controlled: bool
    protected_until: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A Node besides its resources.

    - `instance`: the id of its instance, empty without one.
    - `ready`: its condition Ready is True, since `ready_since` if the Node says that.
    - `protected`: an annotation forbids to disrupt it.
    - `pods`: the pods that keep it from being empty.
    - `busy`: a pod terminates on it, or the scheduler preempts others there for a pod.
    - `changed_at`: when the last of its pods came or went, or when a read found that; None if none
      has since the first read.
    """

    instance: str
    created_at: datetime
    ready: bool = False
    ready_since: datetime | None = None
    protected: bool = False
    pods: tuple[PodOnNode, ...] = ()
    busy: bool = False
    changed_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PodBudget:
    """A PodDisruptionBudget, and how many of its pods may be disrupted now."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def selects(self, pod: Pod) -> bool:
        """Whether it selects a pod. A missing selector selects nothing. Source: Kubernetes API,
        `PodDisruptionBudgetSpec.selector`."""
        of_namespace = self.selector is not None and pod.spec.namespace == self.namespace
        return of_namespace and self.selector is not None and self.selector.selects(pod.spec.labels)


def blocking(budgets: Iterable[PodBudget], pod: Pod) -> tuple[str, ...]:
    """Return the names of the budgets that let the API server refuse the eviction of a pod now. It
    evicts no pod that several budgets select. Source: Kubernetes, eviction subresource."""
    selecting = [one for one in budgets if one.selects(pod)]
    if len(selecting) > 1:
        return tuple(one.name for one in selecting)
    return tuple(one.name for one in selecting if one.allowed < 1)


def budget_of(document: Document) -> PodBudget:
    """Read a validated PodDisruptionBudget. Without a status it allows no disruption."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    return PodBudget(
        namespace_of(document),
        name_of(document),
        selector_of(spec.get("selector")),
        int(status.get("disruptionsAllowed") or 0),
    )


def details_of(document: Document, instance: str) -> NodeDetails:
    """Read a validated Node without its pods."""
    metadata, status = document.get("metadata") or {}, document.get("status") or {}
    conditions = status.get("conditions") or ()
    ready: Document = next((one for one in conditions if one.get("type") == "Ready"), {})
    return NodeDetails(
        instance=instance,
        created_at=_time(metadata.get("creationTimestamp")) or FOREVER,
        ready=ready.get("status") == "True",
        ready_since=_time(ready.get("lastTransitionTime")),
        protected=(metadata.get("annotations") or {}).get(DO_NOT_DISRUPT) == "true",
    )


def protected_until(pod: Document) -> datetime | None:
    """Return the end of a pod's protection by its do-not-disrupt annotation: `true` has no end, and
    a duration counts from the pod's start. Source: Karpenter documentation, "Disruption"."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    value = str((metadata.get("annotations") or {}).get(DO_NOT_DISRUPT) or "")
    if value == "true":
        return FOREVER
    started = _time(status.get("startTime") or metadata.get("creationTimestamp"))
    if not value or started is None:
        return None
    try:
        return started + parse_duration(value)
    except ValueError:
        return None
    except OverflowError:
        return FOREVER


def _time(text: Any) -> datetime | None:
    """Read a time of Kubernetes; None if it is missing or invalid."""
    try:
        time = datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
