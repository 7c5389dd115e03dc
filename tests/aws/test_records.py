"""The records of features: their keys, how long they are kept, and that they read as written."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.admission.record import ADMISSION, LAUNCHES_KEPT_FOR
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer
from leeway.execution.attempt import KEPT_FOR, Phase
from leeway.pool_pauses import JOIN_TIME, NODES_NEVER_JOINED, POOL, JoinTime, PoolRecord
from leeway.provisioning.report import STATUS, PodsWithoutNode, ProvisioningStatus
from leeway.provisioning.tell import TOLD
from leeway.reasons import Reason
from leeway.retirement.reasons import SUCCESSOR_FOUND
from leeway.retirement.record import DETACHED, RETIREMENT, ReplacementIntent
from leeway.table import OPEN, Record

from tests.admission.admission_records import admission
from tests.admission.launched import launched
from tests.capacity_requests.requests import REQUESTED, capacity_request
from tests.retirement.retirements import interrupted

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
ID = interrupted().instance
PAUSED = NODES_NEVER_JOINED(cluster="prod", pool="web", count=3, instances="i-1")
ANSWER = CapacityAnswer(
    answered_at=REQUESTED, launched=("i-1",), existing=3, without_node=(Reason("A", "Because."),)
)


@pytest.mark.parametrize(
    ("record", "value", "key", "kept"),
    [
        (RETIREMENT, interrupted(), (f"RETIREMENT#prod#{ID}", "RETIREMENT"), KEPT_FOR),
        (ADMISSION, admission(), (f"ADMISSION#prod#{ID}", "ADMISSION"), KEPT_FOR),
        (ADMISSION, launched(), (f"ADMISSION#prod#{ID}", "ADMISSION"), LAUNCHES_KEPT_FOR),
        (DETACHED, "web", (f"DETACHED#prod#{ID}", "GROUP"), KEPT_FOR),
        (
            CAPACITY_REQUEST,
            capacity_request("i-1").answered(ANSWER),
            ("CAPACITY#prod", "RETIREMENT#i-1"),
            timedelta(days=1, minutes=1),
        ),
        (
            POOL,
            PoolRecord(cluster="prod", pool="web"),
            ("POOLS#prod", "POOL#web"),
            timedelta(days=30),
        ),
        (
            POOL,
            PoolRecord(cluster="prod", pool="web", paused=PAUSED, paused_at=NOW),
            ("POOLS#prod", "POOL#web"),
            None,
        ),
        (
            JOIN_TIME,
            JoinTime(cluster="prod", pool="web", instance="i-1", seconds=41.5),
            ("POOLS#prod", "JOIN#web#8"),
            timedelta(days=30),
        ),
        (
            STATUS,
            ProvisioningStatus(
                cluster="prod",
                run_at=NOW,
                without_node=(PodsWithoutNode(reason=PAUSED, count=2, some=("a/b",)),),
            ),
            ("PROVISIONING#prod", "STATUS"),
            None,
        ),
        (
            TOLD,
            {n.to_bytes(8): NOW - timedelta(seconds=n) for n in range(300)},
            ("PROVISIONING#prod", "TOLD"),
            None,
        ),
    ],
)
def test_a_record_has_its_key_and_lifetime_and_reads_as_written(
    record: Record[Any], value: Any, key: tuple[str, str], kept: timedelta | None
) -> None:
    parts = {"cluster": "prod", "instance": ID} if record is DETACHED else {}
    parts |= {"cluster": "prod"} if record is TOLD else {}
    item = record.write(value, parts, NOW)
    assert item.key == key
    assert item.expires == (None if kept is None else int((NOW + kept).timestamp()))
    assert record.read(item) == value


def test_only_open_records_are_in_the_index_of_open_records() -> None:
    one = interrupted()
    assert RETIREMENT.write(one, {}, NOW).indexed["open"].startswith("prod#")
    ended = one.model_copy(update={"phase": Phase.FINISHED})
    assert RETIREMENT.write(ended, {}, NOW).indexed == {}
    raised = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOW,
        to_restore=True,
    )
    owing = ended.model_copy(update={"replacement_intent": raised})
    assert RETIREMENT.write(owing, {}, NOW).indexed, "its group is one larger still"
    assert ADMISSION.write(admission(), {}, NOW).indexed["open"].startswith("prod#")


def test_the_records_of_a_storm_are_spread_over_all_shards_of_the_index() -> None:
    facts = interrupted().facts
    storm = [
        facts.model_copy(update={"instance": f"i-0dddddddddddd{number:04x}"})
        for number in range(40)
    ]
    written = [
        RETIREMENT.write(interrupted().model_copy(update={"facts": one}), {}, NOW).indexed
        for one in storm
    ]
    assert len({one["open"] for one in written}) == OPEN.shards
    assert all("cluster" not in one for one in written), "the index of facts is for facts"
