"""The report of one run for a cluster: its log line, metrics and the function's answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.hibernation import POOL_HIBERNATES, Sleeping
from leeway.launch.intent import LatePool, LaunchedNode, PodWithoutNode
from leeway.launch.prices import SpendingLimit
from leeway.manifests.status import PoolUsage
from leeway.provisioning.cluster_state import BoundPod
from leeway.reasons import Reason, ReasonCode, counted
from leeway.table import Record
from leeway.telemetry import Telemetry

POD_BOUND = ReasonCode("PodBound", "Pod {pod} got node {node} {seconds:second} after its creation.")


@dataclass(frozen=True, slots=True)
class CapacityReturned:
    """What a run gives back.

    - `begun`: the retirements that it began. `rehearsed`: those that it would begin without
      spec.dryRun, each once.
    - `problems`: what keeps it from giving back, as long as it is new; `lasting`: what an earlier
      run has logged already. `failures`: what failed; the next run tries again.
    """

    begun: tuple[Reason, ...] = ()
    rehearsed: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    lasting: tuple[Reason, ...] = ()
    failures: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ProvisioningReport:
    """The report of a run.

    - `result`: what the run did. `pods`: how many pods had no place, with those that have to move
      and those that are due soon.
    - `waiting`: how many pods waited for a node, the oldest since `waiting_since`. `bound`: those
      that earlier runs saw waiting, and that have a node now.
    - `without_event`: how many pods without a node have no Event yet, because of the maximum.
    - `ahead`: the targets whose pods are due soon, and why their nodes are planned now.
    - `launch_problems`: errors of launches that were worked around, or that left pods without node.
    - `unreadable`: the objects of the cluster that Leeway can't read.
    - `failures`: what the run could not do; the run is repeated if `retry` is set.
    - `capped`: a brake left pods without a node: the maximum of launches in ten minutes, or vain
      launches.
    - `spending`: what nodes cost, and the limits in money.
    - `returned`: the capacity that it gives back.
    - `static_pools`: how many nodes each has.
    - `late`: the pools with instances that are late to join.
    - `seconds`: how long the run took.
    - `usage`: the nodes of pools; None if the run has not read the cluster.
    - `sleeping`: the pools that hibernate.
    - `conflicts`: the NodeOverlays that conflict with others, by name; None if the run has not
      compared them.
    """

    cluster: str
    why: str
    result: Reason
    pods: int = 0
    waiting: int = 0
    waiting_since: datetime | None = None
    bound: Sequence[BoundPod] = ()
    launched: tuple[LaunchedNode, ...] = ()
    without_node: tuple[PodWithoutNode, ...] = ()
    without_event: int = 0
    ahead: tuple[Reason, ...] = ()
    launch_problems: tuple[Reason, ...] = ()
    unreadable: tuple[Reason, ...] = ()
    failures: tuple[Reason, ...] = ()
    capped: bool = False
    spending: tuple[SpendingLimit, ...] = ()
    returned: CapacityReturned = field(default_factory=CapacityReturned)
    retry: bool = False
    static_pools: "tuple[StaticPoolStatus, ...]" = ()
    late: tuple[LatePool, ...] = ()
    seconds: float = 0.0
    usage: Mapping[str, PoolUsage] | None = None
    conflicts: Mapping[str, Reason] | None = None
    sleeping: Sleeping = field(default_factory=dict)


MOST_GROUPS = 40

MOST_NAMES = 5

MOST_LAUNCHED = 100

MOST_PROBLEMS = 20

MOST_RETURNED = 20

LONGEST_MESSAGE = 1000
"""They bound the status to some 100 KB; an item of DynamoDB holds 400 KB."""


class LaunchedInstance(BaseModel):
    """An instance that was launched."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    instance: str
    instance_type: str
    zone: str
    capacity_type: str
    pool: str


class StaticPoolStatus(BaseModel):
    """A static pool: its spec.replicas, and how many nodes exist, start or are launched."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pool: str
    replicas: int
    nodes: int


class PodsWithoutNode(BaseModel):
    """Pods that get no node for the same reason: how many, and the names of some."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    reason: Reason
    count: Annotated[int, Field(ge=1)]
    some: tuple[str, ...]


