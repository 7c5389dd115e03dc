"""Resolves CloudFormation's intrinsic functions without CloudFormation.

Shapes: "Intrinsic function reference" and "Pseudo parameters" in CloudFormation's guide.
"""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from leeway_sandbox.errors import SandboxError

_REFERENCE = re.compile(r"\$\{(!?)([^}]*)\}")
_NO_VALUE = object()

# Resource type → (service, prefix of the resource part) of its ARN.
_ARNS = {
    "AWS::DynamoDB::Table": ("dynamodb", "table/"),
    "AWS::Events::Rule": ("events", "rule/"),
    "AWS::IAM::Role": ("iam", "role/"),
    "AWS::Lambda::Function": ("lambda", "function:"),
    "AWS::Lambda::LayerVersion": ("lambda", "layer:"),
    "AWS::Logs::LogGroup": ("logs", "log-group:"),
    "AWS::Scheduler::ScheduleGroup": ("scheduler", "schedule-group/"),
    "AWS::SNS::Topic": ("sns", ""),
    "AWS::SQS::Queue": ("sqs", ""),
}
_NAMES = ("FunctionName", "LayerName", "LogGroupName", "QueueName", "RoleName", "TableName", "Name")


class Resolver:
    """Resolves the expressions of one template. A resource without a name gets a generated one."""

    def __init__(
        self,
        template: Mapping[str, Any],
        parameters: Mapping[str, Any],
        *,
        stack: str,
        region: str,
        account: str,
    ) -> None:
        self._resources: Mapping[str, Any] = template["Resources"]
        self._conditions: Mapping[str, Any] = template.get("Conditions", {})
        self._mappings: Mapping[str, Any] = template.get("Mappings", {})
        self._stack, self._region, self._account = stack, region, account
        self._values: dict[str, Any] = {
            "AWS::AccountId": account,
            "AWS::NoValue": _NO_VALUE,
            "AWS::NotificationARNs": [],
            "AWS::Partition": "aws",
            "AWS::Region": region,
            "AWS::StackId": f"arn:aws:cloudformation:{region}:{account}:stack/{stack}/sandbox",
            "AWS::StackName": stack,
            "AWS::URLSuffix": "amazonaws.com",
        }
        declared = template.get("Parameters", {})
        for name in parameters.keys() - declared.keys():
            raise SandboxError(f"The template has no parameter {name}.")
        for name, parameter in declared.items():
            value = parameters.get(name, parameter.get("Default"))
            if value is None:
                raise SandboxError(f"The parameter {name} has no default and no value.")
            if "List" in parameter["Type"] and not isinstance(value, list):
                value = [part.strip() for part in str(value).split(",")]
            self._values[name] = value

    def exists(self, logical_id: str) -> bool:
        """Whether the condition of the resource is true."""
        return self.is_included(self._resources[logical_id], logical_id)

    def is_included(self, part: Mapping[str, Any], where: str) -> bool:
        """Whether the condition of a resource or output is true, or it has none."""
        condition = part.get("Condition")
        return condition is None or self._condition(condition, where)

    def text(self, parameter: str) -> str:
        """Return the value of a parameter; a list is one text with commas."""
        value = self._values[parameter]
        return ",".join(value) if isinstance(value, list) else str(value)

    def properties(self, logical_id: str) -> dict[str, Any]:
        """Return the resolved properties of a resource."""
        resolved: dict[str, Any] = self.value(
            self._resources[logical_id].get("Properties", {}), logical_id
        )
        return resolved

    def value(self, node: Any, where: str) -> Any:
        """Resolve an expression of the resource ``where``.

        Raises:
            SandboxError: the expression cannot be resolved.
        """
        if isinstance(node, list):
            items = [self.value(item, where) for item in node]
            return [item for item in items if item is not _NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            (name, argument), *_ = node.items()
            if name == "Ref":
                return self.reference(argument, where)
            if name == "Condition" and isinstance(argument, str):
                return self._condition(argument, where)
            if name.startswith("Fn::"):
                return self._call(name, argument, where)
        values = {key: self.value(item, where) for key, item in node.items()}
        return {key: item for key, item in values.items() if item is not _NO_VALUE}

    def reference(self, name: str, where: str) -> Any:
        """Return the value of ``Ref``: that of a parameter, or the physical id of a resource."""
        if name in self._values:
            return self._values[name]
        kind = self._kind(name, where)
        if kind == "AWS::SQS::Queue":
            return f"https://sqs.{self._region}.amazonaws.com/{self._account}/{self.name(name)}"
        if kind == "AWS::Lambda::Alias":
            properties = self._resources[name]["Properties"]
            function = self.value(properties["FunctionName"], name)
            return f"{self._arn('lambda', f'function:{function}')}:{properties['Name']}"
        if kind == "AWS::Lambda::Version":
            function = self.value(self._resources[name]["Properties"]["FunctionName"], name)
            return f"{self._arn('lambda', f'function:{function}')}:1"
        if kind == "AWS::Lambda::LayerVersion":
            return f"{self.attribute(name, 'Arn', where)}:1"
        if kind == "AWS::SNS::Topic":
            return self.attribute(name, "Arn", where)
        return self.name(name)

    def name(self, logical_id: str) -> str:
        """Return the name of a resource, or one made of the stack's name and the logical id."""
        properties = self._resources[logical_id].get("Properties", {})
        given = next((properties[key] for key in _NAMES if key in properties), None)
        if given:
            return str(self.value(given, logical_id))
        fifo = self.value(properties.get("FifoQueue", False), logical_id)
        return f"{self._stack}-{logical_id}" + (".fifo" if fifo else "")

    def attribute(self, name: str, attribute: str, where: str) -> Any:
        """Return the value of ``Fn::GetAtt``."""
        kind = self._kind(name, where)
        if attribute == "Arn" and kind in _ARNS:
            service, prefix = _ARNS[kind]
            # Source: CloudFormation, AWS::Logs::LogGroup, "Return values".
            suffix = ":*" if service == "logs" else ""
            return self._arn(service, prefix + self.name(name) + suffix)
        if kind == "AWS::SQS::Queue" and attribute == "QueueName":
            return self.name(name)
        if kind == "AWS::SQS::Queue" and attribute == "QueueUrl":
            return self.reference(name, where)
        if kind == "AWS::Lambda::Version" and attribute == "Version":
            return "1"
        raise SandboxError(
            f"{where}: the sandbox does not support the attribute {attribute} of {name} ("
            f"{kind}). Add the attribute to sandbox/leeway_sandbox/intrinsics.py."
        )

    def _kind(self, name: str, where: str) -> str:
        if name not in self._resources:
            raise SandboxError(f"{where}: the template has no parameter or resource {name}.")
        return str(self._resources[name]["Type"])

    def _arn(self, service: str, resource: str) -> str:
        region = "" if service == "iam" else self._region
        return f"arn:aws:{service}:{region}:{self._account}:{resource}"

    def _condition(self, name: str, where: str) -> bool:
        if name not in self._conditions:
            raise SandboxError(f"{where}: the template has no condition {name}.")
        return bool(self.value(self._conditions[name], where))

    def _call(self, name: str, argument: Any, where: str) -> Any:
        if name == "Fn::If":
            condition, yes, no = argument
            return self.value(yes if self._condition(condition, where) else no, where)
        if name == "Fn::GetAtt":
            parts = argument.split(".", 1) if isinstance(argument, str) else argument
            return self.attribute(parts[0], parts[1], where)
        if name == "Fn::Sub":
            return self._substitute(argument, where)
        function = _FUNCTIONS.get(name)
        if function is None and name != "Fn::FindInMap":
            raise SandboxError(
                f"{where}: the sandbox does not support {name}. Add the function to "
                "sandbox/leeway_sandbox/intrinsics.py, or write the value another way."
            )
        given = self.value(argument, where)
        try:
            if function is not None:
                return function(given)
            return self._mappings[given[0]][given[1]][given[2]]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SandboxError(f"{where}: {name} of {given!r} fails: {error!r}") from error

    def _substitute(self, argument: Any, where: str) -> str:
        text, extra = argument if isinstance(argument, list) else (argument, {})
        known = self.value(extra, where)

        def replaced(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return "${" + name + "}"
            if name in known:
                return str(known[name])
            if "." in name:
                logical_id, _, attribute = name.partition(".")
                return str(self.attribute(logical_id, attribute, where))
            return str(self.reference(name, where))

        return _REFERENCE.sub(replaced, text)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Fn::And": all,
    "Fn::Base64": lambda text: base64.b64encode(text.encode()).decode(),
    "Fn::Equals": lambda pair: str(pair[0]) == str(pair[1]),
    "Fn::Join": lambda given: given[0].join(str(item) for item in given[1]),
    "Fn::Not": lambda given: not given[0],
    "Fn::Or": any,
    "Fn::Select": lambda given: given[1][int(given[0])],
    "Fn::Split": lambda given: given[1].split(given[0]),
}
