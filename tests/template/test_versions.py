"""When a deployment publishes a version of retire_node, and what stays for executions under way."""

from collections.abc import Mapping

import pytest

from tests.template.translation import translate


def version(
    uploaded: Mapping[str, str] | None = None, parameters: Mapping[str, str] | None = None
) -> str:
    """The logical id of the version resource: CloudFormation publishes when it is a new one."""
    resources = translate(uploaded or {}, parameters or {})["Resources"]
    (found,) = [name for name, body in resources.items() if body["Type"] == "AWS::Lambda::Version"]
    assert resources[found]["Properties"]["FunctionName"] == {"Ref": "RetireNodeFunction"}
    return str(found)


def test_a_deployment_that_changes_nothing_publishes_nothing() -> None:
    assert version() == version()


def test_a_change_of_the_layer_alone_publishes() -> None:
    assert version(uploaded={"LeewayLayer": "2"}) != version()


def test_a_change_of_its_own_code_publishes() -> None:
    assert version(uploaded={"RetireNodeFunction": "2"}) != version()


def test_a_change_of_another_functions_code_does_not() -> None:
    assert version(uploaded={"ReceiveNoticeFunction": "2"}) == version()


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("Architecture", "x86_64"),
        ("EndpointUrl", "http://localhost:4566"),
        ("LogLevel", "DEBUG"),
        ("RetireNodeMemorySize", "1024"),
        ("RetirementTimeout", "3600"),
        ("SecurityGroupIds", "sg-1"),
        ("SubnetIds", "subnet-1,subnet-2"),
    ],
)
def test_a_change_of_a_parameter_that_it_runs_with_publishes(parameter: str, value: str) -> None:
    assert version(parameters={parameter: value}) != version()


def test_old_versions_and_layers_stay_for_the_executions_that_began_with_them() -> None:
    kept = {
        body["Type"]: body.get("DeletionPolicy")
        for body in translate({}, {})["Resources"].values()
        if body["Type"] in {"AWS::Lambda::Version", "AWS::Lambda::LayerVersion"}
    }
    assert kept == {"AWS::Lambda::Version": "Retain", "AWS::Lambda::LayerVersion": "Retain"}


def test_a_description_made_of_the_longest_parameters_is_one_that_lambda_takes() -> None:
    subnets = ",".join(["subnet-" + "0" * 17] * 6)
    groups = ",".join(["sg-" + "0" * 17] * 2)
    fixed = "Takes one node out, 604800 10240 x86_64 WARNING"
    assert len(f"{fixed} {subnets} {groups}") <= 256
