"""Refuses what the roles of functions do not allow, and answers EC2's dry runs.

A call of a function needs a statement of its role that names the action and, for the table, for
queues and for log streams, the partition keys, the queue and the stream. In a dry run, EC2 also
checks tags and templates. Other resources and conditions are not judged.

Sources: EC2 API reference, "DryRun" and "Error codes"; IAM's guide, "Troubleshoot access denied
error messages".
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.cloud import ACCOUNT
from leeway_sandbox.aws.dynamodb import conditions_of
from leeway_sandbox.aws.policies import (
    INTERFACE,
    LAUNCHED_BY_GROUPS,
    TEMPLATE,
    Launch,
    Request,
    Tags,
    create_template,
    listed,
    refused,
    resource_tags,
    terminate,
)
from leeway_sandbox.aws.stacks import DeployedStacks

type Error = tuple[str, str, int]
"""The code, the message and the HTTP status."""

_DRY = ("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
_DENIED = {
    "autoscaling": ("AccessDenied", 403),
    "cloudwatch": ("AccessDenied", 403),
    "ec2": ("UnauthorizedOperation", 403),
    "iam": ("AccessDenied", 403),
    "sqs": ("AccessDenied", 403),
}
_BY_GROUP = "autoscaling:LaunchInstances"
_SANDBOX_ONLY = {"sqs:GetQueueUrl"}
"""Calls of the sandbox's Lambda in the name of a function, which AWS Lambda does not make."""
_PERMISSIONS = {"sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility"}
"""Calls whose permission has another name."""
_TAG = re.compile(r"TagSpecifications?\.(\d+)\.(ResourceType|Tags?\.(\d+)\.(Key|Value))")

type Form = Mapping[str, list[str]]


class Authorization:
    """Judges calls by the policies that IAM has for the roles of the functions."""

    def __init__(self, region: str, stacks: DeployedStacks) -> None:
        self._region, self._stacks = region, stacks

    def error_of(self, call: Call, body: bytes = b"") -> Error | None:
        """Return the error of a call that is refused or a dry run; None if it is to be answered.
        `body` is that of a request to DynamoDB or SQS."""
        is_dry = call.service == "ec2" and call.form.get("DryRun", [""])[0].lower() == "true"
        role = None if call.polling else self._stacks.role_of(call.access_key)
        resource = self._resource(call.service, body)
        denied = self._denied(call, role, resource, body, is_dry=is_dry) if role else None
        return denied or (self._dry_answer(call.form) if is_dry else None)

    def _denied(
        self, call: Call, role: str, resource: str, body: bytes, *, is_dry: bool
    ) -> Error | None:
        action = _PERMISSIONS.get(str(call), str(call))
        if action in _SANDBOX_ONLY:
            return None
        self._stacks.create("iam")
        found = iam_backends[ACCOUNT]["aws"].get_role(role)
        statements = _statements(tuple(found.policies.values()))
        granting = [one for one in statements if action.lower() in _actions(one)]
        if (is_dry or action == _BY_GROUP) and (checks := self._checks(call)):
            for missing in refused(statements, checks):
                return _error(call.service, found.arn, missing.action, missing.resource)
            return None if granting else _error(call.service, found.arn, action, "*")
        if resource:
            context = conditions_of(call, body) if call.service == "dynamodb" else {}
            asked = Request(action, resource, context)
            granting = [one for one in granting if not [*refused([one], [asked])]]
        return None if granting else _error(call.service, found.arn, action, resource or "*")

    def _resource(self, service: str, body: bytes) -> str:
        """Return the table, the index, the queue or the log stream of a call; empty for other
        services."""
        if service not in ("dynamodb", "sqs", "logs"):
            return ""
        asked = json.loads(body or b"{}")
        if service == "logs":
            group, stream = asked.get("logGroupName"), asked.get("logStreamName", "")
            place = f"log-group:{group}:log-stream:{stream}"
            return f"arn:aws:logs:{self._region}:{ACCOUNT}:{place}"
        if service == "sqs":
            name = str(asked.get("QueueUrl", "")).rpartition("/")[2]
        else:
            table = asked.get("TableName") or next(iter(asked.get("RequestItems", {})), "")
            index = asked.get("IndexName")
            name = f"table/{table}/index/{index}" if index else f"table/{table}"
        return f"arn:aws:{service}:{self._region}:{ACCOUNT}:{name}"

    def _dry_answer(self, form: Form) -> Error:
        for name in _values(form, r".+\.LaunchTemplateName"):
            if self._template(name) is None:
                message = (
                    f"The specified launch template, with template name {name}, does not exist."
                )
                return "InvalidLaunchTemplateName.NotFoundException", message, 400
        return _DRY

    def _checks(self, call: Call) -> list[Request]:
        """Return what IAM must allow for a call that creates or ends something."""
        ec2, form = ec2_backends[ACCOUNT][self._region], call.form
        match call.action:
            case "LaunchInstances":
                return [Request("ec2:CreateFleet", one) for one in LAUNCHED_BY_GROUPS]
            case "TerminateInstances":
                named = _values(form, r"InstanceId\.\d+")
                return [check for one in named for check in terminate(dict(ec2.tags.get(one, {})))]
            case "DeleteLaunchTemplate":
                (name,) = _values(form, r"LaunchTemplateName")
                template = self._template(name)
                tags = dict(ec2.tags.get(template.id, {})) if template else {}
                return [Request(str(call), TEMPLATE, resource_tags(tags))]
            case "CreateLaunchTemplate":
                return create_template(_requested_tags(form).get("launch-template", {}))
            case "CreateFleet" | "RunInstances":
                names = _values(form, r".+\.LaunchTemplateName")
                return [check for one in names for check in self._launch(call, one)]
        return []

    def _launch(self, call: Call, name: str) -> Iterator[Request]:
        """Yield the checks of a launch. EC2 finds no tags of a template that does not exist."""
        ec2, template = ec2_backends[ACCOUNT][self._region], self._template(name)
        data: Mapping[str, Any] = template.latest_version().data if template else {}
        requested = _requested_tags(call.form)
        for one in data.get("TagSpecifications") or ():
            tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
            requested[one["ResourceType"]] = {**tags, **requested.get(one["ResourceType"], {})}
        launch = Launch(
            tags=requested,
            template=dict(ec2.tags.get(template.id, {})) if template else {},
            role=_role_of_profile(data.get("IamInstanceProfile", {}).get("Name", "")),
            through_fleet=call.action == "CreateFleet",
            found=template is not None or call.action != "CreateFleet",
        )
        # Nobody but the template says what interfaces and what role the instances have.
        unknown: tuple[str, ...] = ("iam:PassRole",) if template and not launch.role else ()
        unknown += () if template else ("iam:PassRole", TEMPLATE, INTERFACE)
        for check in launch.checks():
            if not {check.action, check.resource} & {*unknown}:
                yield check

    def _template(self, name: str) -> Any:
        backend = ec2_backends[ACCOUNT][self._region]
        found = backend.launch_template_name_to_ids.get(name)
        return backend.launch_templates.get(found) if found else None


