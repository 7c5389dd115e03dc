"""`leeway select --for-group`: a MixedInstancesPolicy that holds the same pods."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.costs import COST, OTHER, CostHour, SpotPool
from leeway.selection.resources import Resources
from leeway_cli import main
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.selection.group_advice import STRATEGY, Advice, ScalingGroup, advise, notes
from leeway_cli.selection.sources import sandbox_catalog

from tests.aws.stored import table_in
from tests.cli.test_convert_account import launch_template, subnets
from tests.sandbox.aws.started import Sandbox

ZONES = frozenset({"us-east-1a", "us-east-1b"})
SPOT = {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 20}


def group(*types: str, weights: Mapping[str, int] | None = None, **more: Any) -> ScalingGroup:
    overrides = [
        {"InstanceType": one, **({"WeightedCapacity": str(weights[one])} if weights else {})}
        for one in types
    ]
    mixed = {
        "LaunchTemplate": {"LaunchTemplateSpecification": {}, "Overrides": overrides},
        "InstancesDistribution": {**SPOT, "SpotInstancePools": 2},
    }
    fields: dict[str, Any] = {
        "name": "web",
        "types": types,
        "weights": weights or {},
        "zones": ZONES,
        "instances": frozenset(),
        "specification": {"LaunchTemplateId": "lt-1", "Version": "$Latest"},
        "described": {"MixedInstancesPolicy": mixed},
        "version": "7",
    }
    return ScalingGroup(**{**fields, **more})


def overrides(advice: Advice) -> dict[str, Mapping[str, str]]:
    found: list[Mapping[str, str]] = advice.policy["LaunchTemplate"]["Overrides"]
    return {one["InstanceType"]: one for one in found}


def test_a_group_of_one_type_gets_types_that_hold_as_much() -> None:
    advice = advise(group("m5.large"), sandbox_catalog(), None)
    assert len(overrides(advice)) == 20
    assert next(iter(overrides(advice))) == "m5.large"
    for name in overrides(advice):
        machine = sandbox_catalog().machine(name)
        assert machine is not None
        assert machine.vcpus >= 2
        assert machine.memory_mib >= 8192
        assert not machine.arm
        assert not name.startswith("t")
    assert (advice.before.pools, advice.after.pools > 20) == (2, True)
    assert advice.before.spot is not None
    assert advice.after.spot is not None
    assert advice.after.spot[0] <= advice.before.spot[0]
    assert advice.after.spot[1] <= 2 * advice.before.spot[1]
    kept = advice.policy["InstancesDistribution"]
    assert kept == {**SPOT, "SpotAllocationStrategy": STRATEGY}
    assert advice.policy["LaunchTemplate"]["LaunchTemplateSpecification"]["LaunchTemplateId"]
    assert notes(advice) == []


def test_small_pods_allow_smaller_types() -> None:
    pods = Resources({"cpu": 1000, "memory": 2 * 2**30, "pods": 8})
    advice = advise(group("m5.xlarge"), sandbox_catalog(), pods)
    sizes = {name.partition(".")[2] for name in overrides(advice)}
    assert "large" in sizes
    assert advice.need == pods


def test_pods_that_no_type_of_the_group_holds_do_not_decide() -> None:
    pods = Resources({"cpu": 30_000, "memory": 2**30, "pods": 1})
    assert advise(group("m5.large"), sandbox_catalog(), pods).need.of("cpu") < 2000


def test_a_group_with_weights_gets_weights_by_what_types_hold() -> None:
    advice = advise(
        group("m5.large", "m5.xlarge", weights={"m5.large": 2, "m5.xlarge": 4}),
        sandbox_catalog(),
        None,
    )
    found = overrides(advice)
    assert (found["m5.large"]["WeightedCapacity"], found["m5.xlarge"]["WeightedCapacity"]) == (
        "2",
        "4",
    )
    for name, one in found.items():
        machine = sandbox_catalog().machine(name)
        assert machine is not None
        assert 1 <= int(one["WeightedCapacity"]) <= machine.vcpus + 1
        assert machine.vcpus <= 16


def test_types_with_an_accelerator_or_another_processor_are_not_mixed() -> None:
    gpus = overrides(advise(group("g5.xlarge"), sandbox_catalog(), None))
    assert all(name.startswith("g") for name in gpus)
    arm = overrides(advise(group("m6g.large"), sandbox_catalog(), None))
    assert all((found := sandbox_catalog().machine(name)) and found.arm for name in arm)
    assert len(arm) > 5


def test_a_type_with_less_than_one_unit_is_left_out() -> None:
    pods = Resources({"cpu": 500, "memory": 2**30, "pods": 3})
    for weight in (1, 3, 8):
        weighted = group("m5.2xlarge", weights={"m5.2xlarge": weight})
        found = overrides(advise(weighted, sandbox_catalog(), pods))
        assert len(found) > 5
        for name, one in found.items():
            machine = sandbox_catalog().machine(name)
            assert machine is not None
            units = weight * min(machine.vcpus / 8, machine.memory_mib / 32768)
            # A larger node reserves a smaller share for the system.
            assert 1 <= int(one["WeightedCapacity"]) <= units * 1.1, name


def with_own(*types: str, own: Mapping[str, Any], **more: Any) -> ScalingGroup:
    """A group of which some types have a template or an AMI of their own."""
    found = group(*types, **more)
    for one in found.described["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]:
        one |= own.get(one["InstanceType"], {})
    return found


@pytest.mark.parametrize(
    "own",
    [{"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-arm"}}, {"ImageId": "ami-0a1b2c3d"}],
)
def test_added_types_run_the_template_of_the_group(own: Mapping[str, Any]) -> None:
    both = with_own("m6g.large", "m5.large", own={"m6g.large": own})
    added = set(overrides(advise(both, sandbox_catalog(), None))) - {"m6g.large"}
    assert len(added) > 5
    assert not any((found := sandbox_catalog().machine(name)) and found.arm for name in added)
    with pytest.raises(CannotBeDoneError, match="no type in the catalog that runs its launch"):
        advise(with_own("m6g.large", own={"m6g.large": own}), sandbox_catalog(), None)


def test_types_that_the_catalog_lacks_are_named() -> None:
    advice = advise(group("m5.large", "m99.large", "x99.large"), sandbox_catalog(), None)
    assert "m99.large" not in overrides(advice)
    assert notes(advice) == ["the catalog lacks m99.large, x99.large: the policy leaves them out"]


def test_a_group_without_a_policy_keeps_its_market_and_says_what_to_do() -> None:
    plain = advise(group("m5.large", described={}), sandbox_catalog(), None)
    assert plain.policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 100
    assert "it launches on-demand instances only" in notes(plain)[0]
    spot = advise(group("m5.large", described={}, spot_in_template=True), sandbox_catalog(), None)
    assert spot.policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0
    assert "InstanceMarketOptions" in notes(spot)[0]


def create(aws: Sandbox, name: str, **fields: Any) -> None:
    aws.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=1,
        VPCZoneIdentifier=",".join(subnets(aws)),
        **fields,
    )


def test_the_command_prints_a_policy_that_aws_takes(
    aws: Sandbox,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEEWAY_CLUSTER", "prod")  # which the command does not use
    launch_template(aws, "advice", InstanceType="m5.large")
    create(aws, "advice", LaunchTemplate={"LaunchTemplateName": "advice", "Version": "$Latest"})
    assert main.run(["select", "--for-group", "advice", "--sandbox"]) == 0
    printed = capsys.readouterr()
    assert "1 instance type -> 20 instance types" in printed.err
    assert "Interruptions: Leeway knows of no Spot instances of these types" in printed.err
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName="advice", MixedInstancesPolicy=json.loads(printed.out)
    )
    assert main.run(["select", "--for-group", "advice", "--sandbox", "-o", "yaml"]) == 0
    written = yaml.safe_load(capsys.readouterr().out)["MixedInstancesPolicy"]
    assert written["LaunchTemplate"]["LaunchTemplateSpecification"]["Version"] == "1"
    assert main.run(["select", "--for-group", "advice", "--sandbox", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after"]["counted"] == {
        "days": 30,
        "interruptions": 0,
        "instanceHours": 0,
        "types": 0,
    }
    assert len(found["before"]["types"]) == 20
    nodes = tmp_path / "nodes.json"
    nodes.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    arguments = ["select", "--for-group", "advice", "--sandbox", "--nodes", str(nodes)]
    assert main.run(arguments) == 0
    assert "no pod of --nodes runs on a node of group advice" in capsys.readouterr().err


def test_the_interruptions_that_were_counted_are_shown(
    aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    launch_template(aws, "counted", InstanceType="m5.large")
    tag = {"Key": "eks:cluster-name", "Value": "prod", "PropagateAtLaunch": True}
    template = {"LaunchTemplateName": "counted", "Version": "$Latest"}
    create(aws, "counted", LaunchTemplate=template, Tags=[tag])
    now = datetime.now(UTC)
    for days, interruptions in ((2, 3), (40, 50)):
        end = now - timedelta(days=days)
        spot = {
            "m5.large us-east-1a": SpotPool(700.4, interruptions),
            "m6i.large us-east-1a": SpotPool(100.0, 1),
            "m5.large eu-west-1a": SpotPool(100.0, 9),
            OTHER: SpotPool(100.0, 9),
        }
        hour = CostHour("prod", f"{end:%Y-%m-%d}", f"{end:%H}", end, spot=spot)
        table_in(aws).put(COST, hour)
    assert main.run(["select", "--for-group", "counted", "--sandbox"]) == 0
    said = capsys.readouterr().err
    assert "Interruptions in 30 days: 3 in 700 instance-h of 1 type -> " in said, said
    assert "instance-h of 2 types; 18 types of the policy did not run here." in said


@pytest.mark.parametrize(
    ("service", "action"), [("dynamodb", "Query"), ("cloudformation", "DescribeStacks")]
)
def test_interruptions_that_cannot_be_read_are_not_said_to_be_none(
    aws: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    service: str,
    action: str,
) -> None:
    if service == "cloudformation":
        monkeypatch.delenv("LEEWAY_TABLE")
    group_name = f"unread-{service}"
    launch_template(aws, group_name, InstanceType="m5.large")
    tag = {"Key": "eks:cluster-name", "Value": "prod", "PropagateAtLaunch": True}
    template = {"LaunchTemplateName": group_name, "Version": "$Latest"}
    create(aws, group_name, LaunchTemplate=template, Tags=[tag])
    fault = {"service": service, "action": action, "error": "AccessDeniedException"}
    aws.control("PUT", "faults", {"faults": [fault | {"status": 400}]})
    try:
        assert main.run(["select", "--for-group", group_name, "--sandbox"]) == 0
    finally:
        aws.control("PUT", "faults", {"faults": []})
    said = capsys.readouterr().err
    assert "warning: the Spot interruptions that Leeway counted are not read: " in said
    assert f"may not call {action}" in said


def test_the_template_of_an_override_stays(
    aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    launch_template(aws, "advice-x86")
    launch_template(aws, "advice-arm")
    aws.client("ec2").create_launch_template_version(
        LaunchTemplateName="advice-arm", LaunchTemplateData={"ImageId": "ami-12c6146b"}
    )
    own = {"LaunchTemplateName": "advice-arm", "Version": "$Latest"}
    overridden = [
        {"InstanceType": "m6g.large", "LaunchTemplateSpecification": own},
        {"InstanceType": "m5.large"},
    ]
    template = {
        "LaunchTemplateSpecification": {"LaunchTemplateName": "advice-x86"},
        "Overrides": overridden,
    }
    create(aws, "both", MixedInstancesPolicy={"LaunchTemplate": template})
    assert main.run(["select", "--for-group", "both", "--sandbox"]) == 0
    policy = json.loads(capsys.readouterr().out)
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName="both", MixedInstancesPolicy=policy
    )
    first = policy["LaunchTemplate"]["Overrides"][0]["LaunchTemplateSpecification"]
    assert first["Version"] == "$Latest"
    assert main.run(["select", "--for-group", "both", "--sandbox", "-o", "yaml"]) == 0
    written = yaml.safe_load(capsys.readouterr().out)["MixedInstancesPolicy"]["LaunchTemplate"]
    assert written["Overrides"][0]["LaunchTemplateSpecification"] == {**first, "Version": "2"}
    assert written["LaunchTemplateSpecification"]["Version"] == "1"


def test_a_group_that_gets_no_advice_is_one_line(
    aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    autoscaling = aws.client("autoscaling")
    autoscaling.create_launch_configuration(
        LaunchConfigurationName="old", ImageId="ami-12345678", InstanceType="m5.large"
    )
    create(aws, "old", LaunchConfigurationName="old")
    launch_template(aws, "typeless")
    create(aws, "typeless", LaunchTemplate={"LaunchTemplateName": "typeless", "Version": "1"})
    for arguments, code, why in (
        (["--for-group", "none"], 1, "There is no Auto Scaling group none in this region."),
        (["--for-group", "old"], 1, "has no launch template, which a MixedInstancesPolicy needs"),
        (["--for-group", "typeless"], 1, "names no instance type"),
        (["--for-group", "old", "--pods", "x"], 2, "expected no other input than --nodes"),
        (["--pods", "x", "-o", "yaml"], 2, "yaml is for --for-group"),
    ):
        assert main.run(["select", *arguments, "--sandbox"]) == code
        err = capsys.readouterr().err
        assert why in err
        assert err.count("\n") == 1
