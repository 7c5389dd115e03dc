"""An AWS account, the table and some clusters in memory, as reconcile uses them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from leeway.admission.record import ADMISSION, Admission
from leeway.costs import Recorded
from leeway.instances.facts import FACTS as FACTS_OF_INSTANCE
from leeway.instances.facts import (
    InstanceFacts,
    ObservedChange,
    ObservedHook,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
    Owner,
    OwnerKind,
)
from leeway.interruption.receive_notice import InstanceOutcome, NoticeOutcome, NoticeResult
from leeway.notices import LifecycleHook
from leeway.notices.parse import EventOrigin, parse_notice
from leeway.policy.rules import Action, ClusterPolicy
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    HookResult,
    LifecycleActionOver,
    Waiting,
)
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.ports.workloads import Workloads
from leeway.reasons import Reason
from leeway.reconciliation.clean_up import ClusterNodes
from leeway.reconciliation.group_rolls import GroupRolls
from leeway.reconciliation.reconcile import Dependencies, ReconcileRequest, Reconciliation
from leeway.reconciliation.report import ClusterReport, LaunchCheck
from leeway.retirement.reasons import RETIREMENT_STARTED
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import BY_CLUSTER, Index, Item, Key

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.fakes.table import TableInMemory
from tests.retirement.retirements import FACTS, NOTICED


def facts(number: int, cluster: str = "prod", owner: Owner = FACTS.owner) -> InstanceFacts:
    """The facts of the instance with this number."""
    return FACTS.model_copy(
        update={
            "instance": f"i-{number:017x}",
            "cluster": cluster,
            "private_dns_name": f"ip-10-0-0-{number}.ec2.internal",
            "owner": owner,
        }
    )


def node(one: InstanceFacts, **changes: Any) -> Node:
    """The Node of an instance; it is not Ready."""
    given: dict[str, Any] = {
        "name": one.private_dns_name,
        "uid": f"uid-{one.instance}",
        "provider_id": f"aws:///{one.zone}/{one.instance}",
        "unschedulable": False,
        "ready": False,
        "labels": {},
    }
    return Node(**given | changes)


@dataclass
class Account:
    """The dependencies of reconcile other than a cluster's API server.

    - `fails`: the calls that raise CloudUnavailable; `breaks`: those that raise a KeyError.
    - `fresh`: states that EC2 returns by id, if they differ from the list of instances.
    - `without_state`: instances of which EC2 returns no state.
    - `records_open`: whether the records are open; `forged`: items in the index of open records.
    - `hook_over`: no lifecycle hook waits any more.
    - `state_reads`, `name_reads`, `block_reads`: the instances, the names and the Capacity Blocks
      of each call; `blocks` is when EC2 begins to end the instances of each block.
    """

    instances_: list[ObservedInstance] = field(default_factory=list)
    interruptions_: list[ObservedInterruption] = field(default_factory=list)
    changes_: list[ObservedChange] = field(default_factory=list)
    impairments_: list[ObservedImpairment] = field(default_factory=list)
    hooks: list[ObservedHook] = field(default_factory=list)
    fresh: dict[str, str] = field(default_factory=dict)
    without_state: set[str] = field(default_factory=set)
    records: list[Retirement | Admission] = field(default_factory=list)
    records_open: bool = True
    forged: list[Item] = field(default_factory=list)
    index: dict[str, InstanceFacts] = field(default_factory=dict)
    clusters: dict[str, LeftoversInMemory] = field(
        default_factory=lambda: {"prod": LeftoversInMemory()}
    )
    workloads: dict[str, Workloads] = field(default_factory=dict)
    policy: ClusterPolicy = field(default_factory=ClusterPolicy)
    fails: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    hook_over: bool = False
    result: NoticeResult = NoticeResult.STARTED
    now_: datetime = NOTICED + timedelta(minutes=2)
    written: list[str] = field(default_factory=list)
    copied: tuple[tuple[Reason, ...], Reason | None] = ((), None)
    copies: list[list[str]] = field(default_factory=list)
    costs: list[tuple[list[str], tuple[str, ...], list[ObservedInterruption]]] = field(
        default_factory=list
    )
    costs_error: ClusterUnavailable | None = None
    removed: list[str] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    begun: list[Action | None] = field(default_factory=list)
    state_reads: list[list[str]] = field(default_factory=list)
    name_reads: list[list[str]] = field(default_factory=list)
    answers: list[tuple[str, str, HookResult]] = field(default_factory=list)
    started: list[tuple[str, str, int]] = field(default_factory=list)
    launch_check: LaunchCheck = field(default_factory=LaunchCheck)
    node_check: LaunchCheck = field(default_factory=LaunchCheck)
    late_check: LaunchCheck = field(default_factory=LaunchCheck)
    checked: list[list[str]] = field(default_factory=list)
    blocks: dict[str, datetime] = field(default_factory=dict)
    block_reads: list[list[str]] = field(default_factory=list)
    unused_templates: list[str] = field(default_factory=list)
    paused: list[Reason] = field(default_factory=list)

    def _fail(self, part: str) -> None:
        if part in self.fails:
            raise CloudUnavailable(f"{part}: RequestLimitExceeded")
        if part in self.breaks:
            raise KeyError(part)

    # Clock
    def now(self) -> datetime:
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=seconds)

    # Sweep
    def instances(self, clusters: Collection[str]) -> list[ObservedInstance]:
        self._fail("instances")
        return [one for one in self.instances_ if one.facts.cluster in clusters]

    def interruptions(self) -> list[ObservedInterruption]:
        self._fail("interruptions")
        return self.interruptions_

    def changes(self) -> list[ObservedChange]:
        self._fail("changes")
        return self.changes_

    def impairments(self) -> list[ObservedImpairment]:
        self._fail("impairments")
        return self.impairments_

    def block_ends(self, reservations: Collection[str]) -> dict[str, datetime]:
        self._fail("block_ends")
        self.block_reads.append(sorted(reservations))
        return {one: at for one, at in self.blocks.items() if one in reservations}

    def named(self, private_dns_names: Collection[str]) -> list[ObservedInstance]:
        self._fail("named")
        self.name_reads.append(sorted(private_dns_names))
        return [o for o in self.instances_ if o.facts.private_dns_name in private_dns_names]

    def states(self, instances: Collection[str]) -> dict[str, str]:
        self._fail("states")
        self.state_reads.append(sorted(instances))
        listed = {one.facts.instance: one.state for one in self.instances_}
        now = listed | self.fresh
        known = set(instances) - self.without_state
        return {name: now.get(name, "terminated") for name in known}

    # WaitingActions and Groups
    def of_groups(self, groups: Collection[str]) -> Waiting:
        if "hooks" in self.breaks:
            raise KeyError("hooks")
        if "hooks" in self.fails:
            return Waiting((), ("hooks: RequestLimitExceeded",))
        return Waiting(tuple(one for one in self.hooks if one.hook.group in groups))

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        if self.hook_over:
            raise LifecycleActionOver("No active Lifecycle Action found")
        self.answers.append((instance, hook.name, result))

    # ClusterPolicies, RetireNode and AdmitNode
    def policy_of(self, cluster: str) -> ClusterPolicy:
        self._fail(f"policy of {cluster}")
        return self.policy

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        self._fail("start")
        self.started.append((instance, cluster, attempt))

    # LeftLaunches
    def check_instances(self, cluster: str, instances: Sequence[ObservedInstance]) -> LaunchCheck:
        self._fail("launches")
        self.checked.append([one.facts.instance for one in instances])
        return self.launch_check

    def delete_unused_templates(self, cluster: str) -> list[str]:
        self._fail("templates")
        return self.unused_templates

    def check_nodes(
        self, cluster: str, instances: Sequence[ObservedInstance], nodes: ClusterNodes
    ) -> LaunchCheck:
        self._fail("nodes")
        return self.node_check

    def check_late_nodes(
        self, cluster: str, instances: Sequence[ObservedInstance], nodes: ClusterNodes
    ) -> LaunchCheck:
        self._fail("late nodes")
        return self.late_check

    def paused_pools(self, cluster: str) -> list[Reason]:
        self._fail("pools")
        return self.paused

    # ReceiveNotice
    def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
        notice = parse_notice(event)
        self.received.append(notice)
        self.begun.append(begun)
        return NoticeOutcome(
            notice,
            (
                InstanceOutcome(
                    self.result,
                    RETIREMENT_STARTED("The notice starts the first retirement of the instance."),
                    notice.instances[0],
                ),
            ),
        )

    def open_cluster(self, name: str) -> LeftoversInMemory:
        if name not in self.clusters:
            raise CloudRefused(f"No cluster found for name: {name}")
        return self.clusters[name]

    def open_workloads(self, name: str) -> Workloads:
        return self.workloads[name]

    def copy_manifests(self, _cluster: str) -> tuple[tuple[Reason, ...], Reason | None]:
        """Keep what was written to the index before."""
        self.copies.append(list(self.written))
        return self.copied

    def record_costs(
        self,
        _cluster: str,
        instances: Sequence[ObservedInstance],
        labels: Sequence[str],
        interruptions: Sequence[ObservedInterruption],
    ) -> Recorded:
        self._fail("costs")
        found = [one.facts.instance for one in instances]
        self.costs.append((found, tuple(labels), list(interruptions)))
        return Recorded(error=self.costs_error)

    def reconciliation(self, *clusters: str) -> Reconciliation:
        """The use case with these dependencies."""
        partly: Any = self  # it has the methods that reconcile calls
        return Reconciliation(
            Dependencies(
                clusters=frozenset(clusters or self.clusters),
                origin=EventOrigin("123456789012", "us-east-1"),
                sweep=self,
                hasty_sweep=self,
                waiting=self,
                groups=partly,
                table=_Stored(self),
                policies=self,
                receive_notice=partly,
                retire_node=self,
                admit_node=self,
                launches=partly,
                group_rolls=GroupRolls(_Stored(self), partly, partly, self, self),
                copy_manifests=self.copy_manifests,
                record_costs=self.record_costs,
                open_cluster=self.open_cluster,
                open_workloads=self.open_workloads,
                clock=self,
            )
        )


class _Stored(TableInMemory):
    """The table of an account: its records, and the facts in its index."""

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._account = account

    def _get_many(self, keys: Sequence[Key], consistent: bool) -> Iterator[Item]:
        self._account._fail("known")
        with self._lock:
            self.items = {one.key: one for one in self._written()}
            return super()._get_many(keys, consistent)

    def _query_index(self, index: Index, value: str, prefix: str) -> Iterator[Item]:
        self._account._fail("index" if index is BY_CLUSTER else "records")
        with self._lock:
            found = self._written() if index is BY_CLUSTER or self._account.records_open else ()
            forged = () if index is BY_CLUSTER else self._account.forged
            self.items = {one.key: one for one in (*found, *forged)}
            return super()._query_index(index, value, prefix)

    def _change(self, put: Sequence[Item], delete: Sequence[Key]) -> None:
        self._account._fail("update")
        with self._lock:
            for item in put:
                facts = FACTS_OF_INSTANCE.read(item)
                self._account.index[facts.instance] = facts
                self._account.written.append(facts.instance)
            for key in delete:
                instance = (FACTS_OF_INSTANCE.parts(key) or {})["instance"]
                del self._account.index[instance]
                self._account.removed.append(instance)

    def _written(self) -> Iterator[Item]:
        now = self._account.now_
        for one in self._account.records:
            if isinstance(one, Admission):
                yield ADMISSION.write(one, {}, now)
            else:
                yield RETIREMENT.write(one, {}, now)
        for facts in self._account.index.values():
            yield FACTS_OF_INSTANCE.write(facts, {}, now)


OURS = facts(1)
VOLUME = Attachment("pv-1", "shop/data-0")


def observed(one: Any = OURS, state: str = "running", group: str = "") -> ObservedInstance:
    """An instance in the list of EC2; it is in the group that owns it, if one does."""
    in_its_own = one.owner.name if one.owner.kind is OwnerKind.AUTO_SCALING_GROUP else ""
    return ObservedInstance(one, state, NOTICED, group or in_its_own)


def run(account: Account, *clusters: str) -> ClusterReport:
    """Reconcile all clusters, of which there is one."""
    (report,) = account.reconciliation(*clusters).run(ReconcileRequest())
    return report


def terminated(**changes: Any) -> Account:
    """An instance that is terminated and whose Node still exists, with a volume."""
    cluster = LeftoversInMemory(
        {OURS.private_dns_name: node(OURS)}, {OURS.private_dns_name: [VOLUME]}
    )
    given: dict[str, Any] = {
        "instances_": [observed(state="terminated")],
        "fresh": {OURS.instance: "terminated"},
        "index": {OURS.instance: OURS},
        "clusters": {"prod": cluster},
    }
    return Account(**given | changes)
