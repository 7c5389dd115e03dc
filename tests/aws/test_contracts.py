"""Contracts that the fakes of ports and the adapters keep alike."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from leeway.admission.record import Admission, Admissions
from leeway.aws.records import DynamoRecords
from leeway.execution.attempt import Phase
from leeway.reasons import Reason
from leeway.retirement.record import Records
from leeway.table import RecordChanged

from tests.aws.stored import TABLE
from tests.fakes.admissions import AdmissionsInMemory
from tests.fakes.records import RecordInMemory
from tests.retirement.retirements import FACTS, interrupted
from tests.sandbox.aws.started import Sandbox

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BOTH = pytest.mark.parametrize("fake", [True, False], ids=["fake", "adapter"])


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
