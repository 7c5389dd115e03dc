"""All ports of retire_node as fakes, put together for one retirement."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest
from leeway.execution.attempt import AttemptId
from leeway.execution.shared_cache import SharedCache
from leeway.notices import LifecycleHook, NoticeKind
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes_objects import Controller, Node, Pod
from leeway.ports.workloads import Workloads
from leeway.retirement.attempts import undo
from leeway.retirement.context import DRAIN_STATE, Attempt, DrainState, Ports
from leeway.retirement.outcome import Outcome
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.retirement.retire_node import retire_node
from leeway.table import Item, Key

from tests.fakes.actions import ActionLog
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import FakeCluster
from tests.fakes.groups import FakeGroups, FakeInstances
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.policies import OnePolicy
from tests.fakes.provision_queue import ProvisionQueueInMemory
from tests.fakes.reports import EventBusInMemory, ReportLog
from tests.fakes.steps import FakeSteps
from tests.fakes.table import Stored, TableInMemory
from tests.fakes.targets import FakeTargets
from tests.retirement.retirements import FACTS, HOOK, NOTICED, notice, take

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)
DAEMONSET = Controller("DaemonSet", "cni")
HOOKED = ("leeway-drain",)
ATTEMPT_ID = AttemptId(FACTS.instance, FACTS.cluster, 1)


class FastTable(TableInMemory):
    """The table for calls that delay a drain. The first write of the progress of a drain is stored
    and fails, as in a throttled table. `states` are all its writes; `down`: capacity requests
    cannot be read or written."""

    def __init__(self, table: TableInMemory, clock: FakeClock) -> None:
        super().__init__(clock)
        self.items = table.items
        self.states: list[DrainState] = []
        self.down = False
        self.before = self._check_down

    def _check_down(self, operation: str, key: Key) -> None:
        if self.down and key[0].startswith("CAPACITY#"):
            raise CloudUnavailable("ThrottlingException: Throughput exceeds the current capacity")

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        super()._write(key, item, replaces)
        if item and DRAIN_STATE.parts(item.key) is not None:
            self.states.append(DRAIN_STATE.read(item))
            if len(self.states) == 1:
                raise CloudUnavailable("ThrottlingException")


@dataclass
class RetirementFakes:
    """The fakes of one retirement."""

    clock: FakeClock
    actions: ActionLog
    steps: FakeSteps
    policies: OnePolicy
    table: TableInMemory
    groups: FakeGroups
    instances: FakeInstances
    offerings: OfferingsInMemory
    cluster: FakeCluster
    fast: FastTable
    queue: ProvisionQueueInMemory
    events: EventBusInMemory
    reports: ReportLog
    targets: FakeTargets
    workloads: Workloads | None = None

    @property
    def record(self) -> Retirement:
        """The record of the retirement."""
        return self.table.records(RETIREMENT)[FACTS.instance]

    @record.setter
    def record(self, record: Retirement) -> None:
        self.table.records(RETIREMENT)[FACTS.instance] = record

    def amend(self, **fields: Any) -> None:
        """Change fields of the record, as if it had always had them."""
        self.record = self.record.model_copy(update=fields)

    def supersede(self, **fields: Any) -> None:
        """Have the record begin the second attempt."""
        self.amend(attempt=2, version=self.record.version + 1, **fields)

    def receive(self, kind: NoticeKind, name: str = "n-2", /, **more: Any) -> bool:
        """Receive another notice; return whether an attempt starts."""
        change = take(self.record, kind, name, **more)
        self.record = change.record
        return change.start

    def undo(self, kind: NoticeKind, name: str = "n-2", /, **more: Any) -> None:
        """Receive a notice that undoes the retirement."""
        change = undo(self.record, notice(kind, name, **more))
        assert change is not None
        self.record = change.record

    @property
    def capacity(self) -> Stored[CapacityRequest]:
        """The capacity requests."""
        return self.table.records(CAPACITY_REQUEST)

    @property
    def ports(self) -> Ports:
        """The ports of retire_node."""
        return Ports(
            open_cluster=lambda _: self.cluster,
            open_workloads=lambda _: self._workloads,
            clock=self.clock,
            policies=self.policies,
            table=self.table,
            groups=self.groups,
            instances=self.instances,
            offerings=self.offerings,
            region="us-east-1",
            cache=SharedCache(self.table, self.clock),
            fast_table=self.fast,
            provision_nodes=self.queue,
            events=self.events,
            telemetry=self.reports,
            targets=self.targets,
        )

    @property
    def _workloads(self) -> Workloads:
        assert self.workloads is not None, "the test has no workload"
        return self.workloads

    def run_attempt(self, attempt: int = 1) -> Outcome | None:
        """Run one attempt of the retirement to its end."""
        return retire_node(self.attempt(attempt))

    def attempt(self, attempt: int = 1) -> Attempt:
        """Return an attempt of the retirement, for a function that has one."""
        attempt_id = AttemptId(ATTEMPT_ID.instance, ATTEMPT_ID.cluster, attempt)
        return Attempt(attempt_id, self.steps, self.ports)

    def notify_hooks(self) -> None:
        """Have the record receive the notices of the hooks when the group terminates."""

        def received(hooks: tuple[LifecycleHook, ...]) -> None:
            fields = {"hooks": hooks, "version": self.record.version + 1}
            self.table.put(RETIREMENT, self.record.model_copy(update=fields))

        self.groups.on_hooks = received


def _may_have_pods(node: Node | None, pods: list[Pod]) -> bool:
    takes_pods = node is not None and node.ready and not node.taints
    return takes_pods or any(pod.controller != DAEMONSET for pod in pods)


def fakes_for(record: Retirement) -> RetirementFakes:
    """Return the usual fakes for a retirement."""
    clock = FakeClock(NOTICED)
    actions, reports = ActionLog(clock), ReportLog()
    table, groups = TableInMemory(clock), FakeGroups(actions)
    table.records(RETIREMENT)[record.instance] = record
    cluster = FakeCluster(groups, reports)
    groups.pods_left = lambda: cluster.pods
    groups.successor_may_have_pods = lambda: _may_have_pods(
        FakeCluster.node(cluster, "new"), cluster.successor_pods
    )
    return RetirementFakes(
        clock=clock,
        actions=actions,
        steps=FakeSteps(clock),
        policies=OnePolicy(),
        table=table,
        groups=groups,
        instances=FakeInstances(groups),
        offerings=OfferingsInMemory(),
        cluster=cluster,
        fast=FastTable(table, clock),
        queue=ProvisionQueueInMemory(),
        events=EventBusInMemory(),
        reports=reports,
        targets=FakeTargets(clock),
    )


def retirement_fakes(
    kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, **changes: Any
) -> RetirementFakes:
    """Return the fakes of a retirement that such a notice starts. `changes` set attributes of the
    policy, the group, the instances, the cluster or the event bus, whichever has the attribute."""
    hook = HOOK if kind is NoticeKind.TERMINATE_HOOK else None
    announced: dict[str, Any] = {}
    if kind is NoticeKind.SCHEDULED_CHANGE:
        announced = {"effective_at": NOTICED.replace(hour=13), "event": "arn:change"}
    fakes = fakes_for(take(None, kind, "n-1", hook=hook, **announced).record)
    fakes.groups.hooks = HOOKED if hook else ()
    if changes.pop("notifies_hooks", False):
        fakes.notify_hooks()
    for name, value in changes.items():
        (part,) = [
            part
            for part in (fakes.policies, fakes.groups, fakes.instances, fakes.cluster, fakes.events)
            if name in vars(part)
        ]
        setattr(part, name, value)
    return fakes


def retire(fakes: RetirementFakes) -> Outcome:
    """Run the first attempt, which no newer one supersedes."""
    outcome = fakes.run_attempt()
    assert outcome is not None
    return outcome


def rebalanced(**changes: object) -> RetirementFakes:
    """Return the fakes of a voluntary retirement that nothing blocks."""
    return retirement_fakes(
        NoticeKind.REBALANCE, **{"pods": [POD], "blocks": False, "hooks": HOOKED} | changes
    )


def next_attempt(fakes: RetirementFakes) -> Outcome:
    """Run the attempt that the record has now."""
    outcome = fakes.run_attempt(fakes.record.attempt)
    assert outcome is not None
    return outcome


def whole_seconds(time: timedelta) -> timedelta:
    """Return a time without the milliseconds that the clock of the fakes adds for each look."""
    return timedelta(seconds=int(time.total_seconds()))


def drained_at(fakes: RetirementFakes) -> timedelta:
    """Return when the drain began, from the notice on."""
    return whole_seconds(fakes.actions.first("evict") - NOTICED)
