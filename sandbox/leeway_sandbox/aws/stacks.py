"""CloudFormation's answers about stacks, where moto's differ from AWS's.

The import of this module takes long: moto's CloudFormation loads the models of all services. So it
is imported at the first call of CloudFormation.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import moto.cloudformation.models as moto_cloudformation
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import cloudformation_backends
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult
from moto.iam.models import Role
from pydantic import BaseModel

from leeway_sandbox.aws.cloud import ACCOUNT


class StackResource(BaseModel):
    """A resource of a stack."""

    logical_id: str
    kind: str
    physical_id: str


class Named(BaseModel):
    """A role or an alarm; `properties` are in the shape of CloudFormation."""

    name: str
    properties: dict[str, Any]


class Stack(BaseModel):
    """A stack, as `stack.py` reads it. `declared` has the metadata and the parameters of its
    template, `parameters` their values."""

    name: str
    template: str
    declared: dict[str, Any]
    parameters: dict[str, str]
    outputs: dict[str, dict[str, str]]
    resources: list[StackResource]
    roles: dict[str, Named]
    alarms: dict[str, Named]
    callers: dict[str, str] = {}


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
    from leeway_sandbox.aws.stacks import create_stack  # the import takes half a second

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


_CREATE: dict[str, Callable[[Stack, str], None]] = {
    "cloudformation": _create_stack,
    "cloudwatch": _create_alarms,
    "iam": _create_roles,
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a deployed stack, with the names that moto's answers read."""

    logical_resource_id: str
    cf_resource_type: str
    physical_resource_id: str


class TextStack(moto_cloudformation.Stack):
    """A stack whose parameters are text, also those that are lists. `deployed` is None unless the
    sandbox has deployed it: then its resources exist without CloudFormation."""

    deployed: Stack | None = None

    @property
    def stack_resources(self) -> Iterable[Any]:
        """The resources of the stack."""
        if self.deployed is None:
            return super().stack_resources
        return [
            Resource(one.logical_id, one.kind, one.physical_id) for one in self.deployed.resources
        ]

    @property
    def parameter_list(self) -> list[dict[str, Any]]:
        """The parameters as DescribeStacks returns them."""
        return [
            {**one, "ParameterValue": ",".join(value) if isinstance(value, list) else value}
            for one in super().parameter_list
            for value in [one["ParameterValue"]]
        ]


class Stacks(CloudFormationResponse):
    """moto's stacks, with metadata in template summaries, and updates of parameters."""

    def get_template_summary(self) -> ActionResult:
        """Describe a template; its metadata is a text. Source: CloudFormation API,
        `GetTemplateSummary`."""
        summary: dict[str, Any] = dict(super().get_template_summary().result)  # type: ignore[call-overload]
        metadata = summary.pop("Metadata", None)
        if metadata is not None:
            summary["Metadata"] = json.dumps(metadata)
        return ActionResult(summary)

    def get_template(self) -> ActionResult:
        """Return the template, as it was deployed."""
        deployed = self._stack().deployed
        if deployed is None:
            return super().get_template()
        return ActionResult({"TemplateBody": deployed.template})

    def delete_stack(self) -> ActionResult:
        """Delete a stack. CloudFormation does not know the resources of a deployed one."""
        name = self._get_param("StackName")
        stacks: Any = self.cloudformation_backend.stacks.values()
        if any(one.deployed and name in (one.name, one.stack_id) for one in stacks):
            raise NotImplementedError("its resources would stay")
        return super().delete_stack()

    def update_stack(self) -> ActionResult:
        """Update a stack. A previous value may be a default, and an update that changes nothing is
        an error. The parameters of a deployed stack change, and its functions do not."""
        stack = self._stack()
        if stack.deployed is not None and not self._get_bool_param("UsePreviousTemplate", False):
            raise NotImplementedError("the sandbox deploys a template when it starts")
        declared = stack.template_dict.get("Parameters", {})
        defaults = {key: str(one.get("Default", "")) for key, one in declared.items()}
        stack.parameters = {**defaults, **stack.parameters}
        changed = {
            one["ParameterKey"]: one["ParameterValue"]
            for one in self._get_param("Parameters", [])
            if not self._uses_previous(one)
        }
        same = changed.items() <= stack.parameters.items()
        if self._get_bool_param("UsePreviousTemplate", False) and same:
            raise ValidationError(message="No updates are to be performed.")
        return super().update_stack()

    def _stack(self) -> TextStack:
        stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
        assert isinstance(stack, TextStack)
        return stack

    @staticmethod
    def _uses_previous(parameter: dict[str, Any]) -> bool:
        return str(parameter.get("UsePreviousValue", "")).lower() == "true"


moto_cloudformation.Stack = TextStack  # type: ignore[misc]


def create_stack(deployed: Stack, region: str) -> None:
    """Create the stack of a template whose resources exist already."""
    outputs = {
        name: {key: text for key, text in one.items() if text}
        for name, one in deployed.outputs.items()
    }
    template = json.dumps({**deployed.declared, "Resources": {}, "Outputs": outputs})
    backend = cloudformation_backends[ACCOUNT][region]
    stack = backend.create_stack(deployed.name, template, dict(deployed.parameters))
    assert isinstance(stack, TextStack)
    stack.deployed = deployed
