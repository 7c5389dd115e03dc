"""A cluster whose Nodes and pods live: instances join, are interrupted, end, and pods move.

The buyer reads it as Kubernetes objects, so that nothing is counted that it could not see.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from leeway.capacity_requests import CAPACITY_REQUEST
from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import JOIN_WITHIN
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.kept_objects import KeptObjects
from leeway.provisioning.report import ProvisioningReport
from leeway.selection.labels import CAPACITY_TYPE, INITIALIZED, NODEPOOL, REGISTERED
from leeway.selection.offers.catalog import Catalog

from tests.fakes.crashes import Crash, Crashed
from tests.launch.pools import ONE_POD_EACH, node_class, pool
from tests.provisioning.buying import Buying, request_of
from tests.provisioning.test_kills import mortal

MOST = 2
"""The limit of the pool, in nodes of 96 processors. Each has room for one pod."""

LIMITS: tuple[Mapping[str, Any], ...] = ({"nodes": MOST}, {"cpu": 96 * MOST})
RUN_SECONDS = 58


@dataclass
class Life:
    """An instance: its Node's name if it has one, and what happened to it. `failed`: the Node was
    Ready, and is not any more."""

    instance: str
    launched_at: datetime
    node: str = ""
    admitted: bool = False
    retiring: bool = False
    deleted: bool = False
    failed: bool = False


@dataclass
class Placed:
    """A pod of a workload that keeps its number of pods. `on` is its instance if it has one."""

    name: str
    created_at: datetime
    on: str = ""
    terminating: bool = False


class LivingCluster(Buying):
    """A cluster with one workload and one pool. `more` are further fields of the pool."""

    def __init__(self, catalog: Catalog, limits: Mapping[str, Any], **more: Any) -> None:
        web = pool(only=ONE_POD_EACH, limits=limits, **more)
        super().__init__(catalog, web, node_class())
        self.lives: dict[str, Life] = {}
        self.work: dict[str, Placed] = {}
        self.unreadable: set[str] = set()
        self._names = iter(range(1_000_000))

    def observe(self) -> ClusterState:
        """The cluster as a read by the API finds it."""
        kept = KeptObjects()
        for life in self.lives.values():
            if life.node:
                kept.put("Node", self._node(life))
        for one in self.work.values():
            kept.put("Pod", self._pod(one))
        state = kept.state(self.time)
        assert len(state.unreadable) == len(self.unreadable), state.unreadable
        return state

    def run_now(self, killed_at: int = 0, moment: str = "before") -> ProvisioningReport | None:
        """Run the buyer; with a number, it is killed at this call."""
        self.states.state = self.observe()
        until = self.time + timedelta(seconds=RUN_SECONDS)
        try:
            return mortal(self, Crash(killed_at, moment)).run("prod", "test", until)
        except Crashed:
            return None
        finally:
            for name in self.fleets.running.keys() - self.lives.keys():
                self.lives[name] = Life(name, self.time)

    def alive(self) -> list[Life]:
        """The instances that EC2 has not ended: those that count."""
        return [one for name, one in self.lives.items() if name not in self.fleets.ended]

    def places(self) -> int:
        """The instances that will take a pod, or could now, and have none."""
        used = {one.on for one in self.work.values()}
        return sum(
            one.instance not in used
            and not one.retiring
            and not one.deleted
            and ((one.admitted and bool(one.node)) or self.time - one.launched_at < JOIN_WITHIN)
            for one in self.alive()
        )

    def needy(self) -> int:
        """The pods that need a place: those that wait, and those that a drain will evict."""
        leaving = {one.instance for one in self.alive() if one.retiring and not one.deleted}
        pods = [one for one in self.work.values() if not one.terminating]
        return sum(not one.on or one.on in leaving for one in pods)

    def create_pods(self, count: int) -> None:
        """Scale the workload up."""
        for _ in range(count):
            name = f"web-{next(self._names)}"
            self.work[name] = Placed(name, self.time)

    def register(self, life: Life) -> None:
        """Register a Node, without the labels that admission puts on, and not Ready."""
        life.node = life.node or f"ip-{life.instance}"

    def admit(self, life: Life) -> None:
        """Make a Node Ready, with the label of its pool, unless it retires."""
        life.admitted = bool(life.node) and not life.retiring

    def schedule(self) -> None:
        """Bind pods to Ready nodes, one to each."""
        used = {one.on for one in self.work.values()}
        free = [
            one.instance
            for one in self.alive()
            if one.node and one.admitted and not (one.retiring or one.deleted)
            if one.instance not in used
        ]
        waiting = [one for one in self.work.values() if not one.on and not one.terminating]
        for pod, instance in zip(waiting, free, strict=False):
            pod.on = instance

    def retire_instance(self, life: Life) -> None:
        """Interrupt an instance, or retire its node: it is cordoned, and requests capacity."""
        if life.retiring:
            return
        life.retiring = True
        launched = self.fleets.running[life.instance]
        request = request_of(launched, life.node, self.time, timedelta(hours=2))
        self.table.put(CAPACITY_REQUEST, request.model_copy(update={"keeps_offering": True}))

    def evict(self) -> None:
        """Evict a pod of a retiring node: its successor is there at once."""
        retiring = {one.instance for one in self.alive() if one.retiring}
        for pod in self.work.values():
            if pod.on in retiring and not pod.terminating:
                pod.terminating = True
                self.create_pods(1)
                return

    def exit_pods(self) -> None:
        """Let the evicted pods end."""
        self.work = {name: pod for name, pod in self.work.items() if not pod.terminating}

    def end(self, life: Life, node_stays: bool) -> None:
        """End an instance. Its Node goes with its pods, or stays for some time."""
        self.fleets.ended.add(life.instance)
        if not node_stays:
            self.remove_node(life)

    def delete_node(self, life: Life) -> None:
        """Delete a Node that a finalizer holds."""
        life.deleted = bool(life.node)

    def remove_node(self, life: Life) -> None:
        """Remove a Node with its pods, which are created anew. The instance may run."""
        life.node, life.admitted, life.deleted = "", False, False
        lost = [pod for pod in self.work.values() if pod.on == life.instance]
        for pod in lost:
            del self.work[pod.name]
        self.create_pods(sum(not pod.terminating for pod in lost))

    def _node(self, life: Life) -> dict[str, Any]:
        launched = self.fleets.running[life.instance]
        admitted = {
            NODEPOOL: "web",
            CAPACITY_TYPE: launched.capacity_type,
            INITIALIZED: "true",
            REGISTERED: "true",
        }
        cordoned = {"unschedulable": True} if life.retiring else {}
        taints = (
            [] if life.admitted and not life.failed else [_taint("node.kubernetes.io/not-ready")]
        )
        cpu = "many" if life.node in self.unreadable else "96"
        amounts = {"cpu": cpu, "memory": "384Gi", "pods": "737"}
        deleted = {"deletionTimestamp": f"{self.time:%Y-%m-%dT%H:%M:%SZ}"} if life.deleted else {}
        return {
            "metadata": {
                "name": life.node,
                "creationTimestamp": _written(life.launched_at),
                "labels": _labels(launched) | (admitted if life.admitted else {}),
                **deleted,
            },
            "spec": {
                "providerID": f"aws:///{launched.zone}/{life.instance}",
                "taints": taints,
                **cordoned,
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        }

    def _pod(self, pod: Placed) -> dict[str, Any]:
        life = self.lives.get(pod.on)
        bound = {"nodeName": life.node} if life is not None else {}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": "uid-web",
            "controller": True,
        }
        requests = {"cpu": "90", "memory": "2Gi"}
        deleted = {"deletionTimestamp": _written(self.time)} if pod.terminating else {}
        return {
            "metadata": {
                "name": pod.name,
                "namespace": "shop",
                "uid": f"uid-{pod.name}",
                "creationTimestamp": _written(pod.created_at),
                "ownerReferences": [owner],
                **deleted,
            },
            "spec": {
                "containers": [
                    {"name": "web", "image": "web", "resources": {"requests": requests}}
                ],
                "schedulerName": "default-scheduler",
                "priority": 0,
                **bound,
            },
            "status": {"phase": "Running" if bound else "Pending"},
        }


def _labels(launched: FleetInstance) -> dict[str, str]:
    """The labels with which the kubelet registers."""
    return {
        "node.kubernetes.io/instance-type": launched.instance_type,
        "topology.kubernetes.io/zone": launched.zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }


def _taint(key: str) -> dict[str, str]:
    return {"key": key, "effect": "NoSchedule"}


def _written(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


NUMBERS = st.integers(min_value=0, max_value=2)
LONGEST = 3000
"""Seconds of a history. An instance without a Node counts for an hour after its launch."""


class ClusterHistory(RuleBasedStateMachine):
    """Histories of a cluster: instances join, retire and end, and runs die."""

    catalog: Catalog
    cluster: LivingCluster
    passed = 0

    def run(self, killed_at: int = 0, moment: str = "before") -> None:
        """Run, and check what holds; a run can die at a call."""
        raise NotImplementedError

    def one(self, number: int) -> Life | None:
        """One of the instances that run, if any does."""
        alive = self.cluster.alive()
        return alive[number % len(alive)] if alive else None

    @rule(call=st.integers(min_value=1, max_value=45), moment=st.sampled_from(["before", "after"]))
    def kill_a_run(self, call: int, moment: str) -> None:
        self.run(call, moment)

    @rule(number=NUMBERS, ready=st.booleans())
    def join(self, number: int, ready: bool) -> None:
        if one := self.one(number):
            self.cluster.register(one)
            if ready:
                self.cluster.admit(one)
                self.cluster.schedule()

    @rule(number=NUMBERS)
    def retire(self, number: int) -> None:
        if one := self.one(number):
            self.cluster.retire_instance(one)
        self.run()

    @rule(number=NUMBERS, node_stays=st.booleans())
    def end(self, number: int, node_stays: bool) -> None:
        if one := self.one(number):
            self.cluster.end(one, node_stays)

    @rule(seconds=st.sampled_from([1, 20, 70, 200, 900]))
    def wait(self, seconds: int) -> None:
        if self.passed + seconds <= LONGEST:
            self.cluster.sleep(seconds)
            self.passed += seconds
        self.run()


def live_through(history: type[ClusterHistory], catalog: Catalog) -> None:
    """Check random histories of this class."""
    run_state_machine_as_test(
        type("Case", (history,), {"catalog": catalog}),
        settings=settings(max_examples=25, stateful_step_count=15, phases=[Phase.generate]),
    )
