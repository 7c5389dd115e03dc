"""What is remembered of headroom: one contract, in the table and in memory."""

from datetime import timedelta

import pytest
from leeway.aws.headroom import DynamoHeadroom
from leeway.headroom.plan import ScaleTarget
from leeway.headroom.ports import HeadroomStates
from leeway.headroom.status import HeadroomStatus, Original

from tests.aws.stored import TABLE
from tests.headroom.headroom_states import HeadroomInMemory
from tests.sandbox.aws.started import Sandbox

TARGET = ScaleTarget("apps/v1", "Deployment", "shop", "web")
SCALED = HeadroomStatus(
    "Deployment shop/web", "scaledobject.keda.sh shop/web", 5, "open", target=TARGET
)
BUFFER = HeadroomStatus("buffer warm/a", "headroom.leeway.sh a", 2, join=timedelta(seconds=71.5))


@pytest.fixture(params=["table", "memory"])
def states(request: pytest.FixtureRequest, aws: Sandbox) -> HeadroomStates:
    if request.param == "memory":
        return HeadroomInMemory()
    return DynamoHeadroom(lambda: aws.client("dynamodb"), TABLE)


def test_what_is_remembered_is_read_by_cluster_and_subject(states: HeadroomStates) -> None:
    states.write("one", SCALED)
    states.write("one", BUFFER)
    states.write("two", BUFFER)
    assert states.of("one") == {SCALED.subject: SCALED, BUFFER.subject: BUFFER}
    states.forget("one", BUFFER.subject)
    states.forget("one", "never was")
    assert states.of("one") == {SCALED.subject: SCALED}
    assert states.of("two") == {BUFFER.subject: BUFFER}
    assert states.of("three") == {}


def test_the_first_size_of_a_target_is_kept_until_it_is_forgotten(states: HeadroomStates) -> None:
    subject, first = SCALED.subject, Original("uid-1", 2)
    states.write("four", SCALED)
    assert states.of("four")[subject].original is None
    states.remember_original("four", subject, first)
    states.remember_original("four", subject, Original("uid-1", 5))
    states.write("four", SCALED)
    assert states.of("four")[subject].original == first
    states.remember_original("four", subject, Original("uid-2", 7))
    assert states.of("four")[subject].original == Original("uid-2", 7), "another object of its name"
    states.forget("four", subject)
    assert states.of("four") == {}
    states.write("four", SCALED)
    assert states.of("four")[subject].original is None
