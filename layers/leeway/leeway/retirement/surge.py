"""Gives a workload one more pod before a drain evicts one that its budget keeps, and takes it away.

The record of a surge is written before each scale. The drain continues it in each of its passes;
after the drain, or if its function dies, `reconcile` does.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused
from leeway.ports.kubernetes_objects import Node
from leeway.ports.workloads import Replicas, Workload, Workloads
from leeway.reasons import Reason, clause
from leeway.retirement.context import Attempt
from leeway.retirement.decide_surge import (
    SURGE,
    SURGING,
    Surge,
    SurgeAction,
    SurgeDecision,
    SurgeStage,
    decide_begin,
    decide_next,
    newest_of,
)
from leeway.retirement.progress import Drain, PodProgress, Stage
from leeway.retirement.reasons import SURGE_REFUSED, SURGE_RIGHT_MISSING
from leeway.retirement.record import Retirement
from leeway.table import RecordChanged, Table

ROLE, GROUPS = "leeway-surge", ("leeway:drain", "leeway:capacity")
"""The ClusterRole of rbac/ that a RoleBinding grants in a namespace, and the groups of the
functions that need it: retire_node, and reconcile, which restores sizes."""

LOOK_AGAIN, LOOK_AGAIN_UNASKED = timedelta(minutes=5), timedelta(hours=1)
"""How long a drain does not ask again for a pod whose workload gets no additional pod, and for one
for which nobody asked: most namespaces refuse the question, and their audit logs show that."""

STEPS_TIMEOUT = timedelta(seconds=5)
"""How long a pass begins steps of surges, before and after it evicts pods. The next pass does the
others: an API server that is slow must not take the time of an interrupted node."""

_STILL_THERE = frozenset({Stage.PENDING, Stage.BLOCKED})
_CONTROLLED, _SCALED = 3, frozenset({"ReplicaSet", "StatefulSet"})
"""The parts of the key of a workload (a pod without a controller has two), and their kinds."""

_NO_RIGHT = re.compile(r"cannot \w+ resource")
"""Part of the answers of RBAC. Quotas and admission policies, which no role changes, answer 403,
too."""


class Nodes(Protocol):
    """Reads nodes, as a Cluster does."""

    def node(self, name: str) -> Node | None:
        """Read a node by name; None if it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class SurgePorts:
    """What a surge is continued with."""

    table: Table
    nodes: Nodes
    workloads: Workloads
    clock: Clock


@dataclass(frozen=True, slots=True)
class PodSurge:
    """What a drain knows of the surge for one of its pods.

    `workload` is the key of its record, empty if none began for this pod; then the drain asks again
    at `again_at`. `held`: the pod is not evicted now; `covered`: it is deleted. `left`: a pass has
    seen that it terminates or is gone. `over`: the drain has nothing left to do for it.
    """

    uid: str
    reason: Reason | None = None
    workload: str = ""
    again_at: datetime | None = None
    held: bool = False
    covered: bool = False
    left: bool = False
    over: bool = False


def continue_surge(
    ports: SurgePorts, cluster: str, workload: str, *, left: bool, ending: bool
) -> SurgeDecision | None:
    """Do the next step of a surge, as `decide_next` decides it; None if it has ended.

    Raises:
        ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused: the step is not done.
    """
    conflicts = Conflicts(f"the surge of {workload}")
    while True:
        with conflicts:
            surge = ports.table.get(SURGE, cluster=cluster, workload=workload)
            if surge is None or not surge.is_open:
                return None
            found = ports.workloads.find(*surge.workload.split("/"))
            decision = _decide(ports, surge, found, left=left, ending=ending)
            stage, size = SCALES.get(decision.action, (None, 0))
            if stage is None:
                return decision
            if size is not None and found is not None:
                try:
                    scaled = ports.workloads.scale(found, surge.size + size)
                except ClusterRefused as error:
                    if decision.action is SurgeAction.SCALE_BACK:
                        raise
                    reason = SURGE_REFUSED(workload=found, why=clause(error))
                    decision, stage = SurgeDecision(SurgeAction.END, reason), SurgeStage.ENDED
                    scaled = True
                if not scaled:
                    raise RecordChanged(workload)
            _write(ports.table, surge, stage=stage, reason=decision.reason)
            return decision


SCALES: dict[SurgeAction, tuple[SurgeStage, int | None]] = {
    SurgeAction.SCALE_UP: (SurgeStage.SCALED, 1),
    SurgeAction.SCALE_BACK: (SurgeStage.ENDED, 0),
    SurgeAction.END: (SurgeStage.ENDED, None),
}
"""The stage after a step, and how many pods more than before it gives the workload."""


def _decide(
    ports: SurgePorts, surge: Surge, found: Workload | None, *, left: bool, ending: bool
) -> SurgeDecision:
    """Read what the decision needs."""
    replicas, stays, budget = Replicas(()), False, None
    if found is not None and found.replicas > surge.size:
        replicas = ports.workloads.replicas(found)
        left = left or surge.pod_uid not in {one.uid for one in replicas.pods}
        newest = newest_of(replicas, surge.pod_uid)
        node = ports.nodes.node(newest.node) if newest and newest.node else None
        stays = node is not None and not (node.marked or node.unschedulable)
        if not (left or ending):
            budget = ports.workloads.budget(found.namespace, surge.budget)
    return decide_next(
        surge,
        found,
        ports.clock.now(),
        left=left,
        ending=ending,
        replicas=replicas,
        stays=stays,
        budget=budget,
    )