class ProvisioningStatus(BaseModel):
    """The last run of provision_nodes for a cluster.

    - `why`: the message that started the run. `pods`: how many pods had no place, with those that
      have to move and those that are due soon.
    - `waiting`: how many pods waited for a node, the oldest since `waiting_since`.
    - `launched`: the instances of the last run that launched some, at `launched_at`.
    - `ahead`: the targets whose pods are due soon, and why their nodes are planned now.
    - `without_node`: the pods without a node, by reason; `others` counts those of further reasons.
    - `without_event`: how many of them have no Event yet, because of the maximum.
    - `problems`: why launches failed, and which objects can't be read.
    - `spending`: what nodes cost, and the limits in money of the cluster and of pools.
    - `returned`: the capacity that the last run that gave some back returned, at `returned_at`.
    - `static_pools`: how many nodes each static pool has, of the first MOST_GROUPS.
    - `late`: the pools with instances that are late to join, the first MOST_NAMES of them.
    - `failure`: why the run ended early, None if it did not.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    run_at: AwareDatetime
    why: str = ""
    dry_run: bool = False
    pods: int = 0
    waiting: int = 0
    waiting_since: AwareDatetime | None = None
    launched: tuple[LaunchedInstance, ...] = ()
    launched_at: AwareDatetime | None = None
    launched_count: int = 0
    ahead: tuple[Reason, ...] = ()
    without_node: tuple[PodsWithoutNode, ...] = ()
    others: int = 0
    without_event: int = 0
    problems: tuple[Reason, ...] = ()
    spending: tuple[SpendingLimit, ...] = ()
    returned: tuple[Reason, ...] = ()
    returned_at: AwareDatetime | None = None
    static_pools: tuple[StaticPoolStatus, ...] = ()
    late: tuple[LatePool, ...] = ()
    failure: Reason | None = None


STATUS = Record(ProvisioningStatus, "PROVISIONING#{cluster}", "STATUS")


def grouped(pods: Iterable[PodWithoutNode]) -> tuple[tuple[PodsWithoutNode, ...], int]:
    """Group pods by reason, the largest group first; return the groups that a status holds, and the
    number of the other pods."""
    by_reason: dict[Reason, list[str]] = {}
    for one in pods:
        by_reason.setdefault(shortened(one.cause), []).append(one.pod)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    groups = tuple(
        PodsWithoutNode(reason=reason, count=len(names), some=tuple(names[:MOST_NAMES]))
        for reason, names in ordered[:MOST_GROUPS]
    )
    return groups, sum(len(names) for _, names in ordered[MOST_GROUPS:])


def launched_instances(nodes: Sequence[LaunchedNode]) -> tuple[LaunchedInstance, ...]:
    """Return launched nodes as a status holds them."""
    return tuple(
        LaunchedInstance(
            instance=one.instance.instance,
            instance_type=one.instance.instance_type,
            zone=one.instance.zone,
            capacity_type=one.instance.capacity_type,
            pool=one.pool,
        )
        for one in nodes[:MOST_LAUNCHED]
    )


def shortened(reason: Reason) -> Reason:
    """Return a reason with at most LONGEST_MESSAGE characters."""
    return Reason(reason.code, reason.message[:LONGEST_MESSAGE])


def status_of(
    report: ProvisioningReport, before: ProvisioningStatus | None, dry_run: bool, now: datetime
) -> ProvisioningStatus:
    """Return the status after a run. `before` is the stored one."""
    failure = report.failures[0] if report.retry else None
    if failure is not None and before is not None:
        update = {"failure": shortened(failure), "run_at": now, "why": report.why}
        return before.model_copy(update=update)
    groups, others = grouped(report.without_node)
    launched = launched_instances(report.launched)
    count, at = len(report.launched), now
    if before is not None and not launched:
        launched, count = before.launched, before.launched_count
    launched_at = now if report.launched else before.launched_at if before else None
    returned, returned_at = report.returned.begun, now
    if before is not None and not returned:
        returned, returned_at = before.returned, before.returned_at or now
    back = report.returned
    found = (*report.launch_problems, *report.failures, *back.problems, *back.lasting)
    problems = [*found, *report.unreadable][:MOST_PROBLEMS]
    return ProvisioningStatus(
        cluster=report.cluster,
        run_at=at,
        why=report.why,
        dry_run=dry_run,
        pods=report.pods,
        waiting=report.waiting,
        waiting_since=report.waiting_since,
        launched=launched,
        launched_at=launched_at,
        launched_count=count,
        ahead=tuple(map(shortened, report.ahead[:MOST_PROBLEMS])),
        without_node=groups,
        others=others,
        without_event=report.without_event,
        problems=tuple(map(shortened, problems)),
        spending=report.spending[:MOST_GROUPS],
        returned=tuple(map(shortened, returned[:MOST_RETURNED])),
        returned_at=returned_at if returned else None,
        static_pools=report.static_pools[:MOST_GROUPS],
        late=tuple(one.shown(MOST_NAMES) for one in report.late[:MOST_GROUPS]),
        failure=None if failure is None else shortened(failure),
    )


MOST_BOUND = 1_000
"""Pods whose time to a node one run logs; the table counts all of them."""

MOST_UNREADABLE = 50
"""Objects that one run logs: whoever may create pods may create thousands that can't be read."""


