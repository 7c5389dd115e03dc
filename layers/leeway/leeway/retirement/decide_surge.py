"""Decides about a surge: one more pod of a workload before an eviction that its budget refuses."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.durations import render_duration
from leeway.notices import NoticeKind
from leeway.ports.workloads import SURGE_MANAGER, BudgetHealth, Replica, Replicas, Workload
from leeway.reasons import Reason, counted
from leeway.retirement.reasons import SURGE_ENDED, SURGE_REFUSED, SURGE_WAITS
from leeway.table import Record

SURGING = frozenset({NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE, NoticeKind.CAPACITY_RETURN})
"""The notices for which a surge may begin: the node is healthy, and Leeway chooses the time."""

SURGE_TIMEOUT = timedelta(minutes=15)
"""How long a workload has an additional pod at most: as long as a new node may take to join."""

STATEFUL = "StatefulSet"


class SurgeStage(StrEnum):
    """How far a surge is; each is written to the table before the next call."""

    WANTED = "wanted"
    SCALED = "scaled"
    ENDED = "ended"


class Surge(BaseModel):
    """The additional pod of one workload, for one pod of one retirement. A workload has one record,
    so that two retirements do not scale it at the same time.

    - `workload`: `namespace/kind/name`; `uid`: its UID.
    - `instance`, `pod`, `pod_uid`: of the retirement, and of the pod that it evicts.
    - `size`: its replicas before. `required`: how many healthy pods its `budget` required then.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    workload: str
    uid: str
    instance: str
    pod: str
    pod_uid: str
    budget: str
    size: Annotated[int, Field(ge=1)]
    required: int
    began_at: AwareDatetime
    stage: SurgeStage
    reason: Reason
    version: int = 1

    @property
    def is_open(self) -> bool:
        """Whether the size of the workload may still have to be restored."""
        return self.stage is not SurgeStage.ENDED


SURGE = Record(
    Surge, "SURGES#{cluster}", "SURGE#{workload}", versioned=True, kept_for=timedelta(days=7)
)


class SurgeAction(StrEnum):
    """The next step. `leave`: the drain goes as without a surge. `evict` and `delete`: the pod may
    go, by the Eviction API or without it."""

    LEAVE = "leave"
    WAIT = "wait"
    SCALE_UP = "scale-up"
    EVICT = "evict"
    DELETE = "delete"
    SCALE_BACK = "scale-back"
    END = "end"


@dataclass(frozen=True, slots=True)
class SurgeDecision:
    """The next step of a surge, and why."""

    action: SurgeAction
    reason: Reason


def decide_begin(
    workload: Workload, scalers: tuple[str, ...], replicas: Replicas, budget: BudgetHealth | None
) -> SurgeDecision:
    """Decide whether a workload of which a budget refused an eviction gets one more pod."""
    if why := _why_never(workload, scalers, replicas):
        return SurgeDecision(SurgeAction.LEAVE, SURGE_REFUSED(workload=workload, why=why))
    serving = sum(one.serves for one in replicas.pods)
    if not workload.settled:
        why = "its rollout is not complete yet"
    elif serving < workload.replicas or len(replicas.pods) != workload.replicas:
        wanted = counted(workload.replicas, "pod")
        why = f"of its {wanted} {serving} serve, so it may be disrupted already"
    elif budget is None:
        why = "the status of its budget is not current yet"
    elif budget.allowed > 0:
        why = "its budget allows a disruption now"
    else:
        reason = _waits(workload, "Its budget allows no eviction.")
        return SurgeDecision(SurgeAction.SCALE_UP, reason)
    return SurgeDecision(SurgeAction.WAIT, SURGE_REFUSED(workload=workload, why=why))


def _why_never(workload: Workload, scalers: tuple[str, ...], replicas: Replicas) -> str:
    """Return why an additional pod would not help, or not stay; empty if it would."""
    if scalers:
        return f"{' and '.join(scalers)} sets its size; its minimum of pods has to be higher"
    if workload.controller:
        return f"{workload.controller} controls it and would undo the change"
    if "leeway" in workload.sizers:
        return "keep_headroom sets its size"
    if workload.claims and workload.kind == STATEFUL:
        return "a new pod of the StatefulSet has a new, empty volume"
    if workload.claims:
        return "its pods use a persistent volume, which the old pod holds"
    if workload.kind == STATEFUL and not replicas.shared:
        return (
            "no Service with an address selects its pods: clients ask for each pod of the "
            "StatefulSet by its name"
        )
    return ""


