"""All that a reconciliation meets, in one place and by hand: EC2, groups, records, and clusters."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
from leeway.instances.observed import (
    ObservedChange,
    ObservedHook,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.instances.owners import Owner, OwnerKind
from leeway.interruption.ports import InstanceState
from leeway.interruption.receive_notice import InstanceOutcome, NoticeOutcome, NoticeResult
from leeway.notices import LifecycleHook
from leeway.notices.parse import parse_notice
from leeway.notices.synthetic import EventOrigin
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
from leeway.reconciliation.ports import UnderWay
from leeway.reconciliation.reconcile import ClusterReport, Dependencies, Reconciliation, Round
from leeway.retirement.record import Retirement

from tests.retirement.retirements import FACTS, NOTICED


def facts(number: int, cluster: str = "prod", owner: Owner = FACTS.owner) -> InstanceFacts:
    """Facts of the instance of this number."""
    return FACTS.model_copy(
        update={
            "instance": f"i-{number:017x}",
            "cluster": cluster,
            "private_dns_name": f"ip-10-0-0-{number}.ec2.internal",
            "owner": owner,
        }
    )


def node(one: InstanceFacts, **changes: Any) -> Node:
    """The Node of an instance, which is not Ready."""
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
class OneCluster:
    """The Remains Protocol: nodes by name, and the volumes that are attached to each."""

    nodes: dict[str, Node] = field(default_factory=dict)
    volumes: dict[str, list[Attachment]] = field(default_factory=dict)
    marked: list[str] = field(default_factory=list)
    stuck: bool = False
    down: bool = False
    waits_for: Callable[[], object] | None = None
    """What a call waits for before it fails, where the API server does not answer."""
    vouched: list[str] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    """The nodes whose attachments were listed."""
    deleted: list[tuple[str, int]] = field(default_factory=list)

    def unready(self) -> list[Node]:
        self._look_whether_it_is_up()
        return [one for one in self.nodes.values() if not one.ready]

    def retiring(self) -> list[str]:
        self._look_whether_it_is_up()
        return self.marked

    def node(self, name: str) -> Node | None:
        self._look_whether_it_is_up()
        return self.nodes.get(name)

    def nodes_with_volumes(self) -> frozenset[str]:
        self._look_whether_it_is_up()
        return frozenset(name for name, volumes in self.volumes.items() if volumes)

    def attachments_on(self, node: str) -> list[Attachment]:
        self._look_whether_it_is_up()
        self.looked_at.append(node)
        return list(self.volumes.get(node, []))

    def mark_out_of_service(self, node: Node) -> bool:
        if not self._is_as_read(node):
            return False
        self.vouched.append(node.name)
        self.write(node.name)
        if not self.stuck:
            self.volumes.pop(node.name, None)
        return True

    def delete_node(self, node: Node) -> bool:
        if not self._is_as_read(node):
            return False
        self.deleted.append((node.name, len(self.volumes.get(node.name, []))))
        del self.nodes[node.name]
        return True

    def write(self, name: str) -> None:
        """Have somebody write the Node object."""
        here = self.nodes[name]
        self.nodes[name] = replace(here, version=f"{int(here.version or 0) + 1}")

    def _is_as_read(self, node: Node) -> bool:
        here = self.nodes.get(node.name)
        return here is not None and (here.uid, here.version) == (node.uid, node.version)

    def _look_whether_it_is_up(self) -> None:
        if self.waits_for is not None:
            self.waits_for()
            raise ClusterUnavailable("read timed out")
        if self.down:
            raise ClusterUnavailable("connection refused")


@dataclass
class World:
    """The rest. What `fails` names raises CloudUnavailable, and what `breaks` does, what nobody
    foresaw."""

    instances_: list[ObservedInstance] = field(default_factory=list)
    marked: list[ObservedInterruption] = field(default_factory=list)
    changes_: list[ObservedChange] = field(default_factory=list)
    impaired: list[ObservedImpairment] = field(default_factory=list)
    hooks: list[ObservedHook] = field(default_factory=list)
    fresh: dict[str, str] = field(default_factory=dict)
    unsaid: set[str] = field(default_factory=set)
    """The instances of which EC2 says neither a state nor that it does not know them."""
    records: list[Retirement | Admission] = field(default_factory=list)
    under_way: bool = True
    """Whether the records' work is."""
    unread: tuple[str, ...] = ()
    index: dict[str, InstanceFacts] = field(default_factory=dict)
    clusters: dict[str, OneCluster] = field(default_factory=lambda: {"prod": OneCluster()})
    policy: ClusterPolicy = field(default_factory=ClusterPolicy)
    fails: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    over: bool = False
    result: NoticeResult = NoticeResult.STARTED
    now_: datetime = NOTICED + timedelta(minutes=2)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    begun: list[Action | None] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    """The instances whose states were asked for, call by call."""
    named_: list[list[str]] = field(default_factory=list)
    """The names by which instances were looked for, call by call."""
    answers: list[tuple[str, str, HookResult]] = field(default_factory=list)
    started: list[tuple[str, str, int]] = field(default_factory=list)

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
        return self.instances_

    def interruptions(self) -> list[ObservedInterruption]:
        self._fail("interruptions")
        return self.marked

    def changes(self) -> list[ObservedChange]:
        self._fail("changes")
        return self.changes_

    def impairments(self) -> list[ObservedImpairment]:
        self._fail("impairments")
        return self.impaired

    def named(self, private_dns_names: Collection[str]) -> list[ObservedInstance]:
        self._fail("named")
        self.named_.append(sorted(private_dns_names))
        return [o for o in self.instances_ if o.facts.private_dns_name in private_dns_names]

    def states(self, instances: Collection[str]) -> dict[str, str]:
        self._fail("states")
        self.asked.append(sorted(instances))
        listed = {one.facts.instance: one.state for one in self.instances_}
        now = listed | self.fresh
        asked = set(instances) - self.unsaid
        return {name: now.get(name, "terminated") for name in asked}

    # WaitingActions and Groups
    def of_groups(self, groups: Collection[str]) -> Waiting:
        if "hooks" in self.breaks:
            raise KeyError("hooks")
        if "hooks" in self.fails:
            return Waiting((), ("hooks: RequestLimitExceeded",))
        return Waiting(tuple(one for one in self.hooks if one.hook.group in groups))

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        if self.over:
            raise LifecycleActionOver("No active Lifecycle Action found")
        self.answers.append((instance, hook.name, result))

    # Unfinished
    def unfinished(self, cluster: str) -> UnderWay:
        self._fail("records")
        mine = (one for one in self.records if one.facts.cluster == cluster)
        return UnderWay(tuple(mine) if self.under_way else (), self.unread)

    def known(self, instance: str) -> InstanceState:
        self._fail("known")
        mine = [one for one in self.records if one.instance == instance]
        return InstanceState(
            next((r for r in mine if isinstance(r, Retirement)), None),
            self.index.get(instance),
            next((a for a in mine if isinstance(a, Admission)), None),
        )

    # Index
    def of_cluster(self, cluster: str) -> dict[str, InstanceFacts]:
        self._fail("index")
        return {name: one for name, one in self.index.items() if one.cluster == cluster}

    def update(self, written: Iterable[InstanceFacts], removed: Iterable[str]) -> None:
        self._fail("update")
        for one in written:
            self.index[one.instance] = one
            self.written.append(one.instance)
        for name in removed:
            del self.index[name]
            self.removed.append(name)

    # ClusterPolicies, RetireNode and AdmitNode
    def policy_of(self, cluster: str) -> ClusterPolicy:
        self._fail(f"policy of {cluster}")
        return self.policy

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        self._fail("start")
        self.started.append((instance, cluster, attempt))

    # Reception
    def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
        notice = parse_notice(event)
        self.received.append(notice)
        self.begun.append(begun)
        return NoticeOutcome(
            notice, (InstanceOutcome(self.result, "first notice", notice.instances[0]),)
        )

    def open_cluster(self, name: str) -> OneCluster:
        if name not in self.clusters:
            raise CloudRefused(f"No cluster found for name: {name}")
        return self.clusters[name]

    def reconciliation(self, *clusters: str) -> Reconciliation:
        """The use case in this world."""
        seen: Any = self
        return Reconciliation(
            Dependencies(
                clusters=frozenset(clusters or self.clusters),
                place=EventOrigin("123456789012", "us-east-1"),
                sweep=self,
                hasty_sweep=self,
                waiting=self,
                groups=seen,
                index=self,
                records=self,
                policies=self,
                reception=seen,
                retire_node=self,
                admit_node=self,
                open_cluster=self.open_cluster,
                clock=self,
            )
        )


OURS = facts(1)
VOLUME = Attachment("pv-1", "shop/data-0")


def seen(one: Any = OURS, state: str = "running", group: str = "") -> ObservedInstance:
    in_its_own = one.owner.name if one.owner.kind is OwnerKind.AUTO_SCALING_GROUP else ""
    return ObservedInstance(one, state, NOTICED, group or in_its_own)


def run(world: World, *clusters: str) -> ClusterReport:
    (report,) = world.reconciliation(*clusters).run(Round())
    return report


def gone(**changes: Any) -> World:
    """An instance that is terminated, and whose Node is still there, with a volume."""
    cluster = OneCluster({OURS.private_dns_name: node(OURS)}, {OURS.private_dns_name: [VOLUME]})
    given: dict[str, Any] = {
        "instances_": [seen(state="terminated")],
        "fresh": {OURS.instance: "terminated"},
        "index": {OURS.instance: OURS},
        "clusters": {"prod": cluster},
    }
    return World(**given | changes)
