"""A cluster with the node of the retiring instance, its pods, and the node of the successor."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from leeway.ports.kubernetes import (
    ClusterRefused,
    ClusterUnavailable,
    Event,
    Marks,
    NodeCount,
)
from leeway.ports.kubernetes_objects import (
    RETIRING,
    Attachment,
    Condition,
    Node,
    Pod,
    Response,
    Taint,
)
from leeway.reasons import Reason
from leeway.selection.labels import INITIALIZED, READINESS

from tests.fakes.groups import SUCCESSOR, FakeGroups
from tests.fakes.pod_feed import ListedPods
from tests.fakes.reports import ReportLog
from tests.retirement.retirements import FACTS, NOTICED

STARTUP_TAINT = Taint(f"{READINESS}network", "", "NoSchedule")


@dataclass
class FakeCluster:
    """The Cluster Protocol.

    - `joins_in`: seconds from the notice until the retiring instance has a node. `starts_in`:
      seconds from the launch until the successor's node is Ready, None if it never is.
      `settles_in`: seconds from then until it is ready for pods: it has its `startup_taints` until
      then, and its `settled_labels` from then on. `successor_pods`: the pods on it.
    - `blocks`: a budget blocks every eviction. `ends_in`: seconds that an evicted pod takes.
    - `down_for`: seconds from the notice for which the API server does not answer;
      `uncounted_for`: seconds for which it does not list all nodes.
    - `unready`: how many other nodes are not Ready. `conditions`: those of the retiring node.
    - `lists`: whether pods may be listed. `cordons_refused`: how many cordons are refused.
    - `searches`: how often all nodes were searched. `listed_at`: when pods were listed.
    """

    groups: FakeGroups
    reports: ReportLog
    pods: list[Pod] = field(default_factory=list)
    blocks: bool = True
    ends_in: float = 0.0
    lists: bool = True
    cordons_refused: int = 0
    joins_in: float = 0.0
    down_for: float = 0.0
    uncounted_for: float = 0.0
    starts_in: float | None = 60
    settles_in: float = 0.0
    startup_taints: tuple[Taint, ...] = (STARTUP_TAINT,)
    settled_labels: dict[str, str] = field(default_factory=lambda: {INITIALIZED: "true"})
    successor_pods: list[Pod] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    marked: bool = False
    ready: int = 20
    unready: int = 0
    conditions: tuple[Condition, ...] = ()
    searches: int = 0
    listed_at: list[datetime] = field(default_factory=list)

    @property
    def _now(self) -> datetime:
        return self.groups.actions.clock.time

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        self.searches += 1
        return self.node("new") if instance == SUCCESSOR else self._node_of(instance)

    def _node_of(self, instance: str) -> Node | None:
        if self._now < NOTICED + timedelta(seconds=self.down_for):
            raise ClusterUnavailable("connection refused")
        if instance != FACTS.instance or self._now < NOTICED + timedelta(seconds=self.joins_in):
            return None
        labels = {RETIRING: "rebalance"} if self.marked else {}
        annotations = self.annotations
        return Node(
            "node-1",
            "uid",
            f"aws:///z/{instance}",
            False,
            True,
            labels,
            annotations=annotations,
            conditions=self.conditions,
        )

    def node(self, name: str) -> Node | None:
        if name in (FACTS.private_dns_name, "node-1"):
            return self._node_of(FACTS.instance)
        launched_at = self.groups.launched_at
        if name != "new" or launched_at is None or self.starts_in is None:
            return None
        ready_at = launched_at + timedelta(seconds=self.starts_in)
        settled = self._now >= ready_at + timedelta(seconds=self.settles_in)
        return Node(
            "new",
            "uid-2",
            f"aws:///z/{SUCCESSOR}",
            False,
            self._now >= ready_at,
            self.settled_labels if settled else {},
            taints=() if settled else self.startup_taints,
        )

    def nodes(self) -> list[Node]:
        return []

    def count_nodes(self) -> NodeCount:
        if self._now < NOTICED + timedelta(seconds=self.uncounted_for):
            raise ClusterUnavailable("connection refused")
        return NodeCount(self.ready + self.unready, self.ready)

    def cordon(self, node: str, marks: Marks | None) -> None:
        if self.cordons_refused > 0:
            self.cordons_refused -= 1
            raise ClusterRefused("403: nodes is forbidden: cannot patch resource")
        self.groups.actions.add("cordon")
        self.marked = True

    def release(self, node: str, attempt: int | None = None) -> bool:
        self.groups.actions.add("release")
        released, self.marked = self.marked, False
        return released

    def exclude_from_load_balancers(self, node: str) -> bool:
        return True

    def set_up(self, node: Node, labels: Mapping[str, str], *more: Any) -> bool:
        raise AssertionError("retire_node sets up no node")

    def attachments_on(self, node: str) -> list[Attachment]:
        return []

    def watch_pods(self, node: str, selector: str = "") -> ListedPods:
        return ListedPods(lambda name: self.pods_on(name), node, self.groups.actions.clock.sleep)

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        if not self.lists:
            raise ClusterRefused(
                '403: pods is forbidden: User "leeway" cannot list resource "pods"'
            )
        if node == "new":
            return self.successor_pods
        self.listed_at.append(self._now)
        self.pods = [
            pod
            for pod in self.pods
            if pod.deletion is None or pod.kept_by or self._now < pod.deletion
        ]
        return self.pods

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        return ()

    def eviction_is_granted(self, pod: Pod) -> bool:
        return False

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        if not dry_run:
            self.groups.actions.add("evict")
        if self.blocks:
            causes = (("DisruptionBudget", "budget web allows none"),)
            return Response(429, "the budget", "TooManyRequests", causes)
        if dry_run:
            return Response(201)
        if self.ends_in:
            gone_at = self._now + timedelta(seconds=self.ends_in)
            self.pods = [replace(p, deletion=gone_at) if p == pod else p for p in self.pods]
        else:
            self.pods = [other for other in self.pods if other != pod]
        return Response(201)

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        self.groups.actions.add("delete")
        self.pods = []
        return Response(200)

    def write_event(self, event: Event) -> None:
        self.reports.reasons.append(Reason(event.reason, event.message))
