"""A workload with a budget, and its controller, on the cluster of a retirement."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused
from leeway.ports.kubernetes_objects import Controller, Node, Pod, Response
from leeway.ports.workloads import SURGE_MANAGER, BudgetHealth, Replica, Replicas, Workload

from tests.fakes.cluster import FakeCluster
from tests.retirement.retirements import NOTICED

BUDGET = "web-budget"


def pod_of(name: str, controller: Controller) -> Pod:
    """Return a pod on the node of the retirement."""
    return Pod("shop", name, f"uid-{name}", "Running", 30, controller, created=NOTICED)


@dataclass
class FakeWorkloads:
    """The Workloads Protocol: one workload, the controller that creates and deletes its pods, and
    the budget that selects them.

    - `workload`: as it is read. Its size and version change.
    - `pods`: each with the time at which it serves. `fewest`: how few of them served at any moment.
    - `share`: whether the budget counts the additional pod as required (`maxUnavailable: 0`).
    - `serves_in`: seconds from the creation of a pod until it serves; None: it never serves.
    - `refuses`: what the API server answers to a scale, or with `lacks_right` to everything.
    - `scales`: every size that was written. `finds`: how often it was read; each takes `takes`
      seconds.
    """

    cluster: FakeCluster
    workload: Workload
    pods: dict[str, Replica] = field(default_factory=dict)
    serving_at: dict[str, datetime] = field(default_factory=dict)
    share: bool = False
    shared: bool = True
    autoscalers: tuple[str, ...] = ()
    serves_in: float | None = 20.0
    refuses: str = ""
    lacks_right: bool = False
    goes: bool = False
    scales: list[int] = field(default_factory=list)
    fewest: int = 1
    conflicts: int = 0
    finds: int = 0
    takes: float = 0.0

    def __post_init__(self) -> None:
        for pod in self.cluster.pods:
            self._add(pod.name, pod.uid, "node-1", NOTICED)

    @property
    def _now(self) -> datetime:
        return self.cluster.groups.actions.clock.time

    def _add(self, name: str, uid: str, node: str, serving_at: datetime | None) -> None:
        self.pods[uid] = Replica(name, uid, node, self._now, serves=False)
        if serving_at is not None:
            self.serving_at[uid] = serving_at

    @property
    def serving(self) -> list[Replica]:
        """The pods that serve now."""
        return [
            one
            for one in self.pods.values()
            if one.uid in self.serving_at and self.serving_at[one.uid] <= self._now
        ]

    @property
    def health(self) -> BudgetHealth:
        """The budget: one pod, or with `share` all that the workload has to have."""
        required = self.workload.replicas if self.share else 1
        healthy = len(self.serving)
        return BudgetHealth(max(0, healthy - required), healthy, required)

    def remove(self, uid: str) -> None:
        """End a pod; its controller creates another one if there are too few."""
        gone = self.pods.pop(uid)
        if self.workload.kind == "StatefulSet":
            self._create(gone.name)
        self.control()

    def control(self) -> None:
        """Do what the controller does: delete surplus pods, those that do not serve first."""
        while len(self.pods) > self.workload.replicas:
            order = sorted(
                self.pods.values(),
                key=lambda one: (
                    (one.name if self.workload.kind == "StatefulSet" else ""),
                    one not in self.serving,
                    one.created,
                ),
            )
            del self.pods[order[-1].uid]
        while len(self.pods) < self.workload.replicas:
            self._create(f"{self.workload.name}-{len(self.pods)}")
        self.fewest = min(self.fewest, len(self.serving))

    def _create(self, name: str) -> None:
        uid = f"uid-{name}-{self._now:%H%M%S%f}-{len(self.pods)}"
        at = None if self.serves_in is None else self._now + timedelta(seconds=self.serves_in)
        self._add(name, uid, "node-2", at)

    def resize(self, replicas: int, manager: str) -> None:
        """Write the size, as any client."""
        version = str(int(self.workload.version) + 1)
        self.workload = replace(
            self.workload, replicas=replicas, version=version, sizers=frozenset({manager})
        )
        self.control()

    def _check(self) -> None:
        if self.lacks_right:
            raise ClusterForbidden(
                '403: deployments.apps "web" is forbidden: User "leeway" cannot get resource '
                '"deployments" in API group "apps" in the namespace "shop"'
            )

    def find(self, namespace: str, kind: str, name: str) -> Workload | None:
        self.finds += 1
        self.cluster.groups.actions.clock.sleep(self.takes)
        self._check()
        return self.workload

    def scalers(self, workload: Workload) -> tuple[str, ...]:
        return self.autoscalers

    def replicas(self, workload: Workload) -> Replicas:
        serving = self.serving
        pods = (replace(one, serves=one in serving) for one in self.pods.values())
        return Replicas(tuple(pods), self.shared)

    def budget(self, namespace: str, name: str) -> BudgetHealth | None:
        return self.health if name == BUDGET else None

    def scale(self, workload: Workload, replicas: int) -> bool:
        if self.refuses and replicas > self.workload.replicas:
            raise ClusterRefused(self.refuses)
        if self.conflicts or workload.version != self.workload.version:
            self.conflicts = max(0, self.conflicts - 1)
            return False
        self.scales.append(replicas)
        self.cluster.groups.actions.add(f"scale {replicas}")
        self.resize(replicas, SURGE_MANAGER)
        return True


@dataclass
class BudgetedCluster(FakeCluster):
    """A cluster in which the budget of the workload decides about evictions."""

    workloads: FakeWorkloads | None = None

    @property
    def world(self) -> FakeWorkloads:
        """The workload."""
        assert self.workloads is not None
        return self.workloads

    def node(self, name: str) -> Node | None:
        if name == "node-2":
            return Node("node-2", "uid-3", "aws:///z/i-2", self.world.goes, True, {})
        return super().node(name)

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        if self.world.health.allowed < 1:
            why = f"The disruption budget {BUDGET} needs 1 healthy pods and has 1 currently"
            return Response(429, "the budget", "TooManyRequests", (("DisruptionBudget", why),))
        if dry_run:
            return Response(201)
        self.groups.actions.add("evict")
        return self._removed(pod)

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        self.groups.actions.add("delete")
        return self._removed(pod)

    def _removed(self, pod: Pod) -> Response:
        self.pods = [one for one in self.pods if one != pod]
        if pod.uid in self.world.pods:
            self.world.remove(pod.uid)
        return Response(201)
