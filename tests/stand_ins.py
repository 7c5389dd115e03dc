"""What a reception meets that a test is not about, and that keeps what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leeway.notices.synthetic import EventOrigin
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudUnavailable
from leeway.ports.table import Offering
from leeway.selection.offers.unavailable import Unavailable

HERE = EventOrigin("123456789012", "eu-west-1")
"""Where the events of tests come from."""


@dataclass
class OnePolicy:
    """The ClusterPolicies Protocol: one policy for every cluster."""

    policy: ClusterPolicy = field(default_factory=ClusterPolicy)

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy


@dataclass
class SchedulesInMemory:
    """The Schedules Protocol."""

    due: dict[str, tuple[datetime, Mapping[str, Any]]] = field(default_factory=dict)

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        self.due[name] = (at, event)

    def remove(self, name: str) -> None:
        self.due.pop(name, None)


@dataclass
class ClaimsInMemory:
    """The Claims Protocol."""

    until: dict[str, datetime] = field(default_factory=dict)

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        if what in self.until and now <= self.until[what]:
            return False
        self.until[what] = until
        return True


@dataclass
class OfferingsInMemory:
    """The UnavailableOfferings Protocol."""

    marked: dict[Offering, tuple[str, datetime]] = field(default_factory=dict)

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        self.marked[offering] = (reason, until)

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        return frozenset(
            Unavailable(one.instance_type, one.zone, one.capacity_type)
            for one, (_, until) in self.marked.items()
            if one.region == region and until > at
        )


@dataclass
class Starts:
    """The RetireNode and AdmitNode Protocols: fails as often as it is told to, then remembers."""

    failures: int = 0
    started: list[tuple[str, str, int]] = field(default_factory=list)

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        if self.failures:
            self.failures -= 1
            raise CloudUnavailable("Lambda does not answer")
        self.started.append((instance, cluster, attempt))


@dataclass
class CleanUps:
    """The CleanUp Protocol."""

    started: list[tuple[str, str]] = field(default_factory=list)

    def start(self, instance: str, cluster: str) -> None:
        self.started.append((instance, cluster))
