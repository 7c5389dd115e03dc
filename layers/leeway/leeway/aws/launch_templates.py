"""EC2's launch templates, by boto3."""

import json
from collections.abc import Callable, Collection, Iterator
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import LaunchTemplate, OwnedTemplate, tag_list
from leeway.parallel import in_parallel

_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_GONE = "InvalidLaunchTemplateName.NotFoundException"
_IN_ONE_CALL = 200
"""Names that one filter takes. Source: EC2 API reference, DescribeLaunchTemplates."""
_AT_ONCE = 8


class Ec2LaunchTemplates:
    """The LaunchTemplates and OwnedLaunchTemplates Protocols; `client` makes boto3's EC2 client
    when it is first used.

    Templates that are known to exist are not read again.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self._known: set[str] = set()

    def ensure(self, templates: Collection[LaunchTemplate]) -> None:
        """Create those that do not exist. Their names are hashes of their content, so one that
        exists has the content."""
        wanted = {one.name: one for one in templates if one.name not in self._known}
        existing = set(self._existing(wanted))
        missing = [one for name, one in wanted.items() if name not in existing]
        in_parallel(self._create, missing, _AT_ONCE)
        self._known |= wanted.keys()

    def forget(self, names: Collection[str]) -> None:
        """Read these templates again at the next `ensure`."""
        self._known -= {*names}

    def owned_by(self, cluster: str) -> list[OwnedTemplate]:
        """List the launch templates whose tags name Leeway as the owner, and this cluster."""
        filters = [
            {"Name": f"tag:{key}", "Values": [value]}
            for key, value in sorted(cluster_tags(cluster).items())
        ]
        with aws_errors():
            pages = self._client().get_paginator("describe_launch_templates")
            return [
                OwnedTemplate(one["LaunchTemplateName"], one["CreateTime"])
                for page in pages.paginate(Filters=filters)
                for one in page["LaunchTemplates"]
            ]

    def delete(self, name: str) -> None:
        """Delete a launch template; one that does not exist is not an error."""
        with aws_errors():
            try:
                self._client().delete_launch_template(LaunchTemplateName=name)
            except ClientError as error:
                if code_of(error) != _GONE:
                    raise
        self.forget([name])

    def _existing(self, names: Collection[str]) -> Iterator[str]:
        for some in batched(sorted(names), _IN_ONE_CALL, strict=False):
            filters = [{"Name": "launch-template-name", "Values": list(some)}]
            with aws_errors():
                pages = self._client().get_paginator("describe_launch_templates")
                for page in pages.paginate(Filters=filters):
                    yield from (one["LaunchTemplateName"] for one in page["LaunchTemplates"])

    def _create(self, template: LaunchTemplate) -> None:
        with aws_errors():
            try:
                self._client().create_launch_template(
                    LaunchTemplateName=template.name,
                    LaunchTemplateData=json.loads(template.data),
                    TagSpecifications=[
                        {"ResourceType": "launch-template", "Tags": tag_list(template.tags)}
                    ],
                )
            except ClientError as error:
                if code_of(error) != _EXISTS:
                    raise
