"""What the template does so that no notice gets lost between EventBridge and the functions."""

import json
from pathlib import Path

import pytest
from leeway.execution.attempt import parse_attempt_id
from leeway.notices import NoticeKind
from leeway.notices.parse import parse_notice

from sandbox.template import DeployedTemplate, FunctionResource, read_template
from tests.template.granted import resources

ROOT = Path(__file__).parents[2]
INTERRUPTION = 120
"""Seconds. What comes later is still worth it: a hook waits for its answer."""

ON_SCHEDULE = {"KeepHeadroomFunction", "RefreshCatalogFunction"}
"""What they fail on, their next run makes good."""

OUTSIDE_OF_ANY_VPC = "RefreshCatalogFunction"


@pytest.fixture(scope="module")
def deployed() -> DeployedTemplate:
    return read_template(ROOT / "template.yaml", {"ClusterNames": "blue,green"})


def named(deployed: DeployedTemplate, logical_id: str) -> FunctionResource:
    return next(f for f in deployed.functions if f.logical_id == logical_id)


def test_every_rule_is_on_retries_and_keeps_what_it_cannot_deliver(
    deployed: DeployedTemplate,
) -> None:
    queues = {queue.arn for queue in deployed.queues}
    assert deployed.rules
    for rule in deployed.rules:
        assert (rule.bus, rule.state) == ("default", "ENABLED")
        assert rule.targets
        for target in rule.targets:
            assert target["RetryPolicy"]["MaximumRetryAttempts"] > 0
            assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] > INTERRUPTION
            assert target["DeadLetterConfig"]["Arn"] in queues


def test_every_rule_may_invoke_receive_notice(deployed: DeployedTemplate) -> None:
    function = named(deployed, "ReceiveNoticeFunction").arn
    assert deployed.rules
    for rule in deployed.rules:
        assert [target["Arn"] for target in rule.targets] == [function]
        assert any(
            permission.allows("events.amazonaws.com", function, rule.arn)
            for permission in deployed.permissions
        )


def test_every_function_keeps_what_it_failed_on_in_a_queue_of_its_own(
    deployed: DeployedTemplate,
) -> None:
    once = [f for f in deployed.functions if f.logical_id not in ON_SCHEDULE]
    kept = {f.logical_id: f.on_failure or f.dead_letter for f in once}
    assert len(set(kept.values())) == len(once)
    assert set(kept.values()) == {queue.arn for queue in deployed.queues}


@pytest.mark.parametrize("function", ["RetireNodeFunction", "AdmitNodeFunction"])
def test_a_durable_function_has_a_dead_letter_queue_since_it_knows_no_destinations(
    deployed: DeployedTemplate, function: str
) -> None:
    durable = named(deployed, function)
    assert durable.execution_timeout
    assert durable.dead_letter
    assert durable.on_failure is None


def test_lambda_is_asked_for_no_retries_of_durable_executions() -> None:
    """It makes none, and their invocation takes no such setting."""
    configs = {
        r["Properties"]["FunctionName"]["Ref"]: r["Properties"]
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::EventInvokeConfig"
    }
    for function in ("RetireNodeFunction", "AdmitNodeFunction"):
        assert "MaximumRetryAttempts" not in configs[function]
        assert configs[function]["MaximumEventAgeInSeconds"] == 3600


def test_functions_get_the_clusters_under_care_and_each_others_names(
    deployed: DeployedTemplate,
) -> None:
    (table,) = deployed.tables
    for function in deployed.functions:
        assert function.environment["LEEWAY_CLUSTERS"] == "blue,green"
        assert function.environment["LEEWAY_TABLE"] == table.name
    receive_notice = named(deployed, "ReceiveNoticeFunction")
    retire_node = named(deployed, "RetireNodeFunction")
    assert receive_notice.environment["LEEWAY_RETIRE_NODE"] == f"{retire_node.arn}:live"


def test_what_may_have_to_be_quick_loses_its_network_to_nobodys_calling_it(
    deployed: DeployedTemplate,
) -> None:
    """A function in a VPC that is idle for two weeks is inactive, and its next call fails. Source:
    Lambda developer guide, "Lambda function states"."""
    in_vpc = read_template(ROOT / "template.yaml", {"SubnetIds": "subnet-1"})
    awake = {s.logical_id: s.definition for s in in_vpc.schedules if s.definition.get("State")}
    targets = {name: definition["Target"] for name, definition in awake.items()}
    by_the_minute = {"KeepHeadroomFunction", "ReconcileFunction"}
    called = {f.logical_id for f in deployed.functions} - by_the_minute - {OUTSIDE_OF_ANY_VPC}
    assert targets.keys() == {f"{name}StaysAwake" for name in called}
    assert {definition["State"] for definition in awake.values()} == {"ENABLED"}
    others = {s.definition["State"] for s in deployed.schedules if s.logical_id in awake}
    assert others == {"DISABLED"}
    for name, target in targets.items():
        told = json.loads(target["Input"])
        if name.startswith("ReceiveNotice"):
            assert parse_notice(told).kind is NoticeKind.TEST_NOTIFICATION
        else:
            assert target["Arn"].endswith(":live")
            assert parse_attempt_id(told).instance == "i-00000000"


def test_only_an_endpoint_that_is_given_reaches_the_environment(deployed: DeployedTemplate) -> None:
    given = read_template(ROOT / "template.yaml", {"EndpointUrl": "http://localhost:4566"})
    assert given.functions
    for function in given.functions:
        assert function.environment["AWS_ENDPOINT_URL"] == "http://localhost:4566"
    for function in deployed.functions:
        assert not {name for name in function.environment if name.startswith("AWS_")}