def _write(table: Table, surge: Surge, **fields: object) -> None:
    table.put(SURGE, surge.model_copy(update={**fields, "version": surge.version + 1}))


def is_due(drain: Drain, known: tuple[PodSurge, ...], record: Retirement) -> bool:
    """Whether a budget has just blocked a pod, or a pod with an additional one has just left."""
    surges = {one.uid: one for one in known}
    for pod in drain.pods.values():
        one = surges.get(pod.uid)
        if one is None:
            if _is_candidate(pod) and _may_begin(record):
                return True
        elif one.workload and not (one.left or one.over) and pod.stage not in _STILL_THERE:
            return True
    return False


def _is_candidate(pod: PodProgress) -> bool:
    """Whether a budget keeps a pod of a ReplicaSet or StatefulSet."""
    return pod.stage is Stage.BLOCKED and bool(pod.budgets) and _is_scaled(pod.workload)


def _is_scaled(workload: str) -> bool:
    parts = workload.split("/")
    return len(parts) == _CONTROLLED and parts[1] in _SCALED


def _may_begin(record: Retirement) -> bool:
    """Whether a surge may begin, or an earlier attempt may have begun one."""
    return record.kind in SURGING or record.attempt > 1


def has_failed(known: tuple[PodSurge, ...], drain: Drain) -> bool:
    """Whether a surge began and ended, and a budget still keeps the pod."""
    return any(one.over and drain.pods[one.uid].stage is Stage.BLOCKED for one in known)


def with_reasons(known: tuple[PodSurge, ...], drain: Drain) -> Drain:
    """Return the drain with the reasons of surges at the pods that they are about."""
    for one in known:
        pod = drain.pods[one.uid]
        if one.reason is None or pod.stage not in {Stage.BLOCKED, Stage.FAILED}:
            continue
        if one.held and pod.stage is Stage.BLOCKED:
            drain = drain.with_pod(replace(pod, reason=one.reason))
        elif one.reason.message not in pod.reason.message:
            drain = drain.with_pod(replace(pod, reason=pod.reason.and_then(one.reason)))
    return drain


def advance(
    attempt: Attempt,
    record: Retirement,
    drain: Drain,
    known: tuple[PodSurge, ...],
    *,
    ending: bool = False,
) -> tuple[PodSurge, ...]:
    """Begin and continue the surges of a drain; `ending` in its last pass. What fails is left to
    the next pass."""
    now = attempt.now()
    surges = {one.uid: one for one in known}
    steps: list[tuple[PodProgress, PodSurge]] = []
    for pod in drain.pods.values():
        one = surges.get(pod.uid, PodSurge(pod.uid))
        waits = one.again_at is not None and now < one.again_at
        asks = _is_candidate(pod) and not (ending or waits) and _may_begin(record)
        if (one.workload and not one.over) or (not one.workload and asks):
            steps.append((pod, one))
    if not steps:
        return known
    try:
        surging = _DrainSurges(attempt, record)
    except API_ERRORS:
        return known
    for pod, one in steps:
        if attempt.now() - now < STEPS_TIMEOUT:
            surges[pod.uid] = surging.step(pod, one, ending)
    return tuple(surges.values())


@dataclass(frozen=True, slots=True)
class _Asked:
    """A workload of which a budget keeps a pod."""

    workloads: Workloads
    workload: Workload

    @classmethod
    def read(cls, workloads: Workloads, key: str) -> "_Asked | None":
        """Read the workload of a pod; None if it is of a kind that is not scaled."""
        found = workloads.find(*key.split("/")) if _is_scaled(key) else None
        return cls(workloads, found) if found is not None else None

    def wanted(self, by_policy: bool) -> bool:
        """Whether its annotation, or else the policy, asks for surges."""
        return by_policy if self.workload.surges is None else self.workload.surges

    def decide(self, budgets: tuple[str, ...]) -> tuple[SurgeDecision, int]:
        """Decide whether it gets one more pod; also how many healthy pods its budget requires."""
        if len(budgets) != 1:
            why = SURGE_REFUSED(workload=self.workload, why="several budgets keep the pod")
            return SurgeDecision(SurgeAction.LEAVE, why), 0
        budget = self.workloads.budget(self.workload.namespace, budgets[0])
        scalers = self.workloads.scalers(self.workload)
        replicas = self.workloads.replicas(self.workload)
        decision = decide_begin(self.workload, scalers, replicas, budget)
        return decision, budget.required if budget is not None else 0


