"""Deploys a template into a running sandbox, as CloudFormation deploys it into an account."""

import functools
import json
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from leeway_sandbox.control import Controls
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.template import (
    DeployedTemplate,
    EventSourceResource,
    FunctionResource,
    QueueResource,
    RuleResource,
    ScheduleResource,
    TableResource,
)

_EVENTBRIDGE = "events.amazonaws.com"
_DEPLOYER = "deployment"
_REGISTRATION_SECONDS = 120


@functools.cache
def _session() -> boto3.session.Session:
    """The session of all deployments: it reads the models of services once."""
    return boto3.session.Session(_DEPLOYER, _DEPLOYER)


def deploy(
    template: DeployedTemplate,
    aws_endpoint: str,
    lambda_endpoint: str,
    headers: Mapping[str, str],
) -> None:
    """Create tables, queues, rules and schedules with boto3, and register the functions.

    `headers` are those of a call of the Lambda service's control API.

    Raises:
        SandboxError: the target of a rule or a schedule can never be invoked, Lambda would
            refuse an event source mapping, or the sandbox refuses a schedule or a function.
    """
    for rule in template.rules:
        _check_targets(template, rule)
    for schedule in template.schedules:
        _check_qualified(template, schedule.logical_id, schedule.definition["Target"]["Arn"])
    for source in template.event_sources:
        _check_event_source(template, source)
    session = _session()
    region = template.functions[0].arn.split(":")[3]

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=aws_endpoint, region_name=region)

    dynamodb, sqs, events = client("dynamodb"), client("sqs"), client("events")
    for table in template.tables:
        _create_table(dynamodb, table)
    # A queue needs its dead-letter queue.
    for queue in sorted(template.queues, key=lambda queue: "RedrivePolicy" in queue.attributes):
        sqs.create_queue(QueueName=queue.name, Attributes=dict(queue.attributes))
    known = set(session.get_available_services())
    definitions = [_definition(function, known) for function in template.functions]
    sources = [_event_source(source) for source in template.event_sources]
    service = Controls({"lambda": lambda_endpoint}, headers, _REGISTRATION_SECONDS)
    registered = {"functions": definitions, "eventSources": sources}
    service.call("lambda", "PUT", "functions", registered)
    # Rules come last, so that no event is delivered before the functions are registered.
    for rule in template.rules:
        _create_rule(events, rule)
    scheduler = client("scheduler")
    for group in template.schedule_groups:
        scheduler.create_schedule_group(Name=group)
    for schedule in template.schedules:
        _create_schedule(scheduler, schedule)


def _check_targets(template: DeployedTemplate, rule: RuleResource) -> None:
    """Refuse targets that EventBridge may not invoke: it drops their events without an error."""
    functions = {function.arn: function for function in template.functions}
    for target in rule.targets:
        arn = target["Arn"]
        function = functions.get(":".join(arn.split(":")[:7]))
        if function is None:
            continue
        if not any(p.allows(_EVENTBRIDGE, arn, rule.arn) for p in template.permissions):
            raise SandboxError(
                f"{rule.logical_id}: no AWS::Lambda::Permission lets {_EVENTBRIDGE} invoke {arn}. "
                "Add the permission: EventBridge drops such events without an error."
            )
        _check_qualified(template, rule.logical_id, arn)


def _check_qualified(template: DeployedTemplate, source: str, arn: str) -> None:
    for function in template.functions:
        if function.execution_timeout and arn == function.arn:
            raise SandboxError(
                f"{source}: the durable function {function.logical_id} needs an alias or a version."
            )


def _check_event_source(template: DeployedTemplate, source: EventSourceResource) -> None:
    """Refuse what CreateEventSourceMapping refuses: "Using Lambda with Amazon SQS"."""
    functions = {function.arn: function for function in template.functions}
    queues = {queue.arn: queue for queue in template.queues}
    function = functions.get(":".join(source.function.split(":")[:7]))
    queue = queues.get(source.queue)
    problem = None
    if function is None or queue is None:
        problem = f"the template has no {source.queue if function else source.function}"
    elif function.execution_timeout:
        problem = "the sandbox does not support queues of durable functions"
    elif (hidden := _visibility_timeout(queue)) < function.timeout:
        problem = (
            f"Queue visibility timeout: {hidden} seconds is less than Function timeout: "
            f"{function.timeout} seconds"
        )
    elif source.window and queue.attributes.get("FifoQueue") == "true":
        problem = "Batching window is not supported for FIFO queues"
    elif source.window:
        problem = "the sandbox does not support batching windows"
    if problem:
        raise SandboxError(
            f"{source.logical_id}: Lambda refuses the event source mapping: {problem}."
        )


def _visibility_timeout(queue: QueueResource) -> int:
    return int(queue.attributes.get("VisibilityTimeout", 30))


def _create_table(dynamodb: Any, table: TableResource) -> None:
    dynamodb.create_table(**table.definition)
    if table.expiry_attribute:
        dynamodb.update_time_to_live(
            TableName=table.name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": table.expiry_attribute},
        )
    if table.point_in_time_recovery:
        dynamodb.update_continuous_backups(
            TableName=table.name,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )


def _create_rule(events: Any, rule: RuleResource) -> None:
    events.put_rule(
        Name=rule.name,
        State=rule.state,
        EventBusName=rule.bus,
        EventPattern=json.dumps(rule.pattern),
    )
    if rule.targets:
        events.put_targets(Rule=rule.name, EventBusName=rule.bus, Targets=list(rule.targets))


def _create_schedule(scheduler: Any, schedule: ScheduleResource) -> None:
    try:
        scheduler.create_schedule(**schedule.definition)
    except ClientError as error:
        raise SandboxError(
            f"{schedule.logical_id}: EventBridge Scheduler refuses the schedule: {error}"
        ) from error


def _definition(function: FunctionResource, known_services: set[str]) -> dict[str, Any]:
    """Return the function as the control API of the Lambda service expects it."""
    definition: dict[str, Any] = {
        "name": function.name,
        "arn": function.arn,
        "handler": function.handler,
        "code": [str(function.code), *(str(layer) for layer in function.layers)],
        "environment": dict(function.environment),
        "timeout": function.timeout,
        "memory": function.memory,
        "durable": function.execution_timeout is not None,
        "retries": function.retries,
        "onFailure": function.on_failure,
        "deadLetter": function.dead_letter,
        "aliases": list(function.aliases),
        "recursiveLoop": function.recursive_loop,
        "logsTo": function.logs_to,
        "clients": [service for service in function.services if service in known_services],
    }
    if function.execution_timeout:
        definition["executionTimeout"] = function.execution_timeout
    return definition


def _event_source(source: EventSourceResource) -> dict[str, Any]:
    """Return the mapping as the control API of the Lambda service expects it."""
    return {
        "name": source.logical_id,
        "function": source.function,
        "queue": source.queue,
        "batchSize": source.batch_size,
        "partialFailures": source.partial_failures,
        "concurrency": source.concurrency,
    }
