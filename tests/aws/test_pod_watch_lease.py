"""The lease of the pod watches: one contract for the table and for the fake."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from leeway.aws.pod_watch_lease import DynamoPodWatchLease
from leeway.pod_watch.lease import Lease, Leases
from leeway.table import RecordChanged

from tests.aws.stored import TABLE, create_table
from tests.fakes.leases import LeaseInMemory
from tests.sandbox.aws.started import Sandbox, started

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


@pytest.fixture(params=["table", "in memory"])
def leases(request: pytest.FixtureRequest) -> Iterator[Leases]:
    if request.param == "in memory":
        yield LeaseInMemory()
        return
    with started() as (_, url):
        sandbox = Sandbox(url)
        create_table(sandbox.client("dynamodb"))
        yield DynamoPodWatchLease(partial(sandbox.client, "dynamodb"), TABLE)


def lease(version: int, holder: str = "a", watching: bool = False) -> Lease:
    return Lease(
        holder=holder,
        renewed_at=NOW,
        ends_at=NOW + timedelta(minutes=14),
        watching=watching,
        version=version,
    )


def test_a_lease_is_written_only_over_the_version_before_it(leases: Leases) -> None:
    assert leases.read() is None
    with pytest.raises(RecordChanged):
        leases.write(lease(2))
    leases.write(lease(1))
    with pytest.raises(RecordChanged):
        leases.write(lease(1, holder="b"))
    leases.write(lease(2, holder="b", watching=True))
    with pytest.raises(RecordChanged):
        leases.write(lease(2))
    assert leases.read() == lease(2, holder="b", watching=True)
