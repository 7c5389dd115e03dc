"""A connection to a cluster is kept while its endpoint is the same."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from leeway.kubernetes.eks import REFRESH_AFTER, RETRY_AFTER, OpenClusters
from leeway.ports.aws import CloudRefused, CloudUnavailable, ClusterEndpoint


@dataclass
class Region:
    """A fake of the Clusters port, and the clock. `trouble` is the error of a read."""

    url: str = "https://one"
    trouble: Exception | None = None
    now_: datetime = datetime(2026, 11, 20, 9, tzinfo=UTC)
    calls: int = 0
    opened: list[str] = field(default_factory=list)

    def endpoint(self, name: str) -> ClusterEndpoint:
        self.calls += 1
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


def test_a_cluster_is_opened_once_and_its_endpoint_is_refreshed() -> None:
    region = Region()
    clusters = opened(region)
    for _ in range(10):
        assert clusters.get("prod") == "prod at https://one"
    assert (region.calls, region.opened) == (1, ["https://one"])
    region.now_ += REFRESH_AFTER
    clusters.get("prod")
    assert (region.calls, region.opened) == (2, ["https://one"])


def test_a_recreated_cluster_is_opened_at_its_new_endpoint() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.url = "https://two"
    assert clusters.get("prod") == "prod at https://one"
    region.now_ += REFRESH_AFTER
    assert clusters.get("prod") == "prod at https://two"


def test_the_last_endpoint_is_used_while_the_endpoint_cannot_be_read() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.now_ += REFRESH_AFTER
    region.trouble = CloudUnavailable("throttled")
    assert clusters.get("prod") == "prod at https://one"
    with pytest.raises(CloudUnavailable):
        clusters.get("other")


def test_a_failed_read_of_the_endpoint_is_not_repeated_in_every_pass() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.now_ += REFRESH_AFTER
    region.trouble = CloudUnavailable("throttled")
    for _ in range(10):
        assert clusters.get("prod") == "prod at https://one"
    assert region.calls == 2
    region.trouble, region.url = None, "https://two"
    region.now_ += RETRY_AFTER
    assert clusters.get("prod") == "prod at https://two"


def test_a_deleted_cluster_is_not_returned() -> None:
    region = Region()
    clusters = opened(region)
    clusters.get("prod")
    region.now_ += REFRESH_AFTER
    region.trouble = CloudRefused("No cluster found for name: prod")
    with pytest.raises(CloudRefused):
        clusters.get("prod")