def preview(
    workloads: Workloads, by_policy: bool, workload: str, budgets: tuple[str, ...]
) -> SurgeDecision | None:
    """Decide, without acting, whether the workload of a pod that these budgets keep gets one more
    pod; None if nobody asked for that. `workload` is its `namespace/kind/name`, as of a Pod.

    Raises:
        ClusterUnavailable, ClusterRefused: it cannot be read.
    """
    asked = _Asked.read(workloads, workload)
    if asked is None or not asked.wanted(by_policy):
        return None
    return asked.decide(budgets)[0]


def why_not_read(key: str, error: Exception) -> Reason:
    """Return why the workload of a pod gets no additional pod: it cannot be read."""
    namespace, kind, name = key.split("/")
    workload = f"{kind} {namespace}/{name}"
    if not (isinstance(error, ClusterForbidden) and _NO_RIGHT.search(str(error))):
        return SURGE_REFUSED(workload=workload, why=clause(error))
    groups = " ".join(f"--group={group}" for group in GROUPS)
    command = (
        f"kubectl create rolebinding {ROLE} --clusterrole={ROLE} {groups} --namespace={namespace}"
    )
    return SURGE_RIGHT_MISSING(workload=workload, error=clause(error), command=command)


class _DrainSurges:
    """The surges of one pass of a drain."""

    def __init__(self, attempt: Attempt, record: Retirement) -> None:
        ports, cluster = attempt.ports, record.facts.cluster
        self._record, self._cluster, self._telemetry = record, cluster, ports.telemetry
        self._surges = ports.policies.policy_of(cluster).surges
        self._forbidden: set[str] = set()
        workloads, nodes = ports.open_workloads(cluster), ports.open_cluster(cluster)
        self._ports = SurgePorts(ports.table, nodes, workloads, ports.clock)

    def step(self, pod: PodProgress, one: PodSurge, ending: bool) -> PodSurge:
        """Begin or continue the surge for one pod."""
        if not one.workload:
            if pod.workload.partition("/")[0] in self._forbidden:
                return self._later(pod)
            try:
                one = self._begin(pod)
            except (*API_ERRORS, RecordChanged) as error:
                return self._failed(pod, error)
        if not one.workload:
            return one
        one = replace(one, left=pod.stage not in _STILL_THERE)
        try:
            return self._continue(one, ending)
        except API_ERRORS:
            return one

    def _begin(self, pod: PodProgress) -> PodSurge:
        """Write the record of a surge, if one may begin or an earlier attempt began it."""
        asked = _Asked.read(self._ports.workloads, pod.workload)
        if asked is None:
            return self._later(pod)
        found = asked.workload
        stored = self._ports.table.get(SURGE, cluster=self._cluster, workload=found.key)
        if stored is not None and stored.is_open and stored.uid == found.uid:
            if stored.pod_uid == pod.uid:
                return PodSurge(pod.uid, workload=found.key)
            other = SURGE_REFUSED(workload=found, why=f"it has one for pod {stored.pod} now")
            return PodSurge(pod.uid, other)
        if not asked.wanted(self._surges) or self._record.kind not in SURGING:
            return self._later(pod)
        if stored is not None and stored.pod_uid == pod.uid:
            return self._later(pod, stored.reason)
        decision, required = asked.decide(pod.budgets)
        if decision.action is SurgeAction.LEAVE:
            return self._later(pod, decision.reason)
        if decision.action is not SurgeAction.SCALE_UP:
            return PodSurge(pod.uid, decision.reason)
        surge = Surge(
            cluster=self._cluster,
            workload=found.key,
            uid=found.uid,
            instance=self._record.instance,
            pod=pod.pod,
            pod_uid=pod.uid,
            budget=pod.budgets[0],
            size=found.replicas,
            required=required,
            began_at=self._ports.clock.now(),
            stage=SurgeStage.WANTED,
            reason=decision.reason,
            version=stored.version + 1 if stored else 1,
        )
        self._ports.table.put(SURGE, surge)
        return PodSurge(pod.uid, workload=found.key)

    def _continue(self, one: PodSurge, ending: bool) -> PodSurge:
        decision = continue_surge(
            self._ports, self._cluster, one.workload, left=one.left, ending=ending
        )
        if decision is not None and decision.action in SCALES:
            self._telemetry.surged(self._record, decision.reason)
        if decision is None:
            return replace(one, held=False, covered=False, over=True)
        return replace(
            one,
            reason=decision.reason,
            held=decision.action in {SurgeAction.WAIT, SurgeAction.SCALE_UP},
            covered=decision.action is SurgeAction.DELETE,
            over=decision.action in {SurgeAction.END, SurgeAction.SCALE_BACK},
        )

    def _later(self, pod: PodProgress, reason: Reason | None = None) -> PodSurge:
        pause = LOOK_AGAIN if reason is not None else LOOK_AGAIN_UNASKED
        return PodSurge(pod.uid, reason, again_at=self._ports.clock.now() + pause)

    def _failed(self, pod: PodProgress, error: Exception) -> PodSurge:
        """Return why no surge begins, if somebody asked for one."""
        if not self._surges or self._record.kind not in SURGING:
            if isinstance(error, ClusterForbidden):
                self._forbidden.add(pod.workload.partition("/")[0])
            return self._later(pod)
        return self._later(pod, why_not_read(pod.workload, error))
