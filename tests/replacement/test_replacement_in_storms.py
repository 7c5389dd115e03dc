"""A storm in which EC2 throttles: what EC2 does anyway holds up nobody."""

import pytest
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.retire_node.outcome import RetirementResult
from leeway.retirement.replacement_intent import Method

from tests.retire_node.retiring import Surrounding, retire, surrounding

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def throttled(kind: NoticeKind) -> Surrounding:
    """A retirement in a group without a hook, while EC2 ends nothing."""
    world = surrounding(kind, pods=[POD], blocks=False)

    def refuses(instance: str, group: str = "") -> None:
        raise CloudUnavailable("RequestLimitExceeded")

    world.terminate = refuses  # type: ignore[method-assign]
    return world


def test_an_interrupted_instance_that_ec2_does_not_end_at_once_is_left_to_it() -> None:
    world = throttled(NoticeKind.SPOT_INTERRUPTION)
    outcome = retire(world)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, Method.DETACH)
    assert world.order_of("detach") == ["detach"]
    assert not outcome.terminated
    assert not outcome.refused
    assert "detached and left to EC2 to end" in outcome.sentence


@pytest.mark.parametrize("stops", [False, True])
def test_one_that_would_stay_is_terminated_by_a_later_attempt_of_the_step(stops: bool) -> None:
    kind = NoticeKind.SPOT_INTERRUPTION if stops else NoticeKind.REBALANCE
    world = throttled(kind)
    world.facts_ = {"launch_unsupported": "has a warm pool"}
    world.record = world.record.model_copy(update={"stops": stops})
    with pytest.raises(CloudUnavailable):
        retire(world)
    assert world.order_of("detach") == ["detach"]
    assert world.record.needs_termination
