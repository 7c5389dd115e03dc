"""What groups launch, and their instances, as Auto Scaling and EC2 of the sandbox answer."""

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
from leeway.aws.group_templates import AwsGroupTemplates
from leeway.instances.group_template import GroupMember, GroupNow, Template, drift_of_member

from tests.sandbox.aws.started import Sandbox

NUMBERS = count(1)


@pytest.fixture
def templates(aws: Sandbox) -> AwsGroupTemplates:
    return AwsGroupTemplates(*(partial(aws.client, one) for one in ("autoscaling", "ec2", "ssm")))


def read(templates: AwsGroupTemplates, name: str) -> GroupNow:
    found = templates.now([name, "never-was"])
    assert [*found] == [name], "a group that does not exist is left out"
    return found[name]


def new_version(aws: Sandbox, name: str, **data: str) -> str:
    made = aws.client("ec2").create_launch_template_version(
        LaunchTemplateName=name,
        SourceVersion="1",
        LaunchTemplateData={"InstanceType": "m5.large", **data},
    )
    return str(made["LaunchTemplateVersion"]["LaunchTemplateId"])


def test_an_alias_is_resolved_at_each_read_and_a_member_keeps_its_version(
    aws: Sandbox, templates: AwsGroupTemplates
) -> None:
    name = f"templates-{next(NUMBERS)}"
    scaling = aws.client("autoscaling")
    (instance,) = aws.group(name, 1)
    latest = {"LaunchTemplateName": name, "Version": "$Latest"}
    scaling.update_auto_scaling_group(AutoScalingGroupName=name, LaunchTemplate=latest)
    group = read(templates, name)
    (member,) = group.members
    assert (member.instance, member.version, member.lifecycle_state) == (instance, "1", "InService")
    assert drift_of_member(member, "ami-12345678", group) == ()
    made = new_version(aws, name, ImageId="ami-87654321")
    group = read(templates, name)
    assert group.template == Template(made, name, "2", "ami-87654321", "m5.large")
    (member,) = group.members
    assert (member.template, member.version) == (made, "1"), "as it was launched"
    found = " ".join(drift_of_member(member, "ami-12345678", group))
    assert "version 1, and its group launches from version 2" in found
    assert "runs ami-12345678, and its group launches ami-87654321" in found


def test_the_default_version_applies_if_the_group_names_none(
    aws: Sandbox, templates: AwsGroupTemplates
) -> None:
    name = f"templates-{next(NUMBERS)}"
    aws.group(name, 1)
    new_version(aws, name, ImageId="ami-87654321")
    group = read(templates, name)
    assert group.template is not None
    assert group.template.version == "1"
    aws.client("ec2").modify_launch_template(LaunchTemplateName=name, DefaultVersion="2")
    group = read(templates, name)
    assert group.template is not None
    assert group.template.version == "2"


def test_a_parameter_of_systems_manager_names_the_image_of_now(
    aws: Sandbox, templates: AwsGroupTemplates
) -> None:
    name = f"templates-{next(NUMBERS)}"
    aws.group(name, 0)
    parameter = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/"
    parameter += "recommended/image_id"
    known = aws.client("ssm").get_parameters(Names=[parameter])["Parameters"]
    new_version(aws, name, ImageId=f"resolve:ssm:{parameter}")
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=name, LaunchTemplate={"LaunchTemplateName": name, "Version": "2"}
    )
    group = read(templates, name)
    assert group.template is not None
    assert group.template.image == (known[0]["Value"] if known else "")
    new_version(aws, name, ImageId="resolve:ssm:/of/nobody")
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=name, LaunchTemplate={"LaunchTemplateName": name, "Version": "3"}
    )
    group = read(templates, name)
    assert group.template is not None
    assert (group.template.version, group.template.image) == ("3", ""), "not known: no difference"


