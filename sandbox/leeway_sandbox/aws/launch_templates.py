"""Creates, describes and deletes launch templates as EC2 does.

moto's launch templates lack client tokens, the limit of user data, source versions, pages, and
errors for unknown ids. moto also adds the tags of a template to the tags of its instances.
"""

import base64
import binascii
import re
from collections import defaultdict
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import (
    EC2ClientError,
    InvalidLaunchTemplateIdNotFound,
    InvalidLaunchTemplateNameNotFoundError,
    InvalidLaunchTemplateNameNotFoundWithNameError,
    InvalidLaunchTemplateVersionNotFound,
    InvalidParameterCombination,
    MissingParameterError,
)
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateVersion
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.ec2.utils import generic_filter, parse_user_data

from leeway_sandbox.aws.ec2_requests import ClientTokens, page, tags_by_resource

LARGEST_USER_DATA = 16384  # bytes, before base64
MOST_OF_A_PAGE = 200
LAUNCHED = ("instance", "volume", "network-interface", "spot-instances-request")
"""What a launch creates and a template can tag."""

_NAME = re.compile(r"[a-zA-Z0-9()./_-]{3,128}")
_tokens: defaultdict[tuple[str, str], ClientTokens] = defaultdict(ClientTokens)


def install() -> None:
    """Put these actions in place of moto's."""
    LaunchTemplates.create_launch_template = _create  # type: ignore[method-assign]
    LaunchTemplates.create_launch_template_version = _create_version  # type: ignore[method-assign]
    LaunchTemplates.describe_launch_templates = _describe  # type: ignore[method-assign]
    LaunchTemplates.delete_launch_template = _delete  # type: ignore[method-assign]


def find(backend: Any, template_id: str | None, name: str | None) -> LaunchTemplate:
    """The template by its id or its name, which exclude each other; raises EC2's error."""
    if bool(template_id) == bool(name):
        if template_id:
            raise InvalidParameterCombination(
                "Only one of LaunchTemplateId and LaunchTemplateName can be specified."
            )
        raise MissingParameterError("LaunchTemplateId or LaunchTemplateName")
    if template_id and template_id not in backend.launch_templates:
        raise InvalidLaunchTemplateIdNotFound(template_id)
    if name and name not in backend.launch_template_name_to_ids:
        raise InvalidLaunchTemplateNameNotFoundWithNameError(name)
    found: LaunchTemplate = backend.launch_templates[
        template_id or backend.launch_template_name_to_ids[name]
    ]
    return found


def version_of(template: LaunchTemplate, version: str | None) -> LaunchTemplateVersion:
    """A version by its number, `$Default` or `$Latest`; raises EC2's error."""
    if version is None:
        raise MissingParameterError("LaunchTemplateSpecification.Version")
    if version == "$Latest":
        return template.latest_version()
    if version == "$Default":
        return template.default_version()
    if not version.isdecimal() or not 1 <= int(version) <= template.latest_version_number:
        raise InvalidLaunchTemplateVersionNotFound(template_id=template.id, version=version)
    return template.versions[int(version) - 1]


def _create(self: LaunchTemplates) -> ActionResult:
    self.error_on_dryrun()
    tokens = _tokens[self.region, "CreateLaunchTemplate"]
    return ActionResult(
        tokens.answer(self._get_param("ClientToken"), self.data, lambda: _created(self))
    )


def _created(self: LaunchTemplates) -> dict[str, Any]:
    name = self._get_param("LaunchTemplateName") or ""
    if not _NAME.fullmatch(name):
        raise EC2ClientError(
            "InvalidLaunchTemplateName.MalformedException",
            "Launch template name must be between 3 and 128 characters, and may contain letters, "
            "numbers, and the following characters: ( ) . / _ -",
        )
    tags = tags_by_resource(self._get_param("TagSpecifications", []), ("launch-template",))
    template = self.ec2_backend.create_launch_template(
        name, self._get_param("VersionDescription"), _data(self), tags
    )
    return {"LaunchTemplate": _shown(self, template)}


def _create_version(self: LaunchTemplates) -> ActionResult:
    """Create a version with the data of SourceVersion, except for what the call has. moto leaves
    the source out."""
    self.error_on_dryrun()
    template, data = _selected(self), _data(self)
    if source := self._get_param("SourceVersion"):
        data = {**version_of(template, source).data, **data}
    version = template.create_version(data, self._get_param("VersionDescription"))
    shown = {
        "CreateTime": version.create_time,
        "CreatedBy": f"arn:{self.partition}:iam::{self.current_account}:root",
        "DefaultVersion": template.is_default(version),
        "LaunchTemplateData": version.data,
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "VersionDescription": version.description,
        "VersionNumber": version.number,
    }
    return ActionResult({"LaunchTemplateVersion": shown})


def _selected(self: LaunchTemplates) -> LaunchTemplate:
    return find(
        self.ec2_backend, self._get_param("LaunchTemplateId"), self._get_param("LaunchTemplateName")
    )


def _data(self: LaunchTemplates) -> dict[str, Any]:
    """The template's data as the call has it; raises EC2's error for user data or tags."""
    data: dict[str, Any] = self._get_param("LaunchTemplateData", {})
    if not data:
        raise MissingParameterError("LaunchTemplateData")
    tags_by_resource(data.get("TagSpecifications") or [], LAUNCHED)
    if text := self._get_param("LaunchTemplateData.UserData"):
        _check_user_data(text)
        data["UserData"] = parse_user_data(text)
    return data


def _check_user_data(text: str) -> None:
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise EC2ClientError(
            "InvalidUserData.Malformed", "Invalid BASE64 encoding of user data."
        ) from error
    if len(content) > LARGEST_USER_DATA:
        raise EC2ClientError(
            "InvalidUserData.Malformed", f"User data is limited to {LARGEST_USER_DATA} bytes."
        )


def _describe(self: LaunchTemplates) -> ActionResult:
    self.error_on_dryrun()
    backend = self.ec2_backend
    ids, names = (
        self._get_param("LaunchTemplateIds", []),
        self._get_param("LaunchTemplateNames", []),
    )
    for template_id in ids:
        find(backend, template_id, None)
    if any(name not in backend.launch_template_name_to_ids for name in names):
        raise InvalidLaunchTemplateNameNotFoundError
    wanted = {*ids, *(backend.launch_template_name_to_ids[name] for name in names)}
    found = [one for one in backend.launch_templates.values() if not wanted or one.id in wanted]
    found = generic_filter(self._filters_from_querystring(), found)
    limit = self._get_int_param("MaxResults") or MOST_OF_A_PAGE
    shown, token = page(found, limit, self._get_param("NextToken"))
    templates = [_shown(self, template) for template in shown]
    return ActionResult({"LaunchTemplates": templates, "NextToken": token})


def _delete(self: LaunchTemplates) -> ActionResult:
    self.error_on_dryrun()
    template = _selected(self)
    shown = _shown(self, template)
    self.ec2_backend.delete_launch_template(None, template.id)
    self.ec2_backend.tags.pop(template.id, None)
    return ActionResult({"LaunchTemplate": shown})


def _shown(self: LaunchTemplates, template: LaunchTemplate) -> dict[str, Any]:
    tags = self.ec2_backend.tags.get(template.id, {})
    return {
        "CreateTime": template.create_time,
        "CreatedBy": f"arn:{self.partition}:iam::{self.current_account}:root",
        "DefaultVersionNumber": template.default_version_number,
        "LatestVersionNumber": template.latest_version_number,
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
