"""An invalid parameter is refused before the deployment."""

import re

import pytest

from tests.template.translation import TEMPLATE, translated

PARAMETERS = translated()["Parameters"]

RIGHT = {
    "ClusterNames": ["", "demo", " prod ", "Blue_green-1", "a" * 100],
    "NodeRoleArns": [
        "",
        "arn:aws:iam::123456789012:role/path/nodes_1",
        " arn:aws-cn:iam::123456789012:role/n",
    ],
    "EndpointUrl": ["", "http://172.17.0.1:4566", "https://vpce-1.example.com/"],
    "SubnetIds": ["", "subnet-0a1b2c3d", "subnet-0a1b2c3d4e5f60718,subnet-1"],
    "SecurityGroupIds": ["", "sg-0a1b2c3d", "sg-1,sg-2"],
    "AlarmTopicArn": ["", "arn:aws:sns:us-east-1:123456789012:pages"],
    "WarningTopicArn": ["", "arn:aws-us-gov:sns:us-gov-west-1:123456789012:morning"],
}
WRONG = {
    "ClusterNames": ["arn:aws:eks:us-east-1:123456789012:cluster/demo", "-demo", "a b", "a" * 101],
    "NodeRoleArns": ["nodes", "arn:aws:iam::123456789012:role/*", "arn:aws:iam::1:role/n", "*"],
    "EndpointUrl": ["localhost:4566", "https://host/path", "https://host?x=1"],
    "SubnetIds": ["sg-1", "subnet-1, subnet-2", ",".join(["subnet-1"] * 7)],
    "SecurityGroupIds": ["subnet-1", "sg-1,sg-2,sg-3"],
    "AlarmTopicArn": ["pages", "arn:aws:sqs:us-east-1:123456789012:pages"],
    "WarningTopicArn": ["arn:aws:sns:us-east-1:123456789012:"],
}


def test_every_text_parameter_with_a_format_has_a_pattern() -> None:
    free = {"CodeSha256", "RunbookUrl"}
    texts = {
        name
        for name, parameter in PARAMETERS.items()
        if parameter["Type"] != "Number" and "AllowedValues" not in parameter
    }
    assert texts - free == RIGHT.keys() == WRONG.keys()


@pytest.mark.parametrize("name", RIGHT)
def test_a_valid_value_is_accepted(name: str) -> None:
    pattern = PARAMETERS[name]["AllowedPattern"]
    assert PARAMETERS[name]["ConstraintDescription"]
    assert [value for value in RIGHT[name] if not re.fullmatch(pattern, value)] == []


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_value_is_refused(name: str) -> None:
    pattern = PARAMETERS[name]["AllowedPattern"]
    assert [value for value in WRONG[name] if re.fullmatch(pattern, value)] == []


def test_every_parameter_has_a_description_and_a_group() -> None:
    groups = translated()["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    grouped = [name for group in groups for name in group["Parameters"]]
    assert sorted(grouped) == sorted(PARAMETERS)
    assert all(parameter["Description"] for parameter in PARAMETERS.values())


def test_the_docs_list_every_parameter_with_its_default() -> None:
    page = (TEMPLATE.parent / "docs" / "deploy.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented >= PARAMETERS.keys()
    for row in rows:
        for name in re.findall(r"`(\w+)`", row.split("|")[1]):
            default = PARAMETERS.get(name, {}).get("Default")
            assert str(default or "") in row.replace("none", "")