@dataclass(frozen=True, slots=True)
class ProvisioningTelemetry(Telemetry):
    """Logs and measures provisioning."""

    def provisioned(self, report: ProvisioningReport) -> None:
        """Log a run with its launches, its problems, the objects that can't be read and the groups
        of pods without a node, and count the problems."""
        cluster = {"cluster": report.cluster}
        self.logger.info(
            report.result.message,
            extra={
                **cluster,
                "code": report.result.code,
                "why": report.why,
                "pods": report.pods,
                "waiting": report.waiting,
                "launched": [one.instance.instance for one in report.launched],
                "launches": len(report.launched),
                "without_node": len(report.without_node),
                "without_event": report.without_event,
                "seconds": round(report.seconds, 3),
            },
        )
        for pod in report.bound[:MOST_BOUND]:
            reason = POD_BOUND(pod=pod.name, node=pod.node, seconds=pod.seconds)
            facts = {"pod": pod.name, "node": pod.node, "seconds_to_node": pod.seconds}
            self.logger.info(reason.message, extra={**cluster, "code": reason.code, **facts})
        for reason in report.ahead:
            self.logger.info(reason.message, extra={**cluster, "code": reason.code})
        for reason in report.launch_problems:
            self.logger.warning(reason.message, extra={**cluster, "code": reason.code})
        for one in report.late:
            about = {"pool": one.pool, "instances": list(one.instances)}
            self.logger.warning(
                one.reason.message, extra={**cluster, "code": one.reason.code, **about}
            )
        for reason in report.unreadable[:MOST_UNREADABLE]:
            self.logger.warning(reason.message, extra={**cluster, "code": reason.code})
        if len(report.unreadable) > MOST_UNREADABLE:
            further = counted(len(report.unreadable) - MOST_UNREADABLE, "further object")
            text = f"Leeway can't read {further}."
            self.logger.warning(text, extra={**cluster, "most_shown": MOST_UNREADABLE})
        for reason in report.failures:
            self.logger.error(reason.message, extra={**cluster, "code": reason.code})
        for reason in (*report.returned.begun, *report.returned.rehearsed):
            self.logger.info(reason.message, extra={**cluster, "code": reason.code})
        for reason in report.returned.problems:
            self.logger.warning(reason.message, extra={**cluster, "code": reason.code})
        groups, others = grouped(report.without_node)
        for group in groups:
            facts = {"code": group.reason.code, "count": group.count, "pods": list(group.some)}
            is_meant = group.reason.code == POOL_HIBERNATES.name
            log = self.logger.info if is_meant else self.logger.warning
            log(group.reason.message, extra={**cluster, **facts})
        if others:
            pods = counted(others, "further pod gets", "further pods get")
            text = f"{pods} no node, for other reasons."
            self.logger.warning(text, extra={**cluster, "most_shown": MOST_NAMES})
        self.count("LaunchProblems", int(report.capped))
        self.count("ClusterProblems", len(report.failures))

    def dropped(self, reason: Reason) -> None:
        """Log and count a message that is dropped."""
        self.logger.error(reason.message, extra={"code": reason.code})
        self.count("ClusterProblems", 1)
