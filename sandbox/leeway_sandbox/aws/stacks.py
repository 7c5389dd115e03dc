"""The deployed stacks: a service gets its part of them when somebody calls it."""

import json
from collections.abc import Callable
from typing import Any

from moto.iam.models import Role

from leeway_sandbox.aws.cloud import ACCOUNT
from leeway_sandbox.stack import Stack


class DeployedStacks:
    """Keeps stacks until somebody calls their services."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._names: set[str] = set()
        self._callers: dict[str, str] = {}
        self._waiting: dict[str, list[Stack]] = {service: [] for service in _CREATE}

    def add(self, stack: Stack) -> None:
        """Add a stack; raises ValueError if there is one of its name."""
        if stack.name in self._names:
            raise ValueError(f"Stack {stack.name} exists already.")
        self._names.add(stack.name)
        self._callers.update(stack.callers)
        for waiting in self._waiting.values():
            waiting.append(stack)

    def role_of(self, access_key: str) -> str | None:
        """Return the name of the role of the function with this access key."""
        return self._callers.get(access_key)

    def create(self, service: str) -> None:
        """Create what a service has of the stacks, before a call of it."""
        waiting = self._waiting.get(service)
        while waiting:
            _CREATE[service](waiting.pop(0), self._region)


def _create_stack(stack: Stack, region: str) -> None:
    from leeway_sandbox.aws.cloudformation import create_stack  # the import takes a second

    create_stack(stack, region)


def _create_roles(stack: Stack, region: str) -> None:
    for role in stack.roles.values():
        given = role.properties
        policies = [
            {**one, "PolicyDocument": json.dumps(one["PolicyDocument"])}
            for one in given.get("Policies", ())
        ]
        properties = {**given, "RoleName": role.name, "Policies": policies}
        resource = {"Properties": properties}
        Role.create_from_cloudformation_json(role.name, resource, ACCOUNT, region)


def _create_alarms(stack: Stack, region: str) -> None:
    from moto.cloudwatch.models import cloudwatch_backends

    backend = cloudwatch_backends[ACCOUNT][region]
    for alarm in stack.alarms.values():
        given: Any = alarm.properties  # each alarm has some of these
        backend.put_metric_alarm(
            name=alarm.name,
            namespace=given.get("Namespace"),
            metric_name=given.get("MetricName"),
            metric_data_queries=[_metric(one) for one in given.get("Metrics", ())] or None,
            comparison_operator=given["ComparisonOperator"],
            evaluation_periods=given["EvaluationPeriods"],
            datapoints_to_alarm=given.get("DatapointsToAlarm"),
            period=given.get("Period"),
            threshold=given.get("Threshold"),
            statistic=given.get("Statistic"),
            description=given.get("AlarmDescription"),
            dimensions=given.get("Dimensions", []),
            alarm_actions=given.get("AlarmActions", []),
            ok_actions=given.get("OKActions", []),
            insufficient_data_actions=[],
            treat_missing_data=given.get("TreatMissingData"),
        )


def _metric(given: Any) -> Any:
    """Return one of an alarm's metrics: an expression, or a statistic of a metric."""
    from moto.cloudwatch.models import Dimension, Metric, MetricDataQuery, MetricStat

    statistic = None
    if found := given.get("MetricStat"):
        of = found["Metric"]
        dimensions = [Dimension(one["Name"], one["Value"]) for one in of.get("Dimensions", ())]
        metric = Metric(of["MetricName"], of["Namespace"], dimensions)
        statistic = MetricStat(metric, found["Period"], found["Stat"], found.get("Unit"))
    return MetricDataQuery(
        query_id=given["Id"],
        label=given.get("Label"),
        period=given.get("Period"),
        return_data=given.get("ReturnData", True),
        expression=given.get("Expression"),
        metric_stat=statistic,
    )


def _create_log_groups(stack: Stack, region: str) -> None:
    from leeway_sandbox.aws.logs import create_groups  # it loads the models of other services

    create_groups(stack, region)


_CREATE: dict[str, Callable[[Stack, str], None]] = {
    "cloudformation": _create_stack,
    "cloudwatch": _create_alarms,
    "iam": _create_roles,
    "logs": _create_log_groups,
}
