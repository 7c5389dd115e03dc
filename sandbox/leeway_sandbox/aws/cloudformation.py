"""CloudFormation's answers about stacks, where moto's differ from AWS's.

The import of this module takes a second of the processor: moto's CloudFormation loads the models of
all services. So it is imported at the first call of CloudFormation.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import moto.cloudformation.models as moto_cloudformation
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import cloudformation_backends
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult

from leeway_sandbox.aws.cloud import ACCOUNT
from leeway_sandbox.stack import Stack


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
