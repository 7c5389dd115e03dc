"""When a deployment publishes versions of the durable functions, and what it keeps for running
executions."""

from collections.abc import Mapping

import pytest
from leeway_sandbox.intrinsics import Resolver

from tests.template.translation import translate, translated


def versions(
    uploaded: Mapping[str, str] | None = None, parameters: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the logical ID of each function's version. CloudFormation publishes a version if it is
    new."""
    resources = translate(uploaded or {}, parameters or {})["Resources"]
    return {
        body["Properties"]["FunctionName"]["Ref"]: name
        for name, body in resources.items()
        if body["Type"] == "AWS::Lambda::Version"
    }


def published(
    uploaded: Mapping[str, str] | None = None, parameters: Mapping[str, str] | None = None
) -> set[str]:
    """Return the functions of which a deployment publishes a version."""
    before, after = versions(), versions(uploaded, parameters)
    return {function for function in after if before[function] != after[function]}


DURABLE = {"AdmitNodeFunction", "RetireNodeFunction"}


def test_durable_functions_have_versions() -> None:
    assert versions().keys() == DURABLE


def test_a_deployment_that_changes_nothing_publishes_nothing() -> None:
    assert published() == set()


def test_a_change_of_the_layer_alone_publishes() -> None:
    assert published(uploaded={"LeewayLayer": "2"}) == DURABLE


@pytest.mark.parametrize("function", sorted(DURABLE))
def test_only_a_change_of_its_own_code_publishes_a_function(function: str) -> None:
    assert published(uploaded={function: "2", "ReceiveNoticeFunction": "2"}) == {function}


@pytest.mark.parametrize(
    ("parameter", "value", "functions"),
    [
        ("Architecture", "x86_64", DURABLE),
        ("EndpointUrl", "http://localhost:4566", DURABLE),
        ("LogLevel", "DEBUG", DURABLE),
        ("AdmitNodeMemorySize", "1024", {"AdmitNodeFunction"}),
        ("RetireNodeMemorySize", "1024", {"RetireNodeFunction"}),
        ("SecurityGroupIds", "sg-1", DURABLE),
        ("SubnetIds", "subnet-1,subnet-2", DURABLE),
    ],
)
def test_a_change_of_a_parameter_of_its_environment_publishes_a_function(
    parameter: str, value: str, functions: set[str]
) -> None:
    assert published(parameters={parameter: value}) == functions


def test_old_versions_and_layers_are_kept_for_running_executions() -> None:
    kept = {
        body["Type"]: body.get("DeletionPolicy")
        for body in translated()["Resources"].values()
        if body["Type"] in {"AWS::Lambda::Version", "AWS::Lambda::LayerVersion"}
    }
    assert kept == {"AWS::Lambda::Version": "Retain", "AWS::Lambda::LayerVersion": "Retain"}


@pytest.mark.parametrize("function", sorted(DURABLE))
def test_a_description_with_the_longest_parameters_fits_the_quota_of_lambda(
    function: str,
) -> None:
    allowed = translated()["Parameters"]["EndpointUrl"]["MaxLength"]
    longest = {
        "Architecture": "x86_64",
        "EndpointUrl": "https://".ljust(allowed, "x"),
        "LogLevel": "WARNING",
        "AdmitNodeMemorySize": "10240",
        "RetireNodeMemorySize": "10240",
        "SecurityGroupIds": ",".join(["sg-" + "0" * 17] * 2),
        "SubnetIds": ",".join(["subnet-" + "0" * 17] * 6),
    }
    template = translate({}, longest)
    resolver = Resolver(template, longest, stack="s", region="us-east-1", account="1" * 12)
    description = resolver.properties(function)["Description"]
    assert "0" * 17 in description
    assert len(description) <= 256
