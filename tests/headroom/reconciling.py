"""What headroom is asked for in a test, by whom, and when: one cluster and one keeper."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import yaml
from leeway.headroom.keep_headroom import HeadroomReport, KeepHeadroom
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.manifests.headroom_source import HeadroomSource
from leeway.manifests.interpreting import Written
from leeway.manifests.reading import read_manifests
from leeway.policy.rules import ClusterPolicy

from tests.headroom.headroom_states import HeadroomInMemory
from tests.sandbox.kubernetes.live import DEPLOYMENTS, Live, deployment

NUMBERS = count(1)
NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Desk:
    """What users wrote, the time, and what is remembered, each as a test sets it."""

    def __init__(self, live: Live, workloads: HttpWorkloads) -> None:
        self.live = live
        self.written: tuple[Written, ...] = ()
        self.policy = ClusterPolicy()
        self.unreadable: frozenset[str] = frozenset()
        self.states = HeadroomInMemory()
        self.at = NINE
        self.takes = timedelta(0)
        """What every look at the clock finds to have passed."""
        self.seen: list[HeadroomReport] = []
        self.name = f"t{next(NUMBERS)}"
        self._keeper = KeepHeadroom(
            HeadroomSource(self), self.states, lambda _: workloads, self, self
        )

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Written, ...]:
        return tuple(one for one in self.written if one.kind.resource in resources)

    def unread(self, cluster: str, resources: Collection[str]) -> frozenset[str]:
        return self.unreadable

    def faulty(self, cluster: str) -> int:
        return len(self.unreadable)

    def headroom_kept(self, report: HeadroomReport) -> None:
        self.seen.append(report)

    def now(self) -> datetime:
        self.at += self.takes
        return self.at

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a tick waits for nothing, let alone {seconds} s")

    def apply(self, *documents: dict[str, Any]) -> None:
        """Have these manifests, and no others."""
        reading = read_manifests(yaml.safe_dump_all(documents), "desk")
        assert not reading.problems
        self.written = reading.written

    def tick(self, at: datetime | None = None) -> HeadroomReport:
        self.at = at or self.at
        (report,) = self._keeper.tick(["prod"])
        return report

    def replicas(self, name: str, namespace: str = "default") -> int | None:
        """The size that a Deployment is to have; None where there is none."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        found = self.live.api.get(path)
        return int(found.json()["spec"]["replicas"]) if found.status_code == 200 else None

    def buffer(self) -> int | None:
        """The size of the buffer `warm` of this test's Headroom."""
        return self.replicas(f"{self.name}-warm", self.name)

    def headroom(self, **buffer: Any) -> dict[str, Any]:
        """A Headroom of this test's own, in a namespace of its own."""
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
        """A ScaledObject that wants 5 from nine to ten."""
        cron = {"timezone": "UTC", "start": "0 9 * * *", "end": "0 10 * * *"}
        trigger = {"type": "cron", "metadata": {**cron, "desiredReplicas": "5"}}
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name or target, "namespace": namespace},
            "spec": {"scaleTargetRef": {"name": target}, "triggers": [trigger], **spec},
        }

    def deploy(self, replicas: int) -> str:
        """Somebody's Deployment of this test's own."""
        self.live.create(DEPLOYMENTS, deployment(self.name, replicas))
        return self.name


WINDOW = {"timezone": "UTC", "start": "0 9 * * *", "end": "0 10 * * *", "replicas": 3}


def capacity_buffer(desk: Desk, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": desk.name, "namespace": "default"},
        "spec": {"scalableRef": {"kind": "Deployment", "name": desk.name}, **spec},
    }
