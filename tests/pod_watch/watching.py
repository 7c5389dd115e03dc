"""A run of watch_pods on fakes, in a thread of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import cast

from aws_lambda_powertools import Logger, Metrics
from leeway.clock import SystemClock
from leeway.pod_watch.burst import UNSCHEDULABLE, UnscheduledPod
from leeway.pod_watch.follower import OpenWatch
from leeway.pod_watch.watch_pods import (
    LEASE,
    MINUTE_SCHEDULE,
    Lease,
    Periods,
    PodWatchTelemetry,
    WatchMode,
    WatchPods,
    WatchReport,
)

from tests.fakes.pod_watches import PodWatchesInMemory, WakesInMemory
from tests.fakes.table import TableInMemory

MINUTE = MINUTE_SCHEDULE
QUICK = Periods(renew=0.1, configure=0.1, report=0.2)


@dataclass
class Modes:
    """The modes of clusters; a mode may be an error."""

    of: dict[str, WatchMode | Exception]

    def mode_of(self, cluster: str) -> WatchMode:
        mode = self.of.get(cluster, WatchMode.NOT_AT_ALL)
        if isinstance(mode, Exception):
            raise mode
        return mode


@dataclass
class Told:
    """The log and the metrics of a run."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)  # about the problems
    restored: list[str] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)

    def info(self, message: str, extra: dict[str, str]) -> None:
        if extra["code"] == "PodWatchRestored":
            self.restored.append(extra["cluster"])

    def error(self, message: str, extra: dict[str, str]) -> None:
        self.problems.append((extra["cluster"], extra["code"]))
        self.sentences.append(message)

    def add_dimension(self, name: str, value: str) -> None:
        pass

    def add_metric(self, name: str, unit: str, value: float) -> None:
        self.measured.append(value)

    def flush_metrics(self) -> None:
        pass


class LeaseTable(TableInMemory):
    """The table with the lease."""

    @property
    def stored(self) -> Lease | None:
        item = self.items.get(LEASE.key({}))
        return LEASE.read(item) if item else None

    @stored.setter
    def stored(self, lease: Lease) -> None:
        self.items[LEASE.key({})] = LEASE.write(lease, {}, self._now())


@dataclass
class World:
    """What runs of watch_pods share. Clusters `blue` and `green` have pools."""

    modes: Modes = field(
        default_factory=lambda: Modes({"blue": WatchMode.BY_WATCH, "green": WatchMode.BY_WATCH})
    )
    watches: PodWatchesInMemory = field(default_factory=PodWatchesInMemory)
    on: OpenWatch | None = None  # in place of `watches`
    of_manifests: list[OpenWatch] = field(default_factory=list)
    lease: LeaseTable = field(default_factory=LeaseTable)
    wakes: WakesInMemory = field(default_factory=WakesInMemory)
    told: Told = field(default_factory=Told)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def watch_pods(self) -> WatchPods:
        return WatchPods(
            self.modes.mode_of,
            self.on or self.watches,
            self.of_manifests,
            self.lease,
            self.wakes,
            PodWatchTelemetry(cast(Logger, self.told), cast(Metrics, self.told)),
            SystemClock(),
            lambda: f"run-{next(self.numbers)}",
            QUICK,
        )

    def tick(self, seconds: float = 900.0) -> WatchReport:
        """Run once, to the end of the run."""
        return self.watch_pods().run(tuple(self.modes.of), seconds)

    @contextmanager
    def running(self, seconds: float = 900.0) -> Iterator["Running"]:
        """Run in a thread until the test is done: then no cluster has a pool any more."""
        run = Running(self, seconds)
        run.start()
        try:
            yield run
        finally:
            self.modes.of.update(dict.fromkeys(self.modes.of, WatchMode.NOT_AT_ALL))
            run.join(60)
            assert run.report or run.failed, "the run did not end"

    def reported(self, cluster: str) -> int:
        """Count the wakes of a cluster for pods."""
        return sum(name == cluster and why != MINUTE for name, why in self.wakes.wakes)


class Running(threading.Thread):
    """A run in a thread."""

    def __init__(self, world: World, seconds: float) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._seconds = seconds
        self.report: WatchReport | None = None
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            self.report = self._world.tick(self._seconds)
        except Exception as error:  # noqa: BLE001 (the test fails with it)
            self.failed = error


def waits(uid: str) -> UnscheduledPod:
    return UnscheduledPod(uid, unscheduled_because=UNSCHEDULABLE)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.02)
