"""The workload of a simulated day: web by day, batch by night, cron spikes and deploys.

Seeded: the same seed gives the same pods in the same minutes. Minutes count from midnight.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.pods import LabelSelector, PodSpec, PodTerm, Spread, Toleration
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources

from leeway_cli.simulated_day.offers import STEADY, STEADY_TAINT

MIB = 1024**2
DAY = 24 * 60
WIDTH = 3.6
"""Hours from the peak of a service until two thirds of it are gone."""

SETTLES = 5
"""Minutes between two changes of the size of a service, as the stabilization of a
HorizontalPodAutoscaler does it."""


@dataclass(frozen=True)
class Service:
    """A Deployment: `least` replicas at night, `most` at the peak; its PodDisruptionBudget allows a
    fifth of them to be unavailable, at least one."""

    name: str
    spec: PodSpec
    least: int
    most: int
    peak: float = 13.0


@dataclass(frozen=True)
class Job:
    """One pod that runs for some minutes. `protected`: it must not be disrupted."""

    name: str
    spec: PodSpec
    starts: int
    lasts: int
    protected: bool = False


@dataclass(frozen=True)
class Workload:
    """The pods of a day. `scale` multiplies their number."""

    seed: int
    scale: float = 1.0

    @cached_property
    def services(self) -> Mapping[str, Service]:
        """The Deployments by name."""

        def service(name: str, cpu: int, memory: int, least: int, most: int, **more: float) -> None:
            settings = _settings(name, steady=name in {"orders", "ledger"})
            spec = _spec(cpu, memory, **settings)
            found[name] = Service(name, spec, self._scaled(least), self._scaled(most), **more)

        found: dict[str, Service] = {}
        service("shop", 500, 768, 20, 120)
        service("search", 900, 1536, 8, 48, peak=15.0)
        service("images", 250, 512, 16, 80, peak=19.0)
        service("orders", 750, 2048, 9, 30)
        service("ledger", 1500, 6144, 3, 6)
        service("metrics", 300, 3072, 12, 18, peak=11.0)
        return found

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """Nightly batch, hourly and quarter-hourly jobs, by start."""
        dice = random.Random(self.seed)  # noqa: S311
        batch, report, sync = _spec(1800, 3584), _spec(700, 1024), _spec(350, 512)
        found = []
        for number in range(self._scaled(120)):
            start = (23 * 60 + dice.randrange(6 * 60)) % DAY
            protected = dice.random() < 0.15
            lasts = dice.randrange(15, 90)
            found.append(Job(f"batch-{number}", batch, start, lasts, protected))
        for hour in range(24):
            for number in range(self._scaled(24)):
                lasts = dice.randrange(6, 14)
                found.append(Job(f"report-{hour}-{number}", report, hour * 60, lasts))
        for quarter in range(96):
            for number in range(self._scaled(6)):
                lasts = dice.randrange(2, 5)
                found.append(Job(f"sync-{quarter}-{number}", sync, quarter * 15, lasts))
        return tuple(sorted(found, key=lambda job: (job.starts, job.name)))

    @cached_property
    def deploys(self) -> Mapping[int, str]:
        """The service that is deployed in a minute."""
        dice = random.Random(self.seed + 1)  # noqa: S311
        return {dice.randrange(9 * 60, 18 * 60): dice.choice([*self.services]) for _ in range(8)}

    def replicas(self, service: Service, minute: int) -> int:
        """Return how many replicas of a service are wanted."""
        at = minute - minute % SETTLES
        bump = math.exp(-(((at / 60 - service.peak) / WIDTH) ** 2))
        noise = random.Random(f"{self.seed} {service.name} {at}").uniform(0.95, 1.05)  # noqa: S311
        return max(round((service.least + (service.most - service.least) * bump) * noise), 1)

    def jobs_at(self, minute: int) -> Sequence[Job]:
        """Return the jobs that start in a minute."""
        return self._starting.get(minute, ())

    @cached_property
    def _starting(self) -> Mapping[int, Sequence[Job]]:
        found: dict[int, list[Job]] = {}
        for job in self.jobs:
            found.setdefault(job.starts, []).append(job)
        return found

    def _scaled(self, count: int) -> int:
        return max(round(count * self.scale), 1)


def _settings(name: str, steady: bool) -> dict[str, object]:
    """The labels and constraints of a service: replicas spread over zones, or keep apart."""
    labels = {"app": name}
    replicas = LabelSelector(Requirements.from_labels(labels))
    near = frozenset({"default"})
    settings: dict[str, object] = {"labels": labels}
    if name in {"shop", "orders"}:
        settings["spreads"] = (Spread(PodTerm(ZONE, replicas, near), max_skew=2),)
    if name == "ledger":
        settings["pod_anti_affinity"] = (PodTerm(HOSTNAME, replicas, near),)
    if steady:
        settings["terms"] = (Requirements.from_labels(dict(STEADY)),)
        settings["tolerations"] = (Toleration(STEADY_TAINT.key, "Exists"),)
    return settings


def _spec(cpu: int, memory: int, **settings: object) -> PodSpec:
    requests = Resources({"cpu": cpu, "memory": memory * MIB, "pods": 1})
    return PodSpec(requests=requests, **settings)  # type: ignore[arg-type]
