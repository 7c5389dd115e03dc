"""What a simulated day is given: its workload, with web by day, batch by night, cron spikes and
deploys; the instance types with their prices by the hour; and the node pools.

Seeded: the same seed gives the same pods in the same minutes. Minutes count from midnight.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE, ON_DEMAND, SPOT, ZONE
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog, InstanceType
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import (
    LabelSelector,
    NodePool,
    PodSpec,
    PodTerm,
    Spread,
    Taint,
    Toleration,
)
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

STEADY = {"example.com/steady": "true"}
STEADY_TAINT = Taint("example.com/steady", "true")

SIZES = [
    Requirement.of(ARCH, "In", ["amd64"]),
    Requirement.of(f"{INSTANCE}category", "In", ["c", "m", "r"]),
    Requirement.of(f"{INSTANCE}generation", "Gt", ["4"]),
    Requirement.of(f"{INSTANCE}cpu", "Gt", ["1"]),
    Requirement.of(f"{INSTANCE}cpu", "Lt", ["9"]),
]
"""Types of two to eight processors, so that a small cluster has many nodes."""

PRICE_CHANGE = 0.04
"""By which part Spot prices change in an hour at most."""


def pools() -> tuple[NodePool, NodePool]:
    """Return a pool that uses Spot and On-Demand capacity, and one of On-Demand nodes that only
    pods for it use. Each pod can use one of them, so that their bounds can be added."""
    either = Requirement.of(CAPACITY_TYPE, "In", [SPOT, ON_DEMAND])
    own = Requirement.of(CAPACITY_TYPE, "In", [ON_DEMAND])
    steady = Requirements([own, *SIZES]).intersection(Requirements.from_labels(STEADY))
    return (
        NodePool("general", Requirements([either, *SIZES])),
        NodePool("steady", steady, labels=STEADY, taints=(STEADY_TAINT,)),
    )


@cache
def catalog(seed: int, hour: int) -> Catalog:
    """Return the sandbox's offerings in an hour, with Spot prices of that hour."""
    dice = random.Random(f"{seed} {hour}")  # noqa: S311
    return Catalog.of("simulated", _with_prices(_types(), dice))


@cache
def _types() -> tuple[InstanceType, ...]:
    from leeway_cli.selection.sources import sandbox_catalog

    table = sandbox_catalog().for_node_class(NodeClass())
    return tuple(table.types(table.matching(Requirements(SIZES))))


def _with_prices(types: Iterable[InstanceType], dice: random.Random) -> Iterable[InstanceType]:
    for one in types:
        change = dice.uniform(1 - PRICE_CHANGE, 1 + PRICE_CHANGE)
        offerings = tuple(
            replace(each, price=each.price * change)
            if each.capacity_type == SPOT and each.price
            else each
            for each in one.offerings
        )
        yield replace(one, offerings=offerings)


@cache
def prices(seed: int, hour: int) -> Mapping[tuple[str, str, str], float]:
    """Return USD per hour by type, zone and capacity type."""
    return {
        (each.type.name, each.offering.zone, each.offering.capacity_type): each.price
        for each in supply(seed, hour).candidates
    }


@cache
def supply(seed: int, hour: int) -> Supply:
    """Return all offerings of both pools in an hour."""
    return Supply(pools(), catalog(seed, hour))


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
