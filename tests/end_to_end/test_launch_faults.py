"""Launches that fail: each ends with a reason in the log, in `leeway status` and as an Event of
the pods, none launches twice, and none goes on requesting instances."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from leeway.launch.intent import REPEAT_WITHIN
from leeway.launch.launch_nodes import MOST_ROUNDS
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox

from tests.end_to_end.environment import kube_client
from tests.end_to_end.launch_faults import (
    ONE_POD_EACH,
    PoolCase,
    failing,
    no_capacity,
)
from tests.end_to_end.promises import check_accounts
from tests.end_to_end.provisioning import sandbox_with, store
from tests.launch.pools import pool, with_class

CLASSES: dict[str, dict[str, Any]] = {
    "invalid-template": {"detailedMonitoring": True},
    **{
        name: {}
        for name in (
            "part",
            "throttled",
            "overrides-throttled",
            "lost-answer",
            "deleted-template",
            "denied",
            "no-spot-role",
        )
    },
}
MOST_TRIES = 40
"""CreateFleet calls of a run while EC2 answers none: boto3 repeats each try."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster without nodes, with a pool for each case, in an account whose default puts tags
    into the metadata of instances."""
    state = tmp_path_factory.mktemp("launch-faults")
    with sandbox_with(state, functions=["--redelivery", "1"]) as (running, _):
        ec2 = client("ec2", running.aws_url)
        ec2.modify_instance_metadata_defaults(InstanceMetadataTags="enabled")
        iam = client("iam", running.aws_url)
        iam.create_instance_profile(InstanceProfileName="without-role")
        for name, spec in CLASSES.items():
            capacity = ["spot", "on-demand"] if name == "no-spot-role" else ["on-demand"]
            of = pool(name, capacity=capacity, only=ONE_POD_EACH)
            store(running, *with_class(of, **spec))
        yield running
        check_accounts(running)


@pytest.fixture
def case(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], PoolCase]]:
    """The case of a pool. Its pods and the faults are removed at the end."""
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    begun: list[PoolCase] = []
    with kube_client(sandbox) as kube:

        def begin(name: str) -> PoolCase:
            begun.append(PoolCase(sandbox, kube, name))
            return begun[-1]

        yield begin
        for one in begun:
            one.end()


type Begin = Callable[[str], PoolCase]


def test_a_fleet_that_is_launched_in_part_is_completed_when_there_is_capacity(
    sandbox: Sandbox, case: Begin
) -> None:
    part = case("part")
    part.need(3)
    sandbox.faults("aws", [no_capacity("us-east-1a", launched=1), no_capacity()])
    assert part.runs(1) == [1]
    assert part.runs(2) == [0, 0], "the offerings are marked"
    part.check_launched(1)
    assert "CapacityUnavailable" in part.logged()
    part.check_told("OfferingsRefused", pods=2)
    sandbox.faults("aws", [])
    part.let_time_pass(timedelta(minutes=3))
    assert part.runs() == [1, 0, 0]
    part.check_launched(3)
    part.until_all_run()


def test_a_throttled_call_is_repeated_and_launches_once(sandbox: Sandbox, case: Begin) -> None:
    throttled = case("throttled")
    throttled.need(2)
    refusal = failing("CreateFleet", error="RequestLimitExceeded", status=503)
    sandbox.faults("aws", [refusal])
    (calls,) = throttled.runs(1)
    assert 1 < calls <= MOST_TRIES
    throttled.check_told("LaunchUnanswered", pods=2)
    (about, *_) = throttled.events()
    assert "RequestLimitExceeded" in str(about.message)
    throttled.check_launched(0)
    sandbox.faults("aws", [refusal | {"count": 1}])
    assert throttled.runs() == [2, 0, 0]
    throttled.check_launched(2)
    throttled.until_all_run()


def test_throttled_overrides_are_requested_in_a_few_rounds(sandbox: Sandbox, case: Begin) -> None:
    throttled = case("overrides-throttled")
    throttled.need(1)
    sandbox.faults("aws", [no_capacity(error="RequestLimitExceeded")])
    assert throttled.runs(1) == [MOST_ROUNDS]
    throttled.check_told("LaunchRepeated", pods=1)
    throttled.check_launched(0)
    sandbox.faults("aws", [])
    assert throttled.runs() == [1, 0, 0]
    throttled.check_launched(1)


def test_a_fleet_whose_answer_is_lost_is_launched_once(sandbox: Sandbox, case: Begin) -> None:
    lost = case("lost-answer")
    lost.need(2)
    sandbox.faults("aws", [failing("CreateFleet", drop=True)])
    (calls,) = lost.runs(1)
    assert 1 < calls <= MOST_TRIES
    lost.check_told("LaunchUnanswered", pods=2)
    launched = lost.instances()
    assert len(launched) == 2
    sandbox.faults("aws", [])
    lost.let_time_pass(REPEAT_WITHIN)
    assert lost.runs() == [0, 0, 0], "the instances are found by their tag"
    assert lost.instances() == launched
    lost.check_launched(2)
    lost.until_all_run()


def test_a_launch_without_its_template_or_right_is_repeated_once_and_blocks_no_next_run(
    sandbox: Sandbox, case: Begin
) -> None:
    gone = case("deleted-template")
    gone.need(1)
    assert gone.runs(1) == [1]
    gone.delete_templates()
    gone.need(2)
    assert gone.runs(1) == [2]
    gone.check_told("LaunchRepeated", pods=0)
    gone.delete_templates()
    gone.need(3)
    # EC2 denies a fleet whose template it does not find, if the role may use only tagged ones.
    denial = failing("CreateFleet", error="UnauthorizedOperation", status=403)
    sandbox.faults("aws", [denial | {"count": 1}])
    assert gone.runs(2) == [2, 0]
    gone.check_launched(3)
    gone.until_all_run()
    denied = case("denied")
    denied.need(1)
    sandbox.faults("aws", [denial])
    assert denied.runs(2) == [2, 2]
    denied.check_told("LaunchRefused", pods=1)
    sandbox.faults("aws", [])
    assert denied.runs(1) == [1]
    denied.check_launched(1)
    denied.until_all_run()


def test_an_account_without_the_role_for_spot_gets_on_demand_nodes(
    sandbox: Sandbox, case: Begin
) -> None:
    iam = client("iam", sandbox.aws_url)
    iam.delete_service_linked_role(RoleName="AWSServiceRoleForEC2Spot")
    both = case("no-spot-role")
    both.need(2)
    assert both.runs(2) == [2, 0]
    assert "SpotRoleMissing" in both.logged()
    both.check_launched(2)
    both.until_all_run()
    iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")


def test_a_launch_template_that_ec2_refuses_is_the_reason(sandbox: Sandbox, case: Begin) -> None:
    invalid = case("invalid-template")
    invalid.need(2)
    error = {"error": "InvalidBlockDeviceMapping", "message": "Invalid device name /dev/none"}
    sandbox.faults("aws", [failing("CreateLaunchTemplate", **error)])
    assert invalid.runs() == [0, 0, 0]
    invalid.check_told("LaunchRefused", pods=2)
    assert all("/dev/none" in str(one.message) for one in invalid.events())
    assert invalid.intents() == []
    invalid.check_launched(0)
