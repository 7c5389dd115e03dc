"""What CloudFormation, IAM and CloudWatch know of a deployed template.

Functions do not need it. `leeway adopt`, `leeway doctor` and people read it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from leeway_sandbox.intrinsics import Resolver

_ROLE = "AWS::IAM::Role"
_ALARM = "AWS::CloudWatch::Alarm"


@dataclass(frozen=True)
class StackResource:
    """A resource of the stack; ``physical_id`` is its name, ARN or URL, as ``Ref`` returns it."""

    logical_id: str
    kind: str
    physical_id: str


@dataclass(frozen=True)
class StackRole:
    """A role; ``properties`` are in the shape of CloudFormation."""

    name: str
    arn: str
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class StackAlarm:
    """An alarm; ``properties`` are in the shape of CloudFormation."""

    name: str
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class DeployedStack:
    """A stack.

    ``template`` is the text of the template, ``declared`` its description, metadata and parameters.
    ``parameters`` has the values of the deployment; a list is one text with commas. ``roles`` and
    ``alarms`` are keyed by logical id.
    """

    name: str
    template: str
    declared: Mapping[str, Any]
    parameters: Mapping[str, str]
    outputs: Mapping[str, Mapping[str, str]]
    resources: tuple[StackResource, ...]
    roles: Mapping[str, StackRole]
    alarms: Mapping[str, StackAlarm]

    def as_data(self) -> dict[str, Any]:
        """Return the body of the AWS's `POST /_sandbox/stacks`."""
        return asdict(self)


def read_stack(
    name: str,
    template: str,
    source: Mapping[str, Any],
    translated: Mapping[str, Any],
    resolver: Resolver,
) -> DeployedStack:
    """Return the stack of a translated template; ``source`` is the template before that.

    Raises:
        SandboxError: an expression cannot be resolved.
    """
    resources = {
        logical_id: resource["Type"]
        for logical_id, resource in translated["Resources"].items()
        if resolver.exists(logical_id)
    }
    return DeployedStack(
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
        resources=tuple(
            StackResource(one, kind, str(resolver.reference(one, one)))
            for one, kind in resources.items()
        ),
        roles={
            one: StackRole(
                resolver.name(one), resolver.attribute(one, "Arn", one), resolver.properties(one)
            )
            for one, kind in resources.items()
            if kind == _ROLE
        },
        alarms={
            one: StackAlarm(resolver.name(one), resolver.properties(one))
            for one, kind in resources.items()
            if kind == _ALARM
        },
    )