def decide_next(
    surge: Surge,
    workload: Workload | None,
    now: datetime,
    *,
    left: bool,
    ending: bool,
    replicas: Replicas,
    stays: bool,
    budget: BudgetHealth | None,
) -> SurgeDecision:
    """Decide the next step of a surge that began.

    `left`: the pod of the retirement terminates or is gone. `ending`: the drain is over, or nobody
    continues it. `stays`: the node of the newest other pod is not about to go.
    """
    if workload is None or workload.uid != surge.uid:
        return _end(surge, "the workload was deleted")
    more = surge.size + 1
    ours = workload.sizers == {SURGE_MANAGER} and workload.replicas == more
    if not ours:
        untouched = surge.stage is SurgeStage.WANTED and workload.replicas == surge.size
        if untouched and not (left or ending):
            return SurgeDecision(SurgeAction.SCALE_UP, _waits(workload, "Leeway adds it now."))
        restored = workload.replicas == surge.size and (left or SURGE_MANAGER in workload.sizers)
        if untouched or restored:
            return _end(surge, f"it has its size of {surge.size}")
        return _end(surge, "somebody else changed its size, which Leeway leaves as it is")
    late = now >= surge.began_at + SURGE_TIMEOUT
    if left and workload.kind == STATEFUL and not late and not _is_back(surge, replicas):
        return SurgeDecision(SurgeAction.WAIT, _waits(workload, f"Pod {surge.pod} is not back."))
    if left:
        return _back(surge, f"pod {surge.pod} has left its node")
    if ending:
        return _back(surge, "the drain has ended without it")
    if workload.failure:
        return _back(surge, f"its controller cannot create the pod: {workload.failure}")
    why = _why_not_ready(surge, workload, replicas, stays)
    if why and late:
        return _back(surge, f"{why}, {render_duration(SURGE_TIMEOUT)} after the scale")
    if why:
        return SurgeDecision(SurgeAction.WAIT, _waits(workload, f"{why[0].upper()}{why[1:]}."))
    return _remove(surge, workload, budget)


def _why_not_ready(surge: Surge, workload: Workload, replicas: Replicas, stays: bool) -> str:
    """Return why the old pod is still needed; empty if it is not."""
    others = [one for one in replicas.pods if one.uid != surge.pod_uid]
    newest = newest_of(replicas, surge.pod_uid)
    if newest is None or len(others) < surge.size:
        return "the additional pod does not exist"
    if not newest.serves:
        return f"pod {newest.name} is not Ready, or not in the EndpointSlices of its Services"
    if not stays:
        return f"pod {newest.name} is on a node that is about to go"
    serving = sum(one.serves for one in others)
    others_serve = f"without the old pod {serving} of {surge.size} serve"
    return others_serve if serving < surge.size else ""


def newest_of(replicas: Replicas, without: str) -> Replica | None:
    """Return the pod that was created last, other than that with this UID."""
    others = (one for one in replicas.pods if one.uid != without)
    return max(others, key=lambda one: (one.created, one.uid), default=None)


def _remove(surge: Surge, workload: Workload, budget: BudgetHealth | None) -> SurgeDecision:
    """Decide how the old pod goes. A budget with `maxUnavailable: 0`, or a percentage, may require
    the additional pod as well; what it required before is what its owner asks for."""
    if budget is None:
        return SurgeDecision(SurgeAction.WAIT, _waits(workload, "Its budget is not read yet."))
    if budget.allowed > 0:
        return SurgeDecision(SurgeAction.EVICT, _waits(workload, "Its budget allows an eviction."))
    if budget.healthy > surge.required:
        why = (
            f"Its budget allows no eviction at any size; without the pod {budget.healthy - 1} are "
            f"healthy, and it required {surge.required} before."
        )
        return SurgeDecision(SurgeAction.DELETE, _waits(workload, why))
    return SurgeDecision(SurgeAction.WAIT, _waits(workload, "Its budget does not count it yet."))


def _is_back(surge: Surge, replicas: Replicas) -> bool:
    """Whether the pod of the StatefulSet runs again under its name."""
    name = surge.pod.partition("/")[2]
    return any(
        one.name == name and one.uid != surge.pod_uid and one.serves for one in replicas.pods
    )


def _waits(workload: Workload, why: str) -> Reason:
    return SURGE_WAITS(workload=workload, why=why)


def _back(surge: Surge, why: str) -> SurgeDecision:
    return SurgeDecision(SurgeAction.SCALE_BACK, _ended(surge, why))


def _end(surge: Surge, why: str) -> SurgeDecision:
    return SurgeDecision(SurgeAction.END, _ended(surge, why))


def _ended(surge: Surge, why: str) -> Reason:
    namespace, kind, name = surge.workload.split("/")
    return SURGE_ENDED(workload=f"{kind} {namespace}/{name}", why=why)
