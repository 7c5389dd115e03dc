"""The lists that reconcile reads from AWS, against the sandbox."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway.aws.autoscaling import AutoScalingGroups, AutoScalingWaitingActions
from leeway.aws.ec2 import Ec2Instances, Ec2Sweep
from leeway.costs import INTERRUPTED_FOR, interruptions_of
from leeway.instances.facts import (
    CHANGE_PREFIX,
    OWNED_PREFIX,
    ObservedChange,
    ObservedHook,
    Owner,
    OwnerKind,
)
from leeway.notices import InterruptionAction, LifecycleHook
from leeway.ports.aws import CloudRefused, CloudUnavailable, HookResult, HookSettings, Waiting

from tests.aws.receive_notice import client_factory, launch
from tests.sandbox.aws.started import Sandbox, hook

EKS_GROUP = "eks-general-0ac1b6a3-4d3e-9f0b-6c56-3f1c2e9a7b10"


@pytest.fixture
def sweep(aws: Sandbox) -> Ec2Sweep:
    return Ec2Sweep(client_factory(aws, "ec2"))


@pytest.mark.parametrize(
    "tags",
    [
        {"kubernetes.io/cluster/swept": "owned"},
        {"eks:cluster-name": "swept"},
        {"aws:eks:cluster-name": "swept"},
        {"eks:eks-cluster-name": "swept"},
    ],
)
def test_instances_are_found_by_any_tag_of_the_cluster(
    aws: Sandbox, sweep: Ec2Sweep, tags: dict[str, str]
) -> None:
    instance = launch(aws, tags)
    launch(aws, {"kubernetes.io/cluster/other": "owned"})
    launch(aws, {"kubernetes.io/cluster/swept": "shared"})
    launch(aws, {"eks:cluster-name": "other"})
    found = {one.facts.instance: one for one in sweep.instances(["swept"])}
    assert instance in found
    assert {one.facts.cluster for one in found.values()} == {"swept"}
    assert found[instance].state in {"pending", "running"}
    assert found[instance].launched_at.tzinfo is not None
    assert found[instance].facts == Ec2Instances(client_factory(aws, "ec2")).describe(instance)


def test_one_call_lists_all_instances_and_no_clusters_take_no_call(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    def calls() -> int:
        counted: dict[str, int] = aws.control("GET", "status")["calls"]
        return counted.get("ec2:DescribeInstances", 0)

    for _ in range(5):
        launch(aws, {"eks:cluster-name": "one-call"})
    before = calls()
    assert len(sweep.instances(["one-call", "another"])) == 5
    assert sweep.instances([]) == []
    assert calls() - before == 1


def test_more_clusters_than_a_filter_accepts_are_listed_in_batches(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    names = [f"many-{number:03}" for number in range(250)]
    tags = {f"{OWNED_PREFIX}{names[0]}": "owned", f"{OWNED_PREFIX}{names[-1]}": "shared"}
    instance = launch(aws, tags)
    batches: list[int] = []
    client = aws.client("ec2")

    def note(params: dict[str, Any], **_: Any) -> None:
        batches.append(len(params["Filters"][0]["Values"]))

    client.meta.events.register("before-parameter-build.ec2.DescribeInstances", note)
    try:
        found = Ec2Sweep(lambda: client).instances(names)
    finally:
        client.meta.events.unregister("before-parameter-build.ec2.DescribeInstances", note)
    assert [one.facts.instance for one in found] == [instance]
    assert len(batches) == 2
    assert max(batches) <= 200


def test_states_are_current_and_unknown_instances_count_as_terminated(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    living, ended = launch(aws, {"Name": "living"}), launch(aws, {"Name": "ended"})
    Ec2Instances(client_factory(aws, "ec2")).terminate(ended)
    aws.wait(lambda: sweep.states([ended]) == {ended: "terminated"})
    aws.wait(lambda: sweep.states([living]) == {living: "running"})
    unknown = ["i-0ffffffffffffffff", "i-0eeeeeeeeeeeeeeee"]
    assert sweep.states(unknown) == dict.fromkeys(unknown, "terminated")
    aws.wait(
        lambda: (
            sweep.states([living, *unknown])
            == {living: "running"} | dict.fromkeys(unknown, "terminated")
        )
    )


class Partial:
    """A client of EC2 whose filtered answers lack some instances."""

    def __init__(self, client: Any, lacks: str, names: bool = True) -> None:
        self._client = client
        self._lacks = lacks
        self._names = names

    def get_paginator(self, name: str) -> "Partial":
        return self

    def paginate(self, **parameters: Any) -> list[Any]:
        pages = list(self._client.get_paginator("describe_instances").paginate(**parameters))
        for page in pages:
            for reservation in page["Reservations"]:
                reservation["Instances"] = [
                    one for one in reservation["Instances"] if one["InstanceId"] != self._lacks
                ]
        return pages

    def describe_instances(self, InstanceIds: list[str]) -> Any:  # noqa: N803 (boto3's name)
        if not self._names:
            error = {"Code": "InvalidInstanceID.NotFound", "Message": "some do not exist"}
            raise ClientError({"Error": error}, "DescribeInstances")
        return self._client.describe_instances(InstanceIds=InstanceIds)


def test_an_instance_that_is_missing_from_one_filtered_answer_is_not_terminated(
    aws: Sandbox,
) -> None:
    living, other = launch(aws, {"Name": "lacking"}), launch(aws, {"Name": "there"})
    unknown = "i-0ffffffffffffffff"
    client = Partial(aws.client("ec2"), living)
    running = {living: "running", other: "running"}
    aws.wait(lambda: Ec2Sweep(lambda: client).states([living, other]) == running)
    found = Ec2Sweep(lambda: client).states([living, other, unknown])
    assert found == running | {unknown: "terminated"}


def test_unknown_instances_that_ec2_does_not_name_have_no_state(
    aws: Sandbox,
) -> None:
    living, other = launch(aws, {"Name": "lacking"}), launch(aws, {"Name": "there"})
    client = Partial(aws.client("ec2"), living, names=False)
    aws.wait(lambda: Ec2Sweep(lambda: client).states([living, other]) == {other: "running"})


def test_an_incomplete_list_is_an_error(aws: Sandbox, sweep: Ec2Sweep) -> None:
    fault = {"service": "ec2", "error": "RequestLimitExceeded", "status": 503}
    aws.control("PUT", "faults", {"faults": [fault]})
    with pytest.raises(CloudUnavailable):
        sweep.instances(["swept"])
    with pytest.raises(CloudUnavailable):
        sweep.states(["i-0ffffffffffffffff"])


def test_spot_interruptions_are_found_without_a_warning(aws: Sandbox, sweep: Ec2Sweep) -> None:
    market = {"InstanceMarketOptions": {"MarketType": "spot"}}
    (member, other) = aws.group("taken-back", 2, template=market)
    before = sweep.interruptions()
    command = {"instance": member, "copies": 0, "late": 30}
    (begun,) = aws.control("POST", "interrupt", command)["interruptions"]
    (seen,) = [one for one in sweep.interruptions() if one not in before]
    assert abs(seen.marked_at.timestamp() + 120 - begun["reclaim_at"]) <= 1
    assert (seen.instance, seen.action) == (member, InterruptionAction.TERMINATE)
    assert sweep.states([member]) == {member: "running"}
    instances = Ec2Instances(client_factory(aws, "ec2"))
    now = [instances.current_instance(one) for one in (member, other)]
    assert [one.interrupted for one in now if one is not None] == [True, False]


def test_an_interrupted_instance_is_counted_with_its_type_and_zone(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    tags = [{"Key": "kubernetes.io/cluster/counted", "Value": "owned"}]
    template = {
        "InstanceMarketOptions": {"MarketType": "spot"},
        "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
    }
    (member, _) = aws.group("counted", 2, template=template)
    aws.control("POST", "interrupt", {"instance": member, "copies": 0, "warning": 1})
    (mark,) = [one for one in sweep.interruptions() if one.instance == member]
    aws.wait(lambda: sweep.states([member]) != {member: "running"})
    instances = sweep.instances(["counted"])
    (zone,) = [one.facts.zone for one in instances if one.facts.instance == member]
    counted_at = mark.marked_at + INTERRUPTED_FOR
    second = timedelta(seconds=1)
    found = [
        interruptions_of(instances, sweep.interruptions(), since, until)
        for since, until in ((counted_at - second, counted_at), (counted_at, counted_at + second))
    ]
    assert found == [{f"m5.large {zone}": 1}, {}]


def test_the_interruption_of_a_stopped_spot_instance_has_the_action_stop(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    market = {"InstanceMarketOptions": {"MarketType": "spot"}}
    (member,) = aws.group("taken-to-stop", 1, template=market)
    aws.control("POST", "interrupt", {"instance": member, "copies": 0, "action": "stop"})
    found = {one.instance: one.action for one in sweep.interruptions()}
    assert found[member] is InterruptionAction.STOP


def test_failed_status_checks_are_found_with_their_start(aws: Sandbox, sweep: Ec2Sweep) -> None:
    first, second, third = (launch(aws, {"Name": "impaired"}) for _ in range(3))
    all_of_them = dict.fromkeys((first, second, third), "running")
    aws.wait(lambda: sweep.states(all_of_them) == all_of_them)

    def found() -> dict[str, Any]:
        return {x.instance: x.since for x in sweep.impairments() if x.instance in all_of_them}

    assert found() == {}
    failing = [(first, "system"), (first, "instance"), (second, "attached-ebs")]
    for instance, check in failing:
        aws.control("POST", "impair", {"instance": instance, "check": check, "lasts": 90})
    checks = {name: set(since) for name, since in found().items()}
    assert checks == {first: {"system", "instance"}, second: {"attached-ebs"}}
    for since in found()[first].values():
        assert timedelta(seconds=80) < datetime.now(UTC) - since < timedelta(seconds=180)
    for instance, check in failing:
        aws.control("POST", "impair", {"instance": instance, "check": check, "lasts": None})
    assert found() == {}


def test_an_instance_has_the_name_of_its_group_for_any_creator(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    tags = {"eks:cluster-name": "grouped", "eks:nodegroup-name": "general"}
    group_tags = [
        {"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()
    ]
    (member,) = aws.group(EKS_GROUP, 1, Tags=group_tags)
    alone = launch(aws, {"eks:cluster-name": "grouped"})
    found = {one.facts.instance: one for one in sweep.instances(["grouped"])}
    assert (found[member].group, found[alone].group) == (EKS_GROUP, "")
    assert found[member].facts.owner == Owner(OwnerKind.MANAGED_NODE_GROUP, "general")


def test_scheduled_events_are_found_with_completed_and_canceled_ones(
    aws: Sandbox, sweep: Ec2Sweep
) -> None:
    degraded, quiet = launch(aws, {"Name": "degraded"}), launch(aws, {"Name": "quiet"})
    aws.wait(lambda: sweep.states([degraded, quiet]) == {degraded: "running", quiet: "running"})

    def changes() -> list[ObservedChange]:
        return [one for one in sweep.changes() if one.instance in {degraded, quiet}]

    assert changes() == []
    command = {"instance": degraded, "code": "system-reboot", "starts_in": 7200}
    event = aws.control("POST", "maintenance", command)["event"]
    (found,) = changes()
    assert (found.instance, found.event, found.code) == (degraded, event, "system-reboot")
    assert timedelta(minutes=115) < found.starts_at - datetime.now(UTC) <= timedelta(hours=2)
    assert event.startswith(CHANGE_PREFIX)
    assert not found.over
    one = Ec2Instances(client_factory(aws, "ec2"))
    assert (one.changes_of(degraded), one.changes_of(quiet)) == ([found], [])
    for over in ("[Completed]", "[Canceled]"):
        aws.control("POST", "maintenance", {**command, "event": event, "over": over})
        assert [(change.event, change.over) for change in changes()] == [(event, True)]
        assert [change.over for change in one.changes_of(degraded)] == [True]


def test_scheduled_events_are_read_to_the_last_page(aws: Sandbox, sweep: Ec2Sweep) -> None:
    members = {launch(aws, {"Name": f"paged-{n}"}) for n in range(3)}
    aws.wait(lambda: set(sweep.states(members).values()) == {"running"})
    for member in members:
        aws.control("POST", "maintenance", {"instance": member})
    pages = (
        aws.client("ec2")
        .get_paginator("describe_instance_status")
        .paginate(
            Filters=[{"Name": "event.code", "Values": ["instance-retirement"]}],
            PaginationConfig={"PageSize": 2},
        )
    )
    assert len(list(pages)) >= 2
    assert members <= {change.instance for change in sweep.changes()}


def test_instances_that_wait_for_hooks_are_found_in_their_groups(aws: Sandbox) -> None:
    hooks = [hook("drain"), hook("admit", "LAUNCHING")]
    aws.group("quiet", 1)
    waiting = AutoScalingWaitingActions(client_factory(aws, "autoscaling"))
    groups = AutoScalingGroups(client_factory(aws, "autoscaling"))
    (member,) = aws.group("waits", 1, LifecycleHookSpecificationList=hooks[:1])
    assert waiting.of_groups(["waits", "quiet"]) == Waiting(())
    aws.client("autoscaling").put_lifecycle_hook(AutoScalingGroupName="waits", **hooks[1])
    groups.terminate_in_group(member)
    aws.wait(lambda: len(waiting.of_groups(["waits"]).seen) == 2)
    found = waiting.of_groups(["waits", "quiet", "no-such-group"]).seen
    assert (
        ObservedHook(member, LifecycleHook("waits", "drain"), launching=False, timeout=60) in found
    )
    (launching,) = [one for one in found if one.launching]
    assert launching.hook == LifecycleHook("waits", "admit")
    groups.complete(launching.instance, launching.hook, HookResult.CONTINUE)
    aws.wait(lambda: len(waiting.of_groups(["waits"]).seen) == 1)


def test_an_instance_whose_root_volume_is_replaced_waits_for_a_terminate_hook(aws: Sandbox) -> None:
    (member,) = aws.group("refreshed", 1, LifecycleHookSpecificationList=[hook("drain")])
    client = aws.client("autoscaling")

    def in_place(parsed: dict[str, Any], **_: Any) -> None:
        """Moto does not refresh instances in place."""
        for one in parsed["AutoScalingGroups"][0]["Instances"]:
            one["LifecycleState"] = "ReplacingRootVolume:Wait"

    answered = "after-call.auto-scaling.DescribeAutoScalingGroups"
    drain = ObservedHook(member, LifecycleHook("refreshed", "drain"), launching=False, timeout=60)
    client.meta.events.register(answered, in_place)
    try:
        found = AutoScalingWaitingActions(lambda: client).of_groups(["refreshed"])
        assert found == Waiting((drain,))
        assert AutoScalingGroups(lambda: client).missing("refreshed") == 0, "it stays in the group"
    finally:
        client.meta.events.unregister(answered, in_place)


@pytest.mark.parametrize("call", ["DescribeLifecycleHooks", "DescribeAutoScalingGroups"])
def test_a_throttled_group_is_reported_and_does_not_hide_other_groups(
    aws: Sandbox, call: str
) -> None:
    waiting = AutoScalingWaitingActions(client_factory(aws, "autoscaling"))
    groups = AutoScalingGroups(client_factory(aws, "autoscaling"))
    names = [f"one-{call.lower()}", f"two-{call.lower()}"]
    for name in names:
        (member,) = aws.group(name, 1, LifecycleHookSpecificationList=[hook("drain")])
        groups.terminate_in_group(member)
    filled = [f"a{number:03}" for number in range(100)]  # with which the first call is full
    aws.wait(lambda: len(waiting.of_groups(names).seen) == 2)
    fault = {"service": "autoscaling", "action": call, "error": "Throttling", "count": 1}
    aws.control("PUT", "faults", {"faults": [fault]})
    found = waiting.of_groups([*filled, *names])
    whole = call == "DescribeAutoScalingGroups"
    assert [one.hook.group for one in found.seen] == (names if whole else names[1:])
    (unread,) = found.unread
    assert unread.startswith("groups a000 to a099: " if whole else f"{names[0]}: ")
    assert "Throttling" in unread


def test_hooks_with_a_target_are_left_out_except_the_hooks_of_eks(
    aws: Sandbox,
) -> None:
    hooks = [hook("other-target"), hook("Terminate-LC-Hook")]
    (member,) = aws.group("eks-general", 1, LifecycleHookSpecificationList=hooks)
    AutoScalingGroups(client_factory(aws, "autoscaling")).terminate_in_group(member)
    client = aws.client("autoscaling")

    def with_their_target(parsed: dict[str, Any], **_: Any) -> None:
        """Moto does not keep the topic that hooks of managed node groups have."""
        for one in parsed["LifecycleHooks"]:
            topic = "arn:aws:sns:us-east-1:111122223333:eks-asg-lifecycle-hook-topic"
            one["NotificationTargetARN"] = topic

    answered = "after-call.auto-scaling.DescribeLifecycleHooks"
    waiting = AutoScalingWaitingActions(lambda: client)
    own = LifecycleHook("eks-general", "Terminate-LC-Hook")
    client.meta.events.register(answered, with_their_target)
    try:
        aws.wait(lambda: waiting.of_groups(["eks-general"]).seen)
        expected = ObservedHook(member, own, launching=False, timeout=60)
        assert waiting.of_groups(["eks-general"]) == Waiting((expected,))
        rules = AutoScalingGroups(lambda: client).rules("eks-general")
        assert rules.terminate_hooks == ("Terminate-LC-Hook",)
        assert rules.foreign_terminate_hooks == ("other-target",)
        assert rules.with_target == {"other-target", "Terminate-LC-Hook"}
        settings = AutoScalingGroups(lambda: client).hook_settings(own)
        assert settings == HookSettings(60, has_target=True)
    finally:
        client.meta.events.unregister(answered, with_their_target)


def test_the_manufacturers_of_accelerators_are_read_from_ec2(aws: Sandbox) -> None:
    types = Ec2Instances(client_factory(aws, "ec2"))
    assert types.accelerators("g4dn.xlarge") == ("NVIDIA",)
    assert "AWS" in types.accelerators("inf1.xlarge")
    assert types.accelerators("m5.large") == ()
    with pytest.raises(CloudRefused):
        types.accelerators("m5.no-such-size")