@lru_cache(maxsize=64)
def _statements(documents: tuple[str, ...]) -> list[Mapping[str, Any]]:
    return [one for document in documents for one in listed(json.loads(document)["Statement"])]


def _actions(statement: Mapping[str, Any]) -> list[str]:
    allows = statement["Effect"] == "Allow"
    return [one.lower() for one in listed(statement["Action"])] if allows else []


def _error(service: str, role: str, action: str, resource: str) -> Error:
    code, status = _DENIED.get(service, ("AccessDeniedException", 400))
    message = (
        f"User: {role} is not authorized to perform: {action} on resource: {resource} because no "
        f"identity-based policy allows the {action} action"
    )
    if service == "ec2":
        message = f"You are not authorized to perform this operation. {message}. Encoded "
        message += "authorization failure message: sandbox"
    return code, message, status


def _values(form: Form, name: str) -> list[str]:
    return [value[0] for key, value in form.items() if re.fullmatch(name, key)]


def _requested_tags(form: Form) -> dict[str, Tags]:
    """Return the tags of a request by the type of resource."""
    kinds: dict[str, str] = {}
    pairs: dict[tuple[str, str], dict[str, str]] = {}
    for key, (value, *_) in form.items():
        if found := _TAG.fullmatch(key):
            specification, what, number, part = found.groups()
            if what == "ResourceType":
                kinds[specification] = value
            else:
                pairs.setdefault((specification, number), {})[part] = value
    tags: dict[str, Tags] = {kind: {} for kind in kinds.values()}
    for (specification, _), pair in pairs.items():
        kind = kinds[specification]
        tags[kind] = {**tags[kind], pair["Key"]: pair.get("Value", "")}
    return tags


def _role_of_profile(name: str) -> str:
    for profile in iam_backends[ACCOUNT]["aws"].instance_profiles.values():
        if profile.name == name and profile.roles:
            return str(profile.roles[0].arn)
    return ""
