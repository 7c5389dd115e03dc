"""EC2's launch templates, by boto3."""

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import LaunchTemplate, OwnedTemplate, tag_list
from leeway.parallel import in_parallel

_GONE = "InvalidLaunchTemplateId.NotFound"
_IN_ONE_CALL = 200
"""Names that one filter takes. Source: EC2 API reference, DescribeLaunchTemplates."""
_AT_ONCE = 8


class Ec2LaunchTemplates:
    """The LaunchTemplates and OwnedLaunchTemplates Protocols; `client` makes boto3's EC2 client
    when it is first used.

    Only templates of an object's own are used, by the id that EC2 answered: with the name and the
    tags that Leeway would give it, anybody with the right to create launch templates can create one
    that runs another program on the node. EC2 changes no version of a template.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._doubted: set[str] = set()

    def ensure(self, templates: Collection[LaunchTemplate]) -> Mapping[str, str]:
        """Create those that this object has not created, or that were deleted; return the id of
        each by its name."""
        gone = self._doubted - self._existing(self._doubted)
        self._ids = {name: one for name, one in self._ids.items() if one not in gone}
        self._doubted.clear()
        wanted = {one.name: one for one in templates}
        missing = [one for name, one in wanted.items() if name not in self._ids]
        created = in_parallel(self._create, missing, _AT_ONCE)
        self._ids |= {one.name: found for one, found in zip(missing, created, strict=True)}
        return {name: self._ids[name] for name in wanted}

    def doubt(self, ids: Collection[str]) -> None:
        """Look for these templates at the next `ensure`."""
        self._doubted.update({*ids} & {*self._ids.values()})

    def owned_by(self, cluster: str) -> list[OwnedTemplate]:
        """List the launch templates whose tags name Leeway as the owner, and this cluster."""
        filters = [
            {"Name": f"tag:{key}", "Values": [value]}
            for key, value in sorted(cluster_tags(cluster).items())
        ]
        with aws_errors():
            pages = self._client().get_paginator("describe_launch_templates")
            return [
                OwnedTemplate(one["LaunchTemplateId"], one["LaunchTemplateName"], one["CreateTime"])
                for page in pages.paginate(Filters=filters)
                for one in page["LaunchTemplates"]
            ]

    def delete_template(self, template: str) -> None:
        """Delete a launch template by its id; one that does not exist is not an error."""
        with aws_errors():
            try:
                self._client().delete_launch_template(LaunchTemplateId=template)
            except ClientError as error:
                if code_of(error) != _GONE:
                    raise

    def _existing(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that EC2 knows. It has no filter for ids, and answers a call that
        lists one unknown id with an error alone."""
        found: set[str] = set()
        for some in batched(sorted(self._names[one] for one in ids), _IN_ONE_CALL, strict=False):
            filters = [{"Name": "launch-template-name", "Values": list(some)}]
            with aws_errors():
                pages = self._client().get_paginator("describe_launch_templates")
                for page in pages.paginate(Filters=filters):
                    found |= {one["LaunchTemplateId"] for one in page["LaunchTemplates"]}
        return found

    def _create(self, template: LaunchTemplate) -> str:
        """Create a template under a new name, and return its id. boto3 repeats a call that EC2 has
        not answered with the same token, which makes it one call."""
        name = f"{template.name}-{secrets.token_hex(3)}"
        with aws_errors():
            created = self._client().create_launch_template(
                LaunchTemplateName=name,
                LaunchTemplateData=json.loads(template.data),
                TagSpecifications=[
                    {"ResourceType": "launch-template", "Tags": tag_list(template.tags)}
                ],
            )
        made = str(created["LaunchTemplate"]["LaunchTemplateId"])
        self._names[made] = name
        return made
