"""Launch templates are created, described and deleted as in EC2."""

from base64 import b64encode
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.fleet_calls import image
from tests.sandbox.aws.started import Sandbox


def _create(aws: Sandbox, name: str, **more: Any) -> dict[str, Any]:
    wanted = {"LaunchTemplateName": name, "LaunchTemplateData": {"ImageId": image(aws)}} | more
    template: dict[str, Any] = aws.client("ec2").create_launch_template(**wanted)["LaunchTemplate"]
    return template


def _code(refused: pytest.ExceptionInfo[ClientError]) -> str:
    return str(refused.value.response["Error"]["Code"])


def _tags(kind: str, **tags: str) -> list[dict[str, Any]]:
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": listed}]


def test_the_same_token_creates_one_template(aws: Sandbox) -> None:
    first, second = (_create(aws, "once", ClientToken="one") for _ in range(2))
    assert first == second
    with pytest.raises(ClientError) as refused:
        _create(aws, "twice", ClientToken="one")
    assert _code(refused) == "IdempotentParameterMismatch"


def test_a_version_inherits_from_its_source(aws: Sandbox) -> None:
    ec2, data = aws.client("ec2"), {"ImageId": image(aws), "InstanceType": "m5.large"}
    _create(aws, "inherits", LaunchTemplateData=data)

    def version(**more: str) -> dict[str, Any]:
        created: dict[str, Any] = ec2.create_launch_template_version(
            LaunchTemplateName="inherits", LaunchTemplateData={"InstanceType": "m6i.large"}, **more
        )["LaunchTemplateVersion"]
        return created

    second = version(SourceVersion="1")
    assert (second["VersionNumber"], second["DefaultVersion"]) == (2, False)
    assert second["LaunchTemplateData"] == {**data, "InstanceType": "m6i.large"}
    assert version()["LaunchTemplateData"] == {"InstanceType": "m6i.large"}
    with pytest.raises(ClientError) as refused:
        version(SourceVersion="9")
    assert _code(refused) == "InvalidLaunchTemplateId.VersionNotFound"


@pytest.mark.parametrize("name", ["ab", "a" * 129, "leeway nodes", "leeway:nodes"])
def test_a_name_has_the_characters_that_ec2_takes(aws: Sandbox, name: str) -> None:
    with pytest.raises(ClientError) as refused:
        _create(aws, name)
    assert _code(refused) == "InvalidLaunchTemplateName.MalformedException"


def test_templates_are_found_by_tag_name_and_id_page_by_page(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    made = [
        _create(aws, f"leeway-{n}", TagSpecifications=_tags("launch-template", cluster="demo"))
        for n in range(20)
    ]
    by_tag = [{"Name": "tag:cluster", "Values": ["demo"]}]
    found = ec2.describe_launch_templates(Filters=by_tag)["LaunchTemplates"]
    assert {one["LaunchTemplateId"] for one in found} == {one["LaunchTemplateId"] for one in made}
    assert found[0]["Tags"] == [{"Key": "cluster", "Value": "demo"}]
    pages = ec2.get_paginator("describe_launch_templates").paginate(
        Filters=by_tag, PaginationConfig={"PageSize": 7}
    )
    assert [len(page["LaunchTemplates"]) for page in pages] == [7, 7, 6]
    first = made[0]["LaunchTemplateId"]
    [by_id] = ec2.describe_launch_templates(LaunchTemplateIds=[first])["LaunchTemplates"]
    [by_name] = ec2.describe_launch_templates(LaunchTemplateNames=["leeway-0"])["LaunchTemplates"]
    assert by_id == by_name
    keys = [{"Name": "tag-key", "Values": ["cluster"]}]
    assert len(ec2.describe_launch_templates(Filters=keys)["LaunchTemplates"]) == 20


def test_tags_of_a_template_are_no_tags_of_what_it_launches(aws: Sandbox) -> None:
    data = {"ImageId": image(aws), "TagSpecifications": _tags("instance", of="instances")}
    made = _create(
        aws,
        "tagged",
        LaunchTemplateData=data,
        TagSpecifications=_tags("launch-template", of="template"),
    )
    versions = aws.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=made["LaunchTemplateId"], Versions=["$Latest"]
    )
    [version] = versions["LaunchTemplateVersions"]
    specifications = version["LaunchTemplateData"]["TagSpecifications"]
    assert specifications == _tags("instance", of="instances")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"TagSpecifications": _tags("instance", a="b")}, "InvalidParameterValue"),
        (
            {"TagSpecifications": _tags("launch-template", **{"aws:a": "b"})},
            "InvalidParameterValue",
        ),
        (
            {"TagSpecifications": _tags("launch-template", **{"a" * 129: "b"})},
            "InvalidParameterValue",
        ),
        ({"TagSpecifications": _tags("launch-template", a="b" * 257)}, "InvalidParameterValue"),
        (
            {"TagSpecifications": _tags("launch-template", **{f"k{n}": "v" for n in range(51)})},
            "TagLimitExceeded",
        ),
        (
            {"LaunchTemplateData": {"TagSpecifications": _tags("fleet", a="b")}},
            "InvalidParameterValue",
        ),
        ({"LaunchTemplateData": {}}, "MissingParameter"),
        ({"LaunchTemplateData": {"UserData": "no base64"}}, "InvalidUserData.Malformed"),
    ],
)
def test_a_template_that_ec2_refuses(aws: Sandbox, more: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        _create(aws, "refused", **more)
    assert _code(refused) == code


def test_user_data_has_at_most_16_kib(aws: Sandbox) -> None:
    largest = b64encode(b"x" * 16384).decode()
    _create(aws, "largest", LaunchTemplateData={"UserData": largest})
    with pytest.raises(ClientError, match="User data is limited to 16384 bytes") as refused:
        _create(aws, "larger", LaunchTemplateData={"UserData": b64encode(b"x" * 16385).decode()})
    assert _code(refused) == "InvalidUserData.Malformed"
