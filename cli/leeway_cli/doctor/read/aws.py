"""Reads the stack's functions and what invokes them, and what all clusters of the account share.
Asks the functions, each with its own role, which of their calls AWS refuses."""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError
from leeway.aws.ec2 import STARTS_OR_RUNS, described_instances
from leeway.aws.errors import code_of
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.instances.facts import GROUP_TAG, POOL_TAG, cluster_of
from leeway.parallel import in_parallel
from leeway.selection.offers.survey import UnknownForm, unpacked
from leeway.wiring.clients import LIST_READ_TIMEOUT, client

from leeway_cli.doctor.facts import (
    AlarmFacts,
    AliasFacts,
    Answer,
    ConsumerFacts,
    FunctionAnswers,
    FunctionFacts,
    InstanceUse,
    QueueFacts,
    RuleFacts,
    ScheduleFacts,
)
from leeway_cli.doctor.names import (
    ALIAS,
    BUYER,
    DURABLE,
    FUNCTIONS,
    could_match_a_notice,
    function_name,
)

AT_ONCE = 8
_MISSING = "ResourceNotFoundException"


def functions_of(stack: str) -> tuple[FunctionFacts, ...]:
    """Read the functions of a stack: two calls for each."""
    return tuple(
        in_parallel(lambda name: _function(function_name(stack, name)), FUNCTIONS, AT_ONCE)
    )


def _function(name: str) -> FunctionFacts:
    aws = client("lambda")
    try:
        found = aws.get_function_configuration(FunctionName=name)
        limited = aws.get_function_concurrency(FunctionName=name)
    except ClientError as error:
        if code_of(error) == _MISSING:
            return FunctionFacts(name)
        raise
    return FunctionFacts(
        name=name,
        state=found.get("State", "Active"),
        update=found.get("LastUpdateStatus", "Successful"),
        problem=found.get("StateReason") or found.get("LastUpdateStatusReason") or "",
        reserved=limited.get("ReservedConcurrentExecutions"),
    )


def aliases_of(stack: str) -> tuple[AliasFacts, ...]:
    """Read the aliases of the durable functions."""
    return tuple(_alias(function_name(stack, name)) for name in DURABLE)


def _alias(function: str) -> AliasFacts:
    try:
        found = client("lambda").get_alias(FunctionName=function, Name=ALIAS)
    except ClientError as error:
        if code_of(error) == _MISSING:
            return AliasFacts(function, ALIAS, "")
        raise
    return AliasFacts(function, ALIAS, found["FunctionVersion"])


def consumers_of(stack: str) -> tuple[ConsumerFacts, ...]:
    """Read the event source mappings of provision_nodes."""
    pages = client("lambda").get_paginator("list_event_source_mappings")
    return tuple(
        ConsumerFacts(one["UUID"], one["State"])
        for page in pages.paginate(FunctionName=function_name(stack, BUYER))
        for one in page["EventSourceMappings"]
    )


def concurrency() -> int:
    """Read how many invocations functions without reserved concurrency may have at a time."""
    limit = client("lambda").get_account_settings()["AccountLimit"]
    return int(limit["UnreservedConcurrentExecutions"])


def rules() -> tuple[RuleFacts, ...]:
    """Read the rules of the default bus whose pattern could match a notice, with their targets: one
    call for each rule, and for each hundred rules of the bus."""
    listed = _listed("events", "list_rules", "Rules")
    found = [one for one in listed if could_match_a_notice(_pattern(one))]
    return tuple(in_parallel(_rule, found, AT_ONCE))


def _rule(rule: Mapping[str, Any]) -> RuleFacts:
    targets = _listed("events", "list_targets_by_rule", "Targets", Rule=rule["Name"])
    return RuleFacts(
        name=rule["Name"],
        enabled=rule.get("State", "").startswith("ENABLED"),
        pattern=_pattern(rule),
        targets=tuple(one["Arn"] for one in targets),
    )


def _pattern(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        pattern = json.loads(rule.get("EventPattern") or "{}")
    except ValueError:
        return {}
    return pattern if isinstance(pattern, dict) else {}


def _listed(service: str, operation: str, field: str, **arguments: Any) -> Iterator[dict[str, Any]]:
    """Yield the items of all pages of an API that pages by NextToken."""
    call = getattr(client(service), operation)
    token: dict[str, Any] = {}
    while True:
        page = call(**arguments, **token)
        yield from page.get(field, [])
        if not page.get("NextToken"):
            return
        token = {"NextToken": page["NextToken"]}


def schedules_of(stack: str) -> tuple[ScheduleFacts, ...]:
    """Read the schedules of a stack in the default group."""
    pages = client("scheduler").get_paginator("list_schedules")
    return tuple(
        ScheduleFacts(one["Name"], one.get("State") == "ENABLED", one["Target"]["Arn"])
        for page in pages.paginate(GroupName="default", NamePrefix=f"{stack}-")
        for one in page["Schedules"]
    )


def failure_queues_of(stack_name: str) -> tuple[QueueFacts, ...]:
    """Read the number of messages in the queues of a stack that hold failed work. CloudFormation
    lists them: it shortens the name of a stack of a StackSet in the names of its queues."""
    pages = client("cloudformation").get_paginator("list_stack_resources")
    failures = [
        one["PhysicalResourceId"]
        for page in pages.paginate(StackName=stack_name)
        for one in page["StackResourceSummaries"]
        if one["ResourceType"] == "AWS::SQS::Queue" and "Failures" in one["LogicalResourceId"]
        # One that is not created yet has no ID, and one that was deleted keeps its ID.
        if one.get("PhysicalResourceId") and one["ResourceStatus"] != "DELETE_COMPLETE"
    ]
    return tuple(in_parallel(_queue, failures, AT_ONCE))


def _queue(url: str) -> QueueFacts:
    counted = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    found = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=list(counted))
    messages = sum(int(found["Attributes"].get(name, 0)) for name in counted)
    return QueueFacts(_name_of(url), url, messages)


