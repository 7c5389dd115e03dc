"""The cached endpoints of clusters: one function reads them from EKS for all functions."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from leeway.aws.eks import CLAIM_LASTS, KEPT_FOR, REFRESH_AFTER, CachedClusters
from leeway.aws.table import DynamoTable
from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable, ClusterEndpoint
from leeway.table import Table

from tests.aws.stored import TABLE
from tests.fakes.table import TableInMemory
from tests.sandbox.aws.started import Sandbox


class Eks:
    """A fake of EKS that counts its calls, a clock, and a table of it."""

    def __init__(self, table: Callable[[Clock], Table]) -> None:
        self._table = table(self)
        self.calls = 0
        self.url = "https://first.invalid"
        self.fails: Exception | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self.now_ = datetime.now(UTC)

    def now(self) -> datetime:
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=seconds)

    def endpoint(self, name: str) -> ClusterEndpoint:
        self.calls += 1
        self.meanwhile()
        if self.fails:
            raise self.fails
        return ClusterEndpoint(name, self.url, "Y2E=")

    def endpoint_in_new_function(self, name: str) -> str:
        """Return the endpoint that a new function reads."""
        return CachedClusters(self._table, self, self, self.problem).endpoint(name).url

    def problem(self, url: str) -> str:
        return "" if url.startswith("https://") else f"{url} is not https"


@pytest.fixture
def eks() -> Eks:
    return Eks(TableInMemory)


@pytest.fixture
def eks_on_aws(aws: Sandbox) -> Eks:
    """The same, with the table in DynamoDB."""
    return Eks(partial(DynamoTable, partial(aws.client, "dynamodb"), TABLE))


def test_one_function_reads_an_endpoint_from_eks_for_all_functions(eks: Eks) -> None:
    assert {eks.endpoint_in_new_function("once") for _ in range(3)} == {"https://first.invalid"}
    assert eks.calls == 1
    assert eks.endpoint_in_new_function("another") == "https://first.invalid"
    assert eks.calls == 2


def test_one_function_refreshes_an_endpoint_while_the_others_use_the_cached_one(
    eks: Eks,
) -> None:
    eks.endpoint_in_new_function("stormy")
    eks.now_ += REFRESH_AFTER
    eks.url = "https://second.invalid"
    cached: list[str] = []
    eks.meanwhile = lambda: cached.extend(eks.endpoint_in_new_function("stormy") for _ in range(20))
    assert eks.endpoint_in_new_function("stormy") == "https://second.invalid"
    assert eks.calls == 2, "the first read, and one of twenty-one"
    assert set(cached) == {"https://first.invalid"}
    assert eks.endpoint_in_new_function("stormy") == "https://second.invalid"
    assert eks.calls == 2


def test_the_cached_endpoint_is_used_for_a_day_while_eks_is_unavailable(
    eks: Eks,
) -> None:
    eks.endpoint_in_new_function("throttled")
    eks.now_ += REFRESH_AFTER
    eks.fails = CloudUnavailable("TooManyRequestsException")
    for _ in range(10):
        assert eks.endpoint_in_new_function("throttled") == "https://first.invalid"
    assert eks.calls == 2
    eks.now_ += CLAIM_LASTS
    assert eks.endpoint_in_new_function("throttled") == "https://first.invalid"
    assert eks.calls == 3
    eks.now_ += KEPT_FOR
    with pytest.raises(CloudUnavailable):
        eks.endpoint_in_new_function("throttled")


def test_a_deleted_cluster_is_refused_although_its_endpoint_is_cached(eks: Eks) -> None:
    eks.endpoint_in_new_function("ended")
    eks.now_ += REFRESH_AFTER
    eks.fails = CloudRefused("No cluster found for name: ended.")
    with pytest.raises(CloudRefused):
        eks.endpoint_in_new_function("ended")


@pytest.mark.parametrize("url", ["http://attacker.invalid", 5], ids=["untrusted", "unreadable"])
def test_a_cached_address_that_is_not_trusted_is_read_from_eks_again(
    aws: Sandbox, eks_on_aws: Eks, url: object
) -> None:
    eks = eks_on_aws
    name = f"planted-{url}".replace("/", "")
    endpoint = {"name": name, "url": url, "certificate_authority": "Y2E="}
    record = {"endpoint": endpoint, "read_at": eks.now_, "until": eks.now_ + timedelta(minutes=5)}
    body = json.dumps({**record, "version": 3}, default=lambda at: at.isoformat())
    item = {
        "pk": {"S": f"ENDPOINT#{name}"},
        "sk": {"S": "ENDPOINT"},
        "record": {"S": body},
        "version": {"N": "3"},
    }
    aws.client("dynamodb").put_item(TableName=TABLE, Item=item)
    assert eks.endpoint_in_new_function(name) == "https://first.invalid"
    assert eks.endpoint_in_new_function(name) == "https://first.invalid"
    assert eks.calls == 1


def test_an_untrusted_address_from_eks_is_refused(eks: Eks) -> None:
    eks.url = "http://attacker.invalid"
    with pytest.raises(CloudRefused, match="its endpoint gets no token"):
        eks.endpoint_in_new_function("untrusted")


def test_an_endpoint_in_the_partition_of_manifests_is_not_used(
    aws: Sandbox, eks_on_aws: Eks
) -> None:
    """Users may write under MANIFESTS# only, and the adapter reads ENDPOINT# only."""
    item = {"pk": {"S": "MANIFESTS#users"}, "sk": {"S": "ENDPOINT"}, "url": {"S": "https://x"}}
    aws.client("dynamodb").put_item(TableName=TABLE, Item=item)
    assert eks_on_aws.endpoint_in_new_function("users") == "https://first.invalid"
