"""No notice is lost between EventBridge and the functions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leeway.execution.attempt import parse_attempt_id
from leeway.notices import NoticeKind
from leeway.notices.parse import parse_notice
from leeway.provisioning.receive_messages import Batch, read_batch
from leeway_sandbox.template import DeployedTemplate, FunctionResource, read_template

from tests.template.granted import resources

ROOT = Path(__file__).parents[2]
INTERRUPTION = 120
"""Seconds. A late notice is still useful: a lifecycle hook waits for its answer."""

ON_SCHEDULE = {"KeepHeadroomFunction", "RefreshCatalogFunction", "WatchPodsFunction"}
"""Functions whose next run repeats failed work."""

FROM_A_QUEUE = "ProvisionNodesFunction"
"""The function that SQS invokes: its queue has a dead-letter queue."""

OUTSIDE_OF_ANY_VPC = "RefreshCatalogFunction"


@pytest.fixture(scope="module")
def deployed() -> DeployedTemplate:
    return read_template(ROOT / "template.yaml", {"ClusterNames": "blue,green"})


def named(deployed: DeployedTemplate, logical_id: str) -> FunctionResource:
    return next(f for f in deployed.functions if f.logical_id == logical_id)


def test_every_rule_is_enabled_retries_and_has_a_dead_letter_queue(
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


def test_every_function_has_its_own_queue_of_failed_events(
    deployed: DeployedTemplate,
) -> None:
    others = {*ON_SCHEDULE, FROM_A_QUEUE}
    once = [f for f in deployed.functions if f.logical_id not in others]
    kept = {f.logical_id: f.on_failure or f.dead_letter for f in once}
    assert len(set(kept.values())) == len(once)
    queues = {queue.arn: queue for queue in deployed.queues}
    of_messages = {arn for arn, queue in queues.items() if queue.attributes.get("FifoQueue")}
    assert set(kept.values()) == queues.keys() - of_messages


def test_the_messages_of_a_cluster_are_delivered_to_one_run_at_a_time(
    deployed: DeployedTemplate,
) -> None:
    """Source: Lambda developer guide, "Using Lambda with Amazon SQS": six times the timeout."""
    function = named(deployed, FROM_A_QUEUE)
    by_name = {queue.name: queue for queue in deployed.queues}
    queue, failures = by_name["leeway-provision.fifo"], by_name["leeway-provision-failures.fifo"]
    redrive = json.loads(queue.attributes["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == failures.arn
    assert int(queue.attributes["VisibilityTimeout"]) >= 6 * function.timeout
    assert queue.attributes["FifoQueue"] == failures.attributes["FifoQueue"] == "true"
    assert function.environment["LEEWAY_PROVISION_QUEUE"].endswith("/leeway-provision.fifo")
    (mapping,) = [
        r["Properties"]
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::EventSourceMapping"
    ]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert "FilterCriteria" not in mapping


@pytest.mark.parametrize("function", ["RetireNodeFunction", "AdmitNodeFunction"])
def test_a_durable_function_has_a_dead_letter_queue_because_it_has_no_destinations(
    deployed: DeployedTemplate, function: str
) -> None:
    durable = named(deployed, function)
    assert durable.execution_timeout
    assert durable.dead_letter
    assert durable.on_failure is None


def test_no_retries_are_configured_for_durable_executions() -> None:
    """Lambda does not retry them, and their invocation has no such setting."""
    configs = {
        r["Properties"]["FunctionName"]["Ref"]: r["Properties"]
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::EventInvokeConfig"
    }
    for function in ("RetireNodeFunction", "AdmitNodeFunction"):
        assert "MaximumRetryAttempts" not in configs[function]
        assert configs[function]["MaximumEventAgeInSeconds"] == 3600


def test_functions_get_the_names_of_clusters_and_of_each_other(
    deployed: DeployedTemplate,
) -> None:
    (table,) = deployed.tables
    for function in deployed.functions:
        assert function.environment["LEEWAY_CLUSTERS"] == "blue,green"
        assert function.environment["LEEWAY_TABLE"] == table.name
    receive_notice = named(deployed, "ReceiveNoticeFunction")
    retire_node = named(deployed, "RetireNodeFunction")
    assert receive_notice.environment["LEEWAY_RETIRE_NODE"] == f"{retire_node.arn}:live"


def test_functions_that_must_be_fast_stay_active_in_a_vpc(
    deployed: DeployedTemplate,
) -> None:
    """A function in a VPC becomes inactive after two idle weeks, and its next call fails. Source:
    Lambda developer guide, "Lambda function states"."""
    in_vpc = read_template(ROOT / "template.yaml", {"SubnetIds": "subnet-1"})
    awake = {s.logical_id: s.definition for s in in_vpc.schedules if s.definition.get("State")}
    targets = {name: definition["Target"] for name, definition in awake.items()}
    by_the_minute = {"KeepHeadroomFunction", "ReconcileFunction", "WatchPodsFunction"}
    called = {f.logical_id for f in deployed.functions} - by_the_minute - {OUTSIDE_OF_ANY_VPC}
    assert targets.keys() == {f"{name}StaysAwake" for name in called}
    assert {definition["State"] for definition in awake.values()} == {"ENABLED"}
    others = {s.definition["State"] for s in deployed.schedules if s.logical_id in awake}
    assert others == {"DISABLED"}
    for name, target in targets.items():
        payload = json.loads(target["Input"])
        if name.startswith("ReceiveNotice"):
            assert parse_notice(payload).kind is NoticeKind.TEST_NOTIFICATION
        elif name.startswith("ProvisionNodes"):
            assert read_batch(payload, ()) == Batch((), (), ())
        else:
            assert target["Arn"].endswith(":live")
            assert parse_attempt_id(payload).instance == "i-00000000"


def test_the_environment_has_only_the_given_endpoints(deployed: DeployedTemplate) -> None:
    given = read_template(ROOT / "template.yaml", {"EndpointUrl": "http://localhost:4566"})
    assert given.functions
    for function in given.functions:
        assert function.environment["AWS_ENDPOINT_URL"] == "http://localhost:4566"
    for function in deployed.functions:
        assert not {name for name in function.environment if name.startswith("AWS_")}


def test_lambda_stops_no_chain_of_requests_that_comes_back_to_a_function() -> None:
    """Lambda stops it at the 17th invocation of a function that does not allow that."""
    causes = {name: set(_caused_by(name)) for name in _functions()}
    for _ in causes:
        for caused in causes.values():
            caused |= {further for name in caused for further in causes[name]}
    in_loops = {name for name, caused in causes.items() if name in caused}
    assert in_loops == {"ProvisionNodesFunction", "RetireNodeFunction"}
    allowed = {n for n, p in _functions().items() if p.get("RecursiveLoop") == "Allow"}
    assert allowed == in_loops


def _functions() -> dict[str, Any]:
    found = resources().items()
    return {n: r["Properties"] for n, r in found if r["Type"] == "AWS::Lambda::Function"}


def _caused_by(function: str) -> Iterator[str]:
    """The functions that the role of a function may invoke, also by a queue."""
    mappings = [r["Properties"] for r in resources().values() if "EventSourceMapping" in r["Type"]]
    by_queue = {m["EventSourceArn"]["Fn::GetAtt"][0]: m["FunctionName"]["Ref"] for m in mappings}
    role = resources()[_functions()[function]["Role"]["Fn::GetAtt"][0]]
    for policy in role["Properties"]["Policies"]:
        for statement in policy.get("PolicyDocument", {}).get("Statement", ()):
            text, actions = json.dumps(statement["Resource"]), json.dumps(statement["Action"])
            if '"lambda:InvokeFunction"' in actions:
                yield from (name for name in _functions() if f'"{name}' in text)
            if '"sqs:SendMessage"' in actions:
                yield from (to for queue, to in by_queue.items() if f'"{queue}"' in text)
