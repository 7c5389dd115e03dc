"""A cluster stays open for as long as it is where it was."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from leeway.kubernetes.open_clusters import REFRESH_AFTER, RETRY_AFTER, OpenClusters
from leeway.ports.aws import CloudRefused, CloudUnavailable, ClusterEndpoint


@dataclass
class Region:
    """Where clusters are, and the clock. `trouble` is what asking comes to."""

    url: str = "https://one"
    trouble: Exception | None = None
    now_: datetime = datetime(2026, 11, 20, 9, tzinfo=UTC)
    asked: int = 0
    opened: list[str] = field(default_factory=list)

    def endpoint(self, name: str) -> ClusterEndpoint:
        self.asked += 1
        if self.trouble:
            raise self.trouble
        return ClusterEndpoint(name, self.url, "authority")

    def open_at(self, endpoint: ClusterEndpoint) -> str:
        self.opened.append(endpoint.url)
        return f"{endpoint.name} at {endpoint.url}"

    def now(self) -> datetime:
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=seconds)


def opened(region: Region) -> OpenClusters[str]:
    return OpenClusters(region, region.open_at, region)


def test_a_cluster_is_opened_once_and_asked_about_now_and_then() -> None:
    region = Region()
    clusters = opened(region)
    for _ in range(10):
        assert clusters.get("prod") == "prod at https://one"
    assert (region.asked, region.opened) == (1, ["https://one"])
    region.now_ += REFRESH_AFTER
    clusters.get("prod")
    assert (region.asked, region.opened) == (2, ["https://one"])


def test_a_cluster_that_was_made_anew_is_opened_where_it_is_now() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.url = "https://two"
    assert clusters.get("prod") == "prod at https://one"
    region.now_ += REFRESH_AFTER
    assert clusters.get("prod") == "prod at https://two"


def test_where_nobody_can_be_asked_a_cluster_is_where_it_was() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.now_ += REFRESH_AFTER
    region.trouble = CloudUnavailable("throttled")
    assert clusters.get("prod") == "prod at https://one"
    with pytest.raises(CloudUnavailable):
        clusters.get("other")


def test_where_nobody_can_be_asked_not_every_pass_of_a_drain_waits_for_that() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.now_ += REFRESH_AFTER
    region.trouble = CloudUnavailable("throttled")
    for _ in range(10):
        assert clusters.get("prod") == "prod at https://one"
    assert region.asked == 2
    region.trouble, region.url = None, "https://two"
    region.now_ += RETRY_AFTER
    assert clusters.get("prod") == "prod at https://two"


def test_a_cluster_that_is_no_more_is_not_there() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.now_ += REFRESH_AFTER
    region.trouble = CloudRefused("No cluster found for name: prod")
    with pytest.raises(CloudRefused):
        clusters.get("prod")
