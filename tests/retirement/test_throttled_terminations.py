"""Terminations that EC2 throttles in a storm."""

import pytest
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudUnavailable
from leeway.retirement.outcome import RetirementResult
from leeway.retirement.record import Method

from tests.fakes.failing import failing
from tests.fakes.retirement import POD, RetirementFakes, retire, retirement_fakes


def throttled(kind: NoticeKind) -> RetirementFakes:
    """A retirement in a group without a hook, while EC2 throttles terminations."""
    fakes = retirement_fakes(kind, pods=[POD], blocks=False)
    failing(fakes.instances, "terminate", CloudUnavailable("RequestLimitExceeded"))
    return fakes


def test_a_throttled_termination_of_an_interrupted_instance_is_left_to_ec2() -> None:
    fakes = throttled(NoticeKind.SPOT_INTERRUPTION)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, Method.DETACH)
    assert fakes.actions.order_of("detach") == ["detach"]
    assert not outcome.terminated
    assert not outcome.refused
    assert "EC2 terminates it" in outcome.summary.message


@pytest.mark.parametrize("stops", [False, True])
def test_a_throttled_termination_of_another_instance_repeats_the_step(stops: bool) -> None:
    kind = NoticeKind.SPOT_INTERRUPTION if stops else NoticeKind.REBALANCE
    fakes = throttled(kind)
    fakes.groups.overrides = {"launch_unsupported": "has a warm pool"}
    fakes.amend(stops=stops)
    with pytest.raises(CloudUnavailable):
        retire(fakes)
    assert fakes.actions.order_of("detach") == ["detach"]
    assert fakes.record.needs_termination
