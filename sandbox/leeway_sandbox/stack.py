"""What CloudFormation, IAM, CloudWatch and its Logs know of a deployed template.

Functions do not need it. `leeway adopt`, `leeway doctor` and people read it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from leeway_sandbox.intrinsics import Resolver

_ROLE = "AWS::IAM::Role"
_ALARM = "AWS::CloudWatch::Alarm"
_LOG_GROUP = "AWS::Logs::LogGroup"


class StackResource(BaseModel):
    """A resource of the stack; `physical_id` is its name, ARN or URL, as `Ref` returns it."""

    logical_id: str
    kind: str
    physical_id: str


class Named(BaseModel):
    """A role with its ARN, an alarm, a log group; `properties` are in the shape of
    CloudFormation."""

    name: str
    properties: dict[str, Any]
    arn: str = ""


class Stack(BaseModel):
    """A stack, the body of AWS's `POST /_sandbox/stacks`.

    `template` is the text of the template, `declared` its description, metadata and parameters.
    `parameters` has the values of the deployment; a list is one text with commas. `roles`,
    `alarms` and `log_groups` are keyed by logical id. `callers` has the role of each access key of
    a function.
    """

    name: str
    template: str
    declared: dict[str, Any]
    parameters: dict[str, str]
    outputs: dict[str, dict[str, str]]
    resources: list[StackResource]
    roles: dict[str, Named]
    alarms: dict[str, Named]
    log_groups: dict[str, Named] = {}
    callers: dict[str, str] = {}


def read_stack(
    name: str,
    template: str,
    source: Mapping[str, Any],
    translated: Mapping[str, Any],
    resolver: Resolver,
) -> Stack:
    """Return the stack of a translated template; ``source`` is the template before that.

    Raises:
        SandboxError: an expression cannot be resolved.
    """
    resources = {
        logical_id: resource["Type"]
        for logical_id, resource in translated["Resources"].items()
        if resolver.exists(logical_id)
    }
    return Stack(
        name=name,
        template=template,
        declared={
            key: source[key] for key in ("Description", "Metadata", "Parameters") if key in source
        },
        parameters={one: resolver.text(one) for one in source.get("Parameters", {})},
        outputs={
            one: {
                "Value": str(resolver.value(output["Value"], one)),
                "Description": output.get("Description", ""),
            }
            for one, output in translated.get("Outputs", {}).items()
            if resolver.is_included(output, one)
        },
        resources=[
            StackResource(logical_id=one, kind=kind, physical_id=str(resolver.reference(one, one)))
            for one, kind in resources.items()
        ],
        roles={
            one: Named(
                name=resolver.name(one),
                properties=resolver.properties(one),
                arn=resolver.attribute(one, "Arn", one),
            )
            for one, kind in resources.items()
            if kind == _ROLE
        },
        alarms={
            one: Named(name=resolver.name(one), properties=resolver.properties(one))
            for one, kind in resources.items()
            if kind == _ALARM
        },
        log_groups={
            one: Named(name=resolver.name(one), properties=resolver.properties(one))
            for one, kind in resources.items()
            if kind == _LOG_GROUP
        },
    )
