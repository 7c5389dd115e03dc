"""A storm in which EC2 throttles: what EC2 does anyway holds up nobody."""

from leeway.cloud.ports import CloudUnavailable
from leeway.drain.pods import Pod
from leeway.notices import NoticeKind
from leeway.replacement import Method
from leeway.retirement.outcome import Result

from tests.retirement.retiring import Surrounding, retire, surrounding

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def throttled(kind: NoticeKind) -> Surrounding:
    """A retirement in a group without a hook, while EC2 takes no more tags and ends nothing."""
    world = surrounding(kind, pods=[POD], blocks=False)

    def refuses(instance: str, group: str = "") -> None:
        raise CloudUnavailable("RequestLimitExceeded")

    world.tag_as_detached = refuses  # type: ignore[method-assign]
    world.terminate = refuses  # type: ignore[method-assign]
    return world


def test_an_interrupted_instance_is_detached_without_its_tag_and_ended_by_ec2() -> None:
    world = throttled(NoticeKind.SPOT_INTERRUPTION)
    outcome = retire(world)
    assert (outcome.result, outcome.replacement) == (Result.DRAINED, Method.DETACH)
    assert world.order_of("detach") == ["detach"]
    assert not outcome.terminated
    assert not outcome.refused
    assert "detached and left to EC2 to end" in outcome.sentence


def test_one_that_would_stay_is_not_detached_before_it_is_tagged() -> None:
    world = throttled(NoticeKind.REBALANCE)
    world.facts_ = {"not_by_name": "has a warm pool"}
    assert retire(world).replacement == "failed"
    assert world.order_of("detach") == []


def test_one_that_ec2_only_stops_is_tagged_first() -> None:
    world = throttled(NoticeKind.SPOT_INTERRUPTION)
    world.record = world.record.model_copy(update={"stops": True})
    assert retire(world).replacement == "failed"
    assert world.order_of("detach") == []
