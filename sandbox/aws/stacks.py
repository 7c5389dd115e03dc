"""CloudFormation's answers about stacks, where moto's differ from AWS's.

The import of this module takes seconds: moto's CloudFormation loads the models of all services. So
it is imported at the first call of CloudFormation.
"""

import json
from typing import Any

import moto.cloudformation.models as moto_cloudformation
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult


class TextStack(Stack):
    """A stack whose parameters are text, also those that are lists."""

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

    def update_stack(self) -> ActionResult:
        """Update a stack. A previous value may be a default, and an update that changes nothing is
        an error."""
        stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
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

    @staticmethod
    def _uses_previous(parameter: dict[str, Any]) -> bool:
        return str(parameter.get("UsePreviousValue", "")).lower() == "true"


moto_cloudformation.Stack = TextStack  # type: ignore[misc]
