"""Contracts that the fakes of ports and the adapters keep alike."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from leeway.admission.record import Admission, Admissions
from leeway.aws.disruption_ledger import DynamoDisruptionLedgers
from leeway.aws.records import DynamoRecords
from leeway.aws.shared_cache import DynamoSharedCache
from leeway.aws.unavailable_offerings import DynamoUnavailableOfferings
from leeway.execution.attempt import Phase
from leeway.policy.rules import ChurnCap
from leeway.ports.table import (
    CachedValue,
    CacheStore,
    Claims,
    Offering,
    RecordChanged,
    UnavailableOfferings,
)
from leeway.reasons import Reason
from leeway.retirement.disruption_budget import DisruptionLedger, DisruptionLedgers
from leeway.retirement.record import Records
from leeway.selection.offers.catalog import Unavailable

from tests.aws.stored import TABLE
from tests.fakes.admissions import AdmissionsInMemory
from tests.fakes.cache_store import CacheStoreInMemory
from tests.fakes.claims import ClaimsInMemory
from tests.fakes.ledgers import LedgersInMemory
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.records import RecordInMemory
from tests.retirement.retirements import FACTS, interrupted
from tests.sandbox.aws.started import Sandbox

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BOTH = pytest.mark.parametrize("fake", [True, False], ids=["fake", "adapter"])


def claims(aws: Sandbox, fake: bool) -> Claims:
    return ClaimsInMemory() if fake else DynamoSharedCache(partial(aws.client, "dynamodb"), TABLE)


@BOTH
def test_a_claim_excludes_others_until_it_expires(aws: Sandbox, fake: bool) -> None:
    port = claims(aws, fake)
    assert port.claim("contract", NOW, NOW + MINUTE)
    assert not port.claim("contract", NOW + MINUTE / 2, NOW + 2 * MINUTE)
    assert not port.claim("contract", NOW + MINUTE, NOW + 2 * MINUTE), "until, inclusive"
    assert port.claim("another contract", NOW, NOW + MINUTE)
    assert port.claim("contract", NOW + MINUTE + timedelta(seconds=1), NOW + 2 * MINUTE)


@BOTH
def test_an_offering_is_unavailable_in_its_region_until_the_given_time(
    aws: Sandbox, fake: bool
) -> None:
    port: UnavailableOfferings = (
        OfferingsInMemory()
        if fake
        else DynamoUnavailableOfferings(partial(aws.client, "dynamodb"), TABLE)
    )
    region = "contract-region-1"
    port.mark(
        Offering(region, "m5.large", "contract-region-1a", "spot"), "no capacity", NOW + MINUTE
    )
    marked = frozenset({Unavailable("m5.large", "contract-region-1a", "spot")})
    assert port.now(region, NOW) == marked
    assert port.now(region, NOW + MINUTE) == frozenset()
    assert port.now("contract-region-2", NOW) == frozenset()


@BOTH
def test_an_admission_is_written_only_over_the_version_that_was_read(
    aws: Sandbox, fake: bool
) -> None:
    port: Admissions = (
        AdmissionsInMemory() if fake else DynamoRecords(partial(aws.client, "dynamodb"), TABLE)
    )
    facts = FACTS.model_copy(update={"instance": "i-0c0ffee0c0ffee000"})
    first = Admission(
        facts=facts,
        attempt=1,
        phase=Phase.NOTICED,
        noticed_at=NOW,
        deadline=NOW + MINUTE,
        reason=Reason("Contract", "A contract."),
    )
    assert port.admission(facts.instance) is None
    port.write(first)
    with pytest.raises(RecordChanged):
        port.write(first)
    second = first.model_copy(update={"version": 2, "phase": Phase.RUNNING})
    port.write(second)
    assert port.admission(facts.instance) == second


@BOTH
def test_a_ledger_is_written_only_over_the_version_that_was_read(aws: Sandbox, fake: bool) -> None:
    port: DisruptionLedgers = (
        LedgersInMemory()
        if fake
        else DynamoDisruptionLedgers(partial(aws.client, "dynamodb"), TABLE)
    )
    read = port.ledger("contract")
    assert read == DisruptionLedger(cluster="contract")
    changes = [read.request(instance, 10, ChurnCap(), NOW)[0] for instance in ("i-a", "i-b")]
    first, second = changes
    assert first is not None
    assert second is not None
    port.write(first)
    with pytest.raises(RecordChanged):
        port.write(second)
    assert port.ledger("contract") == first


@BOTH
def test_a_cached_value_is_the_one_that_was_put_last(aws: Sandbox, fake: bool) -> None:
    port: CacheStore = (
        CacheStoreInMemory() if fake else DynamoSharedCache(partial(aws.client, "dynamodb"), TABLE)
    )
    assert port.get("contract/value") is None
    for body in ("1", "2"):
        port.put("contract/value", CachedValue(body, NOW))
    assert port.get("contract/value") == CachedValue("2", NOW)


@BOTH
def test_a_retirement_is_written_only_over_the_version_that_was_read(
    aws: Sandbox, fake: bool
) -> None:
    facts = FACTS.model_copy(update={"instance": "i-0c0ffee0c0ffee001"})
    first = interrupted().model_copy(update={"facts": facts, "version": 1})
    port: Records = (
        RecordInMemory(first) if fake else DynamoRecords(partial(aws.client, "dynamodb"), TABLE)
    )
    if not fake:
        port.write(first)
    assert port.retirement(facts.instance) == first
    assert port.retirement("i-0dddddddddddddddd") is None
    with pytest.raises(RecordChanged):
        port.write(first)
    second = first.model_copy(update={"version": 2})
    port.write(second)
    assert port.retirement(facts.instance) == second
