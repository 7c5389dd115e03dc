"""A tick over several clusters: each fails for itself. One cluster alone: test_tick.py."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from leeway.headroom.keep_headroom import HeadroomReport, KeepHeadroom
from leeway.manifests.headroom_source import HeadroomSource
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudUnavailable

from tests.headroom.headroom_states import HeadroomInMemory


class Town:
    """Clusters by name, of which some have manifests that cannot be read."""

    def __init__(self, **trouble: Exception) -> None:
        self._trouble = trouble
        self.told: list[HeadroomReport] = []

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return ClusterPolicy()

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Any, ...]:
        if cluster in self._trouble:
            raise self._trouble[cluster]
        return ()

    def unread(self, cluster: str, resources: Collection[str]) -> frozenset[str]:
        return frozenset()

    def faulty(self, cluster: str) -> int:
        return 2 if cluster == "away" else 0

    def headroom_kept(self, report: HeadroomReport) -> None:
        self.told.append(report)

    def now(self) -> datetime:
        return datetime(2026, 11, 20, 9, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a tick waits for nothing")


def test_a_cluster_that_fails_foreseen_or_not_is_told_of_and_stops_no_other() -> None:
    town = Town(away=CloudUnavailable("throttled"), odd=ValueError("minReplicas: not a number"))

    def workloads_in(cluster: str) -> Any:
        raise AssertionError(f"nothing is wanted in {cluster}")

    keeper = KeepHeadroom(HeadroomSource(town), HeadroomInMemory(), workloads_in, town, town)
    reports = keeper.tick(["away", "odd", "well"])
    away, odd, well = reports
    assert away.problem == "CloudUnavailable: throttled"
    assert away.faulty == 2, "what is wrong with its manifests is not mended by that"
    assert odd.problem.startswith("ValueError: minReplicas: not a number (test_keep_headroom.py:")
    assert well.problem == ""
    assert town.told == list(reports)
