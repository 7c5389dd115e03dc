"""Unavailable offerings, in both tables."""

from datetime import UTC, datetime, timedelta

import pytest
from leeway.aws.table import DynamoTable
from leeway.catalog.unavailable import Offering, UnavailableOfferings
from leeway.clock import SystemClock
from leeway.selection.offers.catalog import Unavailable
from leeway.table import Table

from tests.aws.stored import table_in
from tests.fakes.table import TableInMemory
from tests.sandbox.aws.started import Sandbox

SPOT = Unavailable("m5.large", "a", "spot")


@pytest.fixture(params=["dynamo", "memory"])
def table(request: pytest.FixtureRequest, dynamo: DynamoTable) -> Table:
    return dynamo if request.param == "dynamo" else TableInMemory(SystemClock())


def test_an_offering_is_unavailable_in_its_region_until_its_time_is_over(table: Table) -> None:
    now = datetime.now(UTC)
    until = now + timedelta(minutes=3)
    offerings = UnavailableOfferings(table)
    offerings.mark(Offering("eu-west-3", "m5.large", "a", "spot"), "why", until)
    assert offerings.now("eu-west-3", now) == {SPOT}
    assert offerings.now("eu-west-3", until) == frozenset()
    assert offerings.now("eu-west-2", now) == frozenset()


def test_a_storm_does_not_write_an_offering_for_every_instance(table: Table) -> None:
    offering, offerings = (
        Offering("eu-west-1", "m5.large", "a", "spot"),
        UnavailableOfferings(table),
    )
    first = datetime.now(UTC) + timedelta(minutes=3)
    kept = []
    for after in (0, 1, 29, 30):
        offerings.mark(offering, "interrupted", first + timedelta(seconds=after))
        seconds = (0, 29, 30, 39)
        found = [n for n in seconds if offerings.now("eu-west-1", first + timedelta(seconds=n))]
        kept.append(found)
    assert kept == [[], [], [], [0, 29]]


def test_an_offering_that_another_function_marked_is_not_written_again(aws: Sandbox) -> None:
    def writes() -> int:
        return int(aws.control("GET", "status")["calls"]["dynamodb:PutItem"])

    offering = Offering("eu-north-1", "m5.large", "a", "spot")
    until = datetime.now(UTC) + timedelta(minutes=3)
    functions = [UnavailableOfferings(table_in(aws)) for _ in range(10)]
    functions[0].mark(offering, "interrupted", until)
    before = writes()
    for function in functions[1:]:
        function.mark(offering, "interrupted", until + timedelta(seconds=5))
    assert writes() == before
    functions[9].mark(offering, "interrupted", until + timedelta(seconds=40))
    assert writes() == before + 1
