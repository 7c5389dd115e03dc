"""EC2's launch templates, by boto3."""

import json
from collections.abc import Callable, Collection, Iterator
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.launch.templates import LaunchTemplate, tag_list
from leeway.parallel import in_parallel

_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_IN_ONE_CALL = 200
"""Names that one filter takes. Source: EC2 API reference, DescribeLaunchTemplates."""
_AT_ONCE = 8


class Ec2LaunchTemplates:
    """The LaunchTemplates Protocol; `client` makes boto3's EC2 client when it is first used.

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
