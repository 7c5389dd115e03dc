"""What a region offers and costs: read from AWS as the sandbox answers it, kept where it fails."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial

import pytest
from leeway.aws.market import Ec2Market, pricing_region
from leeway.aws.table import DynamoTable
from leeway.catalog.refresh import (
    CatalogRefresh,
    CatalogUnavailable,
    Market,
    read_catalog,
    refresh_catalog,
)
from leeway.catalog.stored import SURVEY
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.machines import Machine
from leeway.selection.offers.survey import Part, Survey, opened, unpacked
from leeway.wiring.clients import background_client
from leeway_cli.selection.sources import sandbox_survey

from tests.sandbox.aws.started import Sandbox

REGION = "us-east-1"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=6)


@pytest.fixture(scope="module")
def market(aws: Sandbox) -> Ec2Market:
    return Ec2Market(partial(aws.client, "ec2"), partial(aws.client, "pricing"))


class ReadOnce:
    """The Market Protocol: AWS is asked for each part once."""

    def __init__(self, market: Market) -> None:
        self.types = cache(market.types)
        self.offered = cache(market.offered)
        self.zone_ids = cache(market.zone_ids)
        self.spot = cache(market.spot)
        self.on_demand = cache(market.on_demand)


@pytest.fixture(scope="module")
def region(market: Ec2Market) -> ReadOnce:
    return ReadOnce(market)


@dataclass
class Known:
    """The Market Protocol with the values of a survey."""

    survey: Survey
    spot_of: Market | None = None

    def types(self) -> tuple[Machine, ...]:
        return tuple(self.survey.machines)

    def offered(self) -> dict[str, frozenset[str]]:
        return dict(self.survey.offered)

    def zone_ids(self) -> dict[str, str]:
        return dict(self.survey.zone_ids)

    def spot(self) -> dict[str, dict[str, float]]:
        if self.spot_of is not None:
            return self.spot_of.spot()
        return {zone: dict(prices) for zone, prices in self.survey.spot.items()}

    def on_demand(self, region: str) -> dict[str, float]:
        return dict(self.survey.on_demand)


@dataclass
class At:
    """The Clock Protocol, standing still."""

    time: datetime

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def test_a_region_is_read_over_http_as_its_data_has_it(region: ReadOnce) -> None:
    expected = sandbox_survey(REGION)
    offered = region.offered()
    assert offered == expected.offered
    names = {name for types in offered.values() for name in types}
    read = {kind.name: kind for kind in region.types()}
    # The sandbox describes what is not offered here too: it has one catalog for all regions.
    assert [read[name] for name in sorted(names)] == sorted(
        expected.machines, key=lambda kind: kind.name
    )
    assert region.zone_ids() == expected.zone_ids
    assert region.spot() == expected.spot
    assert region.on_demand(REGION) == expected.on_demand


def test_a_refresh_stores_what_it_read_and_the_catalog_opens(
    region: ReadOnce, dynamo: DynamoTable
) -> None:
    reports: list[CatalogRefresh] = []
    outcome = refresh_catalog(region, dynamo, reports.append, At(NOW), REGION)
    assert reports == [outcome]
    assert outcome.stale == ()
    packed = dynamo.get(SURVEY, region=REGION)
    assert packed is not None
    assert len(packed) == outcome.size
    assert unpacked(packed).read_at == dict.fromkeys(Part, NOW)
    table = opened(packed).for_node_class(NodeClass())
    assert set(table.catalog.names) == {kind.name for kind in sandbox_survey(REGION).machines}
    offerings = table.type(table.catalog.index["m5.large"]).offerings
    assert offerings
    assert all(offering.price for offering in offerings)
    assert {offering.zone for offering in offerings} <= set(table.catalog.zones)


def test_a_part_that_cannot_be_read_keeps_its_last_state_and_is_reported(
    aws: Sandbox, market: Ec2Market, dynamo: DynamoTable
) -> None:
    known = Known(sandbox_survey(REGION))
    refresh_catalog(known, dynamo, print, At(NOW), REGION)
    refused = {"service": "ec2", "action": "DescribeSpotPriceHistory"}
    aws.control("PUT", "faults", {"faults": [{**refused, "error": "UnauthorizedOperation"}]})
    failing = Known(known.survey, spot_of=market)
    outcome = refresh_catalog(failing, dynamo, print, At(LATER), REGION)
    (stale,) = outcome.stale
    assert (stale.part, stale.read_at) == (Part.SPOT_PRICES, NOW)
    assert stale.problem is not None
    assert "UnauthorizedOperation" in stale.problem.message
    rendered = outcome.to_dict()
    assert rendered["code"] == "CatalogPartlyRefreshed"
    assert rendered["stale"]["spot prices"] == {
        "code": "CatalogPartNotRead",
        "message": stale.problem.message,
    }
    survey = unpacked(dynamo.get(SURVEY, region=REGION) or b"")
    assert survey.spot == sandbox_survey(REGION).spot
    assert survey.read_at[Part.SPOT_PRICES] == NOW
    assert survey.read_at[Part.TYPES] == LATER


def test_a_throttled_call_is_retried(aws: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    ec2 = partial(background_client.__wrapped__, "ec2", REGION)
    market = Ec2Market(ec2, partial(background_client.__wrapped__, "pricing", REGION))
    throttled = {"service": "ec2", "action": "DescribeInstanceTypeOfferings", "count": 2}
    aws.control("PUT", "faults", {"faults": [{**throttled, "error": "RequestLimitExceeded"}]})
    assert market.offered() == sandbox_survey(REGION).offered


@dataclass
class Failing:
    """The Market Protocol, with answers that fail or are empty."""

    machines: tuple[Machine, ...] = ()
    zones: dict[str, frozenset[str]] = field(default_factory=dict)
    prices: dict[str, float] | None = None

    def types(self) -> tuple[Machine, ...]:
        return self.machines

    def offered(self) -> dict[str, frozenset[str]]:
        return self.zones

    def zone_ids(self) -> dict[str, str]:
        return {}

    def spot(self) -> dict[str, dict[str, float]]:
        raise CloudUnavailable("RequestLimitExceeded")

    def on_demand(self, region: str) -> dict[str, float]:
        if self.prices is None:
            raise CloudRefused(f"no prices of {region}")
        return self.prices


def test_a_first_refresh_without_types_fails() -> None:
    nothing = Failing(zones={"a": frozenset({"m5.large"})})
    with pytest.raises(
        CatalogUnavailable, match=r"types, zones \(the answer is empty\); on-demand prices \(no"
    ):
        read_catalog(nothing, REGION, NOW, Survey(REGION))


def test_a_refresh_fails_if_no_part_can_be_read() -> None:
    former = sandbox_survey(REGION)
    with pytest.raises(CatalogUnavailable):
        read_catalog(Failing(), REGION, NOW, former)


def test_a_region_without_readable_prices_is_still_refreshed() -> None:
    former = sandbox_survey(REGION)
    known = Failing(tuple(former.machines), dict(former.offered))
    survey, parts = read_catalog(known, REGION, NOW, Survey(REGION))
    assert survey.complete
    assert [part.part for part in parts if part.problem] == [
        Part.ON_DEMAND_PRICES,
        Part.SPOT_PRICES,
        Part.ZONES,
    ]


def test_an_unreadable_survey_is_replaced(dynamo: DynamoTable) -> None:
    dynamo.put(SURVEY, b"of another time", region=REGION)
    known = Known(sandbox_survey(REGION))
    outcome = refresh_catalog(known, dynamo, print, At(NOW), REGION)
    assert outcome.stale == ()


@pytest.mark.parametrize(
    ("region", "asked"),
    [
        ("us-west-2", "us-east-1"),
        ("sa-east-1", "us-east-1"),
        ("eu-north-1", "eu-central-1"),
        ("me-south-1", "eu-central-1"),
        ("ap-northeast-2", "ap-south-1"),
        ("cn-north-1", "cn-northwest-1"),
    ],
)
def test_prices_are_asked_for_where_there_is_an_endpoint(region: str, asked: str) -> None:
    assert pricing_region(region) == asked
