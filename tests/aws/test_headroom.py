"""The stored statuses of headroom: one contract for the table and for the fake in memory."""

from datetime import timedelta

import pytest
from leeway.aws.headroom import DynamoHeadroom
from leeway.headroom.plan import ScaleTarget
from leeway.headroom.ports import HeadroomStates
from leeway.headroom.reasons import FIXED_SIZE, TARGET_NOT_FOUND, WINDOW_OPEN
from leeway.headroom.status import HeadroomStatus, OriginalScale

from tests.aws.stored import TABLE
from tests.fakes.headroom_states import HeadroomStatesInMemory
from tests.sandbox.aws.started import Sandbox

TARGET = ScaleTarget("apps/v1", "Deployment", "shop", "web")
SCALED = HeadroomStatus(
    "Deployment shop/web",
    "scaledobject.keda.sh shop/web",
    5,
    WINDOW_OPEN(start="0 9 * * *", end="0 10 * * *"),
    TARGET_NOT_FOUND(kind="Deployment", name="web", namespace="shop"),
    target=TARGET,
)
BUFFER = HeadroomStatus(
    "buffer warm/a", "headroom.leeway.sh a", 2, FIXED_SIZE(), join_time=timedelta(seconds=71.5)
)


@pytest.fixture(params=["table", "memory"])
def states(request: pytest.FixtureRequest, aws: Sandbox) -> HeadroomStates:
    if request.param == "memory":
        return HeadroomStatesInMemory()
    return DynamoHeadroom(lambda: aws.client("dynamodb"), TABLE)


def test_statuses_are_read_as_they_were_written_by_cluster_and_subject(
    states: HeadroomStates,
) -> None:
    states.write("one", SCALED)
    states.write("one", BUFFER)
    states.write("two", BUFFER)
    assert states.statuses("one") == {SCALED.subject: SCALED, BUFFER.subject: BUFFER}
    states.delete("one", BUFFER.subject)
    states.delete("one", "never written")
    assert states.statuses("one") == {SCALED.subject: SCALED}
    assert states.statuses("two") == {BUFFER.subject: BUFFER}
    assert states.statuses("three") == {}


def test_the_original_scale_of_an_object_is_kept_until_it_is_deleted(
    states: HeadroomStates,
) -> None:
    subject, first = SCALED.subject, OriginalScale("uid-1", 2)
    states.write("four", SCALED)
    assert states.statuses("four")[subject].original is None
    states.write_original("four", subject, first)
    states.write_original("four", subject, OriginalScale("uid-1", 5))
    states.write("four", SCALED)
    assert states.statuses("four")[subject].original == first
    states.write_original("four", subject, OriginalScale("uid-2", 7))
    assert states.statuses("four")[subject].original == OriginalScale("uid-2", 7), (
        "another object has the name now"
    )
    states.delete("four", subject)
    assert states.statuses("four") == {}
    states.write("four", SCALED)
    assert states.statuses("four")[subject].original is None
