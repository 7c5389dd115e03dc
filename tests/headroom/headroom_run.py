"""One cluster whose headroom a test reconciles: its manifests, its policy, and the time."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from leeway.headroom.keep_headroom import HeadroomReport, KeepHeadroom
from leeway.headroom.reconciler import STATUS, HeadroomStatus
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.manifests.configuration import Configuration
from leeway.manifests.headroom import desired_headroom
from leeway.manifests.reading import Written
from leeway.policy.rules import ClusterPolicy

from tests.fakes.table import TableInMemory
from tests.manifests.texts import written
from tests.sandbox.kubernetes.live import DEPLOYMENTS, Live, deployment

NUMBERS = count(1)
NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class HeadroomRun(Configuration):
    """The manifests, the policy, the time and the stored statuses, as a test sets them."""

    def __init__(self, live: Live, workloads: HttpWorkloads) -> None:
        self.live = live
        self.written: tuple[Written, ...] = ()
        self.policy = ClusterPolicy()
        self.unreadable: frozenset[str] = frozenset()
        self.table = TableInMemory()
        self.at = NINE
        self.clock_step = timedelta(0)
        """How much time passes at every read of the clock."""
        self.reports: list[HeadroomReport] = []
        self.name = f"t{next(NUMBERS)}"
        self._use_case = KeepHeadroom(
            partial(desired_headroom, self),
            self.faulty,
            self.table,
            lambda _: workloads,
            self.reports.append,
            self,
        )

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Written, ...]:
        return tuple(one for one in self.written if one.kind.resource in resources)

    def unread(self, cluster: str, resources: Collection[str]) -> frozenset[str]:
        return self.unreadable

    def faulty(self, cluster: str) -> int:
        return len(self.unreadable)

    def now(self) -> datetime:
        self.at += self.clock_step
        return self.at

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a run sleeps {seconds} s")

    def apply(self, *documents: dict[str, Any]) -> None:
        """Replace all manifests."""
        self.written = written(*documents)

    def run(self, at: datetime | None = None) -> HeadroomReport:
        self.at = at or self.at
        (report,) = self._use_case.run(["prod"])
        return report

    def statuses(self) -> dict[str, HeadroomStatus]:
        """The stored statuses by subject."""
        return {one.subject: one for one in self.table.list(STATUS, cluster="prod")}

    def replicas(self, name: str, namespace: str = "default") -> int | None:
        """The replicas in the spec of a Deployment; None if it does not exist."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        found = self.live.api.get(path)
        return int(found.json()["spec"]["replicas"]) if found.status_code == 200 else None

    def buffer(self) -> int | None:
        """The replicas of the buffer `warm` of this test's Headroom."""
        return self.replicas(f"{self.name}-warm", self.name)

    def headroom(self, **buffer: Any) -> dict[str, Any]:
        """A Headroom in a namespace of this test."""
        self.live.api.post("/api/v1/namespaces", json={"metadata": {"name": self.name}})
        sized = {"name": "warm", "pod": {"requests": {"cpu": "10m"}}, **buffer}
        return {
            "apiVersion": "leeway.sh/v1",
            "kind": "Headroom",
            "metadata": {"name": self.name},
            "spec": {"namespace": self.name, "buffers": [sized]},
        }

    def scaled_object(
        self, target: str, name: str = "", namespace: str = "default", **spec: Any
    ) -> dict[str, Any]:
        """A ScaledObject with 5 replicas from nine to ten."""
        cron = {"timezone": "UTC", "start": "0 9 * * *", "end": "0 10 * * *"}
        trigger = {"type": "cron", "metadata": {**cron, "desiredReplicas": "5"}}
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name or target, "namespace": namespace},
            "spec": {"scaleTargetRef": {"name": target}, "triggers": [trigger], **spec},
        }

    def deploy(self, replicas: int) -> str:
        """Create a Deployment of a user."""
        self.live.create(DEPLOYMENTS, deployment(self.name, replicas))
        return self.name


WINDOW = {"timezone": "UTC", "start": "0 9 * * *", "end": "0 10 * * *", "replicas": 3}


def capacity_buffer(headroom: HeadroomRun, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": headroom.name, "namespace": "default"},
        "spec": {"scalableRef": {"kind": "Deployment", "name": headroom.name}, **spec},
    }