def test_overrides_name_the_types_and_templates_of_their_own(
    aws: Sandbox, templates: AwsGroupTemplates
) -> None:
    name = f"templates-{next(NUMBERS)}"
    own = aws.client("ec2").create_launch_template(
        LaunchTemplateName=f"{name}-arm", LaunchTemplateData={"ImageId": "ami-87654321"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    aws.group(name, 0)
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "1"},
            "Overrides": [
                {"InstanceType": "m5.large"},
                {
                    "InstanceType": "m6g.large",
                    "LaunchTemplateSpecification": {"LaunchTemplateId": own, "Version": "$Latest"},
                },
            ],
        }
    }
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=name, MixedInstancesPolicy=policy
    )
    group = read(templates, name)
    assert group.types == {"m5.large", "m6g.large"}
    assert group.own == {"m6g.large": Template(own, f"{name}-arm", "1", "ami-87654321")}
    assert "version 1 of launch template" in group.launches


def overridden(aws: Sandbox, name: str, *overrides: dict[str, Any]) -> None:
    """Create a group of no instances with these overrides of its launch template, whose AMI is
    ami-12345678."""
    aws.group(name, 0)
    common = {"LaunchTemplateName": name, "Version": "1"}
    policy = {"LaunchTemplateSpecification": common, "Overrides": [*overrides]}
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=name, MixedInstancesPolicy={"LaunchTemplate": policy}
    )


def test_an_override_may_have_an_image_of_its_own(
    aws: Sandbox, templates: AwsGroupTemplates
) -> None:
    name = f"templates-{next(NUMBERS)}"
    arm = {"InstanceType": "m6g.large", "ImageId": "ami-87654321"}
    overridden(aws, name, {"InstanceType": "m5.large"}, arm)
    group = read(templates, name)
    assert group.template is not None
    assert group.own == {"m6g.large": replace(group.template, image="ami-87654321")}
    assert "(ami-12345678)" in group.launches
    assert "(ami-87654321)" in group.launches
    member = GroupMember("i-1", "m6g.large", "InService", group.template.id, "1")
    assert drift_of_member(member, "ami-87654321", group) == ()
    (drift,) = drift_of_member(member, "ami-00000001", group)
    assert "runs ami-00000001, and its group launches ami-87654321" in drift
    x86 = replace(member, instance_type="m5.large")
    assert drift_of_member(x86, "ami-12345678", group) == ()
    assert drift_of_member(x86, "ami-87654321", group)


def test_a_member_of_requirements_is_compared_with_the_template_that_it_was_launched_from(
    aws: Sandbox, templates: AwsGroupTemplates
) -> None:
    name = f"templates-{next(NUMBERS)}"
    ec2, data = aws.client("ec2"), {"ImageId": "ami-87654321"}
    arm = ec2.create_launch_template(LaunchTemplateName=f"{name}-arm", LaunchTemplateData=data)
    own = arm["LaunchTemplate"]["LaunchTemplateId"]
    latest = {"LaunchTemplateId": own, "Version": "$Latest"}
    needs = {"VCpuCount": {"Min": 2}, "MemoryMiB": {"Min": 4096}}
    overridden(
        aws,
        name,
        {"InstanceRequirements": needs, "LaunchTemplateSpecification": latest},
        {"InstanceRequirements": needs},
    )
    group = read(templates, name)
    assert group.template is not None
    assert (group.own, group.types) == ({}, frozenset())
    assert f"version 1 of launch template {name}-arm (ami-87654321)" in group.launches
    member = GroupMember("i-1", "m6g.large", "InService", own, "1")
    x86 = replace(member, instance_type="m5.large", template=group.template.id)
    attached = replace(member, template="", version="")
    assert drift_of_member(member, "ami-87654321", group) == ()
    assert drift_of_member(x86, "ami-12345678", group) == ()
    assert drift_of_member(attached, "ami-87654321", group) == ()
    assert drift_of_member(replace(member, template="lt-gone"), "ami-87654321", group)
    ec2.create_launch_template_version(LaunchTemplateId=own, LaunchTemplateData=data)
    (drift,) = drift_of_member(member, "ami-87654321", read(templates, name))
    assert (
        f"version 1, and its group launches from version 2 of launch template {name}-arm" in drift
    )


def test_a_template_that_was_deleted_is_named(aws: Sandbox, templates: AwsGroupTemplates) -> None:
    name = f"templates-{next(NUMBERS)}"
    aws.group(name, 0)
    assert not read(templates, name).unread
    aws.client("ec2").delete_launch_template(LaunchTemplateName=name)
    group = read(templates, name)
    assert group.unread.startswith(f"launch template {name} cannot be read: ")