def _name_of(url: str) -> str:
    return url.rpartition("/")[2]


def alarms_of(stack: str) -> tuple[AlarmFacts, ...]:
    """Read the alarms of a stack."""
    pages = client("cloudwatch").get_paginator("describe_alarms")
    found = pages.paginate(AlarmNamePrefix=f"{stack}-", AlarmTypes=["MetricAlarm"])
    return tuple(
        AlarmFacts(
            name=one["AlarmName"],
            state=one["StateValue"],
            reason=one.get("AlarmDescription") or one.get("StateReason") or "",
            notifies=bool(one.get("ActionsEnabled", True) and one.get("AlarmActions")),
        )
        for page in found
        for one in page["MetricAlarms"]
    )


def instances() -> tuple[InstanceUse, ...]:
    """Read the instances of the account that count against its quotas: one call for a thousand."""
    ec2 = partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)
    return tuple(map(use_of, described_instances(ec2, STARTS_OR_RUNS)))


def use_of(described: Mapping[str, Any]) -> InstanceUse:
    """Return what an instance, as EC2 describes it, uses of the quotas."""
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    options = described.get("CpuOptions", {})
    return InstanceUse(
        instance_type=described["InstanceType"],
        market="spot" if described.get("InstanceLifecycle") == "spot" else "on-demand",
        vcpus=int(options.get("CoreCount") or 1) * int(options.get("ThreadsPerCore") or 1),
        group=tags.get(GROUP_TAG, ""),
        cluster=cluster_of(tags) or "",
        pool=tags.get(POOL_TAG, ""),
    )


def ec2_quotas() -> Mapping[str, float]:
    """Read EC2's quotas by their codes."""
    return {one["QuotaCode"]: float(one["Value"]) for one in _quotas()}


def _quotas() -> Iterator[Mapping[str, Any]]:
    pages = client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="ec2"):
        yield from page["Quotas"]


def catalog(table: str, region: str) -> Mapping[str, datetime]:
    """Read when each part of the stored catalog was read; empty if the table has no catalog, or one
    that this version cannot read."""
    packed = DynamoTable(partial(client, "dynamodb"), table).get(SURVEY, region=region)
    if packed is None:
        return {}
    try:
        return {part.value: at for part, at in unpacked(packed).read_at.items()}
    except UnknownForm:
        return {}


LONGEST = 90
"""Seconds for the answer of a function, with its cold start."""

_POLL = 0.5


class _NoAnswerError(Exception):
    """A function did not answer, as the message says."""


def answers_of(
    stack: str, clusters: Sequence[str], functions: Collection[str] = FUNCTIONS
) -> tuple[FunctionAnswers, ...]:
    """Ask functions of a stack about every cluster. A function that Lambda does not have has no
    answer."""
    asked = [(one, cluster) for cluster in clusters or ("",) for one in functions]
    found = in_parallel(lambda one: _answers(stack, *one), asked, AT_ONCE)
    return tuple(one for one in found if one is not None)


def _answers(stack: str, function: str, cluster: str) -> FunctionAnswers | None:
    name = function_name(stack, function)
    payload = json.dumps({"leeway": "probe", "cluster": cluster})
    ask = _answer_of_durable if function in DURABLE else _answer_of
    try:
        answer = json.loads(ask(name, payload))
    except ClientError as error:
        if code_of(error) == _MISSING:
            return None
        raise
    except (_NoAnswerError, ValueError) as error:
        return FunctionAnswers(name, function, cluster, str(error))
    if not isinstance(answer, dict) or "answers" not in answer:
        problem = "it does not know probes, so it is of another version"
        return FunctionAnswers(name, function, cluster, problem)
    kubernetes = answer.get("kubernetes") or {}
    return FunctionAnswers(
        name,
        function,
        cluster,
        answer.get("problem", ""),
        tuple(Answer(**one) for one in answer["answers"]),
        kubernetes.get("problem", ""),
        tuple(kubernetes.get("rules", ())) if kubernetes else None,
    )


def _answer_of(name: str, payload: str) -> str:
    aws = client("lambda", tries=1, read_timeout=LONGEST)
    answer = aws.invoke(FunctionName=name, Payload=payload)
    return _result(answer["Payload"].read().decode(), failed="FunctionError" in answer)


def _answer_of_durable(name: str, payload: str) -> str:
    """Start an execution and wait for its result. Lambda lets nobody wait for a durable function
    that may run for longer than 15 minutes. Source: Lambda developer guide, "Invoking durable
    functions"."""
    aws = client("lambda")
    arn = aws.invoke(
        FunctionName=f"{name}:{ALIAS}",
        InvocationType="Event",
        DurableExecutionName=f"probe-{uuid4().hex}",
        Payload=payload,
    )["DurableExecutionArn"]
    until = time.monotonic() + LONGEST
    while (found := aws.get_durable_execution(DurableExecutionArn=arn))["Status"] == "RUNNING":
        if time.monotonic() > until:
            raise _NoAnswerError(f"it has not answered within {LONGEST} s")
        time.sleep(_POLL)
    if found["Status"] == "SUCCEEDED":
        return str(found["Result"])
    return _result(json.dumps(found.get("Error", {})), failed=True)


def _result(answer: str, *, failed: bool) -> str:
    if not failed:
        return answer
    error: Mapping[str, Any] = json.loads(answer)
    message = error.get("errorMessage") or error.get("ErrorMessage") or "Lambda names no error"
    raise _NoAnswerError(f"it failed: {message}")
