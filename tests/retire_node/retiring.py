"""All that a retirement meets, in one place: time passes only when it sleeps or waits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from leeway.drain.summary import DrainState
from leeway.execution.attempt import AttemptId
from leeway.execution.shared_cache import SharedCache
from leeway.instances.facts import InstanceFacts
from leeway.instances.groups import GroupFacts, GroupRules
from leeway.interruption.ports import InstanceState
from leeway.notices import LifecycleHook, NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    HookResult,
    HookSettings,
    Launched,
    LaunchedInstance,
    LaunchError,
    LifecycleActionOver,
)
from leeway.ports.kubernetes import ClusterRefused, Marks, NodeEvent
from leeway.ports.kubernetes_objects import RETIRING, Attachment, Node, Pod, Response
from leeway.ports.table import CachedValue, Offering, RecordChanged
from leeway.retire_node.dependencies import Dependencies
from leeway.retire_node.outcome import Outcome
from leeway.retire_node.retire_node import RetireNode
from leeway.retirement.disruption_budget import DisruptionLedger
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext
from leeway.selection.offers.unavailable import Unavailable

from tests.drain.feeds import ListedPods
from tests.retirement.retirements import FACTS, HOOK, NOTICED, take

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)
HOOKED = ("leeway-drain",)
ORDER = AttemptId(FACTS.instance, FACTS.cluster, 1)
SUCCESSOR = "i-0successor00000000"
ZONES = (FACTS.zone, "us-east-1f")
OTHERS = ("i-0other000000000000", "i-0third000000000000")


@dataclass
class DisruptionLedgersInMemory:
    """The Ledgers Protocol."""

    churns: dict[str, DisruptionLedger] = field(default_factory=dict)

    def ledger(self, cluster: str) -> DisruptionLedger:
        return self.churns.get(cluster, DisruptionLedger(cluster=cluster))

    def write(self, ledger: DisruptionLedger) -> None:
        if ledger.version != self.ledger(ledger.cluster).version + 1:
            raise RecordChanged(ledger.cluster)
        self.churns[ledger.cluster] = ledger


@dataclass
class OfferingsInMemory:
    """The UnavailableOfferings Protocol."""

    marked: list[Offering] = field(default_factory=list)

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        self.marked.append(offering)

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        return frozenset(
            Unavailable(one.instance_type, one.zone, one.capacity_type) for one in self.marked
        )


@dataclass
class CacheStoreInMemory:
    """The Memory Protocol."""

    recalled: dict[str, CachedValue] = field(default_factory=dict)
    asked_until: dict[str, datetime] = field(default_factory=dict)

    def get(self, what: str) -> CachedValue | None:
        return self.recalled.get(what)

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        if now <= self.asked_until.get(what, NOTICED - timedelta(days=1)):
            return False
        self.asked_until[what] = until
        return True

    def put(self, what: str, value: CachedValue) -> None:
        self.recalled[what] = value


@dataclass
class Surrounding:
    """A record, a group with three instances, a node with pods, and whoever is told.

    `starts_in` is how many seconds an instance takes from its launch to a Ready node; None: for
    ever. The retiring one's own node is there from `joins_in` seconds after the notice on. `full`
    are the zones without capacity, `dies` says that the successor goes before it is Ready, and
    `refuses` what the group says to LaunchInstances. `done` is what was done to the world, in
    order, each with its moment.
    """

    record: Retirement
    lists: bool = True
    detaches: bool = True
    protected: bool = False
    blocks: bool = True
    announces: bool = True
    cordons_refused: int = 0
    refusals: int = 0
    answers: int = 0
    timeout: int = 300
    with_target: tuple[str, ...] = ()
    beaten: list[datetime] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    policy: ClusterPolicy = field(default_factory=ClusterPolicy)
    facts_: dict[str, Any] = field(default_factory=dict)
    desired: int = 3
    maximum: int = 6
    hooks: tuple[str, ...] = ()
    tells_of_hooks: bool = False
    state: str | None = "InService"
    starts_in: float | None = 60
    joins_in: float = 0.0
    launched_at: datetime | None = None
    launched: dict[str, Launched] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    refuses: str = ""
    dies: bool = False
    offerings: OfferingsInMemory = field(default_factory=OfferingsInMemory)
    annotations: dict[str, str] = field(default_factory=dict)
    marked: bool = False
    ready: int = 20
    ledgers: DisruptionLedgersInMemory = field(default_factory=DisruptionLedgersInMemory)
    memory: CacheStoreInMemory = field(default_factory=CacheStoreInMemory)
    looks: list[str] = field(default_factory=list)
    searched: int = 0
    lingers: float = 0.0
    looked: list[datetime] = field(default_factory=list)
    waited: timedelta = timedelta(0)
    now_: datetime = NOTICED
    operations: int = 0
    asked: int = 0
    told: list[str] = field(default_factory=list)
    shown: list[DrainState] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    done: list[tuple[str, datetime]] = field(default_factory=list)
    before_step: Callable[[str], None] = lambda _: None

    def did(self, what: str) -> None:
        self.done.append((what, self.now_))

    def order_of(self, *wanted: str) -> list[str]:
        """What was done of these, in order."""
        return [what for what, _ in self.done if what in wanted]

    # Clock
    def now(self) -> datetime:
        self.now_ += timedelta(milliseconds=1)
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=max(0.0, seconds))

    # Steps
    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self.operations += 1
        self.before_step(name)
        return work()

    def wait(self, name: str, seconds: int) -> None:
        self.operations += 1
        self.waited += timedelta(seconds=seconds)
        self.sleep(seconds)

    # Records and policies
    def retirement(self, instance: str) -> Retirement:
        return self.record

    def known(self, instance: str) -> InstanceState:
        return InstanceState(self.record)

    def write(self, record: Retirement) -> None:
        if record.version != self.record.version + 1:
            raise RecordChanged(record.instance)
        self.record = record

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy

    # Groups and Instances
    def rules(self, group: str) -> GroupRules:
        self.looks.append(f"rules of {group}")
        rules: dict[str, Any] = {
            "name": group,
            "capacity_rebalance": False,
            "refreshing": False,
            "suspended": frozenset(),
            "terminate_hooks": self.hooks,
            "timeouts": dict.fromkeys(self.hooks, self.timeout),
            "zones": ZONES,
            "with_target": frozenset(self.with_target),
        }
        kept = {name: value for name, value in self.facts_.items() if name in rules}
        return GroupRules(**rules | kept)

    def facts(self, instance: str) -> GroupFacts | None:
        self.looks.append("facts")
        state = self.state
        if instance == SUCCESSOR:
            state = "InService" if self.launched_at and not self.dies else None
        if state is None:
            return None
        facts: dict[str, Any] = {
            "name": "ng",
            "lifecycle_state": state,
            "capacity_rebalance": False,
            "refreshing": False,
            "suspended": frozenset(),
            "terminate_hooks": self.hooks,
            "desired": self.desired,
            "maximum": self.maximum,
            "zones": ZONES,
        }
        return GroupFacts(**facts | self.facts_)

    def missing(self, group: str) -> int:
        there = len(OTHERS) + len(self.came()) + (self.state == "InService")
        return max(0, self.desired - there)

    def came(self) -> tuple[str, ...]:
        """The successor, once it is launched."""
        return () if self.launched_at is None else (SUCCESSOR,)

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        if self.refuses:
            raise CloudRefused(self.refuses)
        if token in self.launched:
            return self.launched[token]
        if self.desired + units > self.maximum:
            raise CloudRefused("ValidationError: the new desired capacity is above the maximum")
        if zone in self.full:
            lacks = LaunchError(FACTS.instance_type, zone, "InsufficientInstanceCapacity", "none")
            answer = Launched((), (lacks,))
        else:
            self.did("launch")
            self.desired += units
            self.launched_at = self.now_
            answer = Launched((LaunchedInstance(SUCCESSOR, FACTS.instance_type, zone),))
        self.launched[token] = answer
        return answer

    def launched_in(self, group: str, since: datetime) -> list[InstanceFacts]:
        if self.launched_at is None or self.launched_at < since.replace(microsecond=0):
            return []
        found = self.describe(SUCCESSOR)
        return [found] if found else []

    def describe(self, instance: str) -> InstanceFacts | None:
        if instance != SUCCESSOR:
            return None
        return FACTS.model_copy(update={"instance": instance, "private_dns_name": "new"})

    def detach(self, instance: str, group: str) -> None:
        self.asked += 1
        if not self.detaches:
            raise CloudRefused("AccessDenied: autoscaling:DetachInstances")
        self.did("detach")
        self.state = None
        self.launched_at = self.now_

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        if instance == SUCCESSOR:
            self.did("end successor and decrement" if decrement else "end successor")
            self.desired -= decrement
            self.launched_at = None if decrement else self.now_
            return
        assert self.hooks or not self.pods, "no hook keeps it for its pods"
        self.did("terminate and decrement" if decrement else "terminate")
        self.state = "Terminating:Wait"
        if self.tells_of_hooks:
            self.write(
                self.record.model_copy(
                    update={
                        "hooks": tuple(LifecycleHook("ng", name) for name in self.hooks),
                        "version": self.record.version + 1,
                    }
                )
            )
        if decrement:
            self.desired -= 1
        else:
            self.launched_at = self.now_

    def hook_settings(self, hook: LifecycleHook) -> HookSettings:
        return HookSettings(self.timeout, has_target=hook.name in self.with_target)

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        self._look_whether_it_waits(hook)
        self.beaten.append(self.now_)

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        self.answers += 1
        if self.answers <= self.refusals:
            raise CloudRefused("AccessDenied: autoscaling:CompleteLifecycleAction")
        assert result is HookResult.CONTINUE
        self._look_whether_it_waits(hook)
        self.ended.append(hook.name)

    def _look_whether_it_waits(self, hook: LifecycleHook) -> None:
        alive = (self.beaten or [NOTICED])[-1] + timedelta(seconds=self.timeout)
        end = NOTICED + min(timedelta(hours=48), 100 * timedelta(seconds=self.timeout))
        if self.now_ > min(alive, end) or hook.name in self.ended:
            raise LifecycleActionOver("No active Lifecycle Action found")

    def terminate(self, instance: str) -> None:
        if self.protected:
            raise CloudRefused("OperationNotPermitted: disableApiTermination")
        self.ended.append("terminated")

    # Announcements and Telemetry
    def publish(self, detail_type: str, detail: str) -> None:
        if not self.announces:
            raise CloudRefused("AccessDenied: events:PutEvents")

    def waiting(self, record: Retirement, reason: str) -> None:
        self.told.append(f"waits: {reason}")

    def retired(self, outcome: Outcome) -> None:
        self.told.append(outcome.sentence)

    def retirement_not_reported(self, outcome: Outcome, problem: str) -> None:
        self.told.append(problem)

    # Cluster
    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        self.searched += 1
        return self.node("new") if instance == SUCCESSOR else self._joined(instance)

    def _joined(self, instance: str) -> Node | None:
        if self.now_ < NOTICED + timedelta(seconds=self.joins_in):
            return None
        provider = f"aws:///z/{instance}"
        labels = {RETIRING: "rebalance"} if self.marked else {}
        return Node("node-1", "uid", provider, False, True, labels, annotations=self.annotations)

    def node(self, name: str) -> Node | None:
        if name in (FACTS.private_dns_name, "node-1"):
            return self._joined(FACTS.instance)
        if name != "new" or self.launched_at is None or self.starts_in is None:
            return None
        ready = self.now_ >= self.launched_at + timedelta(seconds=self.starts_in)
        return Node("new", "uid-2", f"aws:///z/{SUCCESSOR}", False, ready, {})

    def cordon(self, node: str, marks: Marks | None) -> None:
        if self.cordons_refused > 0:
            self.cordons_refused -= 1
            raise ClusterRefused("403: nodes is forbidden: cannot patch resource")
        self.did("cordon")
        self.marked = True

    def release(self, node: str, attempt: int | None = None) -> bool:
        self.did("release")
        self.marked = False
        return True

    def exclude_from_load_balancers(self, node: str) -> bool:
        return True

    def nodes(self) -> list[Node]:
        return []

    def ready_nodes(self) -> int:
        return self.ready

    def attachments_on(self, node: str) -> list[Attachment]:
        return []

    def watch_pods(self, node: str, selector: str = "") -> ListedPods:
        return ListedPods(lambda name: self.pods_on(name), node, self.sleep)

    def eviction_is_granted(self, pod: Pod) -> bool:
        return False

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        return ()

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        if not self.lists:
            raise ClusterRefused(
                '403: pods is forbidden: User "leeway" cannot list resource "pods"'
            )
        self.looked.append(self.now_)
        self.pods = [
            pod
            for pod in self.pods
            if pod.deletion is None or pod.kept_by or self.now_ < pod.deletion
        ]
        return self.pods

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        self.did("evict")
        if self.lingers and not self.blocks:
            gone_at = self.now_ + timedelta(seconds=self.lingers)
            self.pods = [replace(p, deletion=gone_at) if p == pod else p for p in self.pods]
            return Response(201)
        if not self.blocks:
            self.pods = [other for other in self.pods if other != pod]
            return Response(201)
        causes = (("DisruptionBudget", "budget web allows none"),)
        return Response(429, reason="TooManyRequests", causes=causes)

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        self.did("delete")
        self.pods = []
        return Response(200)

    def label(self, node: str, labels: Mapping[str, str]) -> None:
        raise AssertionError("a node on its way out is asked to have no labels")

    def write_event(self, event: NodeEvent) -> None:
        self.told.append(event.reason)

    def show(self, state: DrainState) -> None:
        self.shown.append(state)
        if len(self.shown) == 1:
            raise CloudUnavailable("nobody can be told")

    def run_attempt(self, attempt: int = 1) -> Outcome | None:
        """Run one attempt of the retirement to its end."""
        order = AttemptId(ORDER.instance, ORDER.cluster, attempt)
        return RetireNode(self.dependencies).retire(order, self)

    @property
    def dependencies(self) -> Dependencies:
        """Itself, in every part."""
        return Dependencies(
            context=StepContext(self, lambda _: self, self),
            ledgers=self.ledgers,
            policies=self,
            groups=self,
            cache=SharedCache(self.memory, self),
            instances=self,
            announcements=self,
            drains=self,
            telemetry=self,
            offerings=self.offerings,
            region="us-east-1",
        )


def surrounding(kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, **changes: Any) -> Surrounding:
    """A retirement that such a notice starts, and what it meets."""
    hook = HOOK if kind is NoticeKind.TERMINATE_HOOK else None
    at = {}
    if kind is NoticeKind.SCHEDULED_CHANGE:
        at = {"effective_at": NOTICED + timedelta(hours=4), "event": "arn:change"}
    return Surrounding(take(None, kind, "n-1", hook=hook, **at).record, **changes)


def retire(world: Surrounding) -> Outcome:
    """Run the first attempt, which nothing takes over."""
    outcome = world.run_attempt()
    assert outcome is not None
    return outcome


def rebalanced(**changes: object) -> Surrounding:
    return surrounding(
        NoticeKind.REBALANCE, **{"pods": [POD], "blocks": False, "hooks": HOOKED} | changes
    )


def next_attempt(world: Surrounding) -> Outcome:
    outcome = world.run_attempt(world.record.attempt)
    assert outcome is not None
    return outcome
