"""A run over several clusters; test_reconciler.py has the runs over one cluster."""

from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any

from leeway.headroom.keep_headroom import HeadroomReport, KeepHeadroom
from leeway.manifests.configuration import Configuration
from leeway.manifests.headroom import desired_headroom
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudUnavailable

from tests.fakes.table import TableInMemory


class Clusters(Configuration):
    """Manifests of clusters by name; reading those of some clusters fails."""

    def __init__(self, **errors: Exception) -> None:
        self._errors = errors

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return ClusterPolicy()

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Any, ...]:
        if cluster in self._errors:
            raise self._errors[cluster]
        return ()

    def unread(self, cluster: str, resources: Collection[str]) -> frozenset[str]:
        return frozenset()

    def faulty(self, cluster: str) -> int:
        return 2 if cluster == "down" else 0

    def now(self) -> datetime:
        return datetime(2026, 11, 20, 9, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a run sleeps {seconds} s")


def test_a_cluster_that_fails_is_reported_and_stops_no_other() -> None:
    clusters = Clusters(down=CloudUnavailable("throttled"), odd=ValueError("not a number"))

    def workloads_in(cluster: str) -> Any:
        raise AssertionError(f"{cluster} has no headroom")

    reported: list[HeadroomReport] = []
    use_case = KeepHeadroom(
        partial(desired_headroom, clusters),
        clusters.faulty,
        TableInMemory(),
        workloads_in,
        reported.append,
        clusters,
    )
    reports = use_case.run(["down", "odd", "healthy"])
    down, odd, healthy = reports
    assert down.problem is not None
    assert down.problem.code == "HeadroomNotReconciled"
    assert "CloudUnavailable: throttled" in down.problem.message
    assert down.invalid_manifests == 2
    assert odd.problem is not None
    assert "ValueError: not a number (test_keep_headroom.py:" in odd.problem.message
    assert healthy.problem is None
    assert reported == list(reports)
