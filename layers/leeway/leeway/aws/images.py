"""AMIs and the SSM parameters that name them, by boto3."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import batched
from typing import Any

from leeway.aws.ec2 import tag_filters
from leeway.aws.errors import aws_errors
from leeway.launch.images import Image
from leeway.manifests.node_class import AmiTerm

_PARAMETERS_IN_ONE_CALL = 10  # Source: SSM API reference, GetParameters


class AwsImages:
    """The Images Protocol; `ec2` and `ssm` make boto3's clients when they are first used."""

    def __init__(self, ec2: Callable[[], Any], ssm: Callable[[], Any]) -> None:
        self._ec2 = ec2
        self._ssm = ssm

    def parameters(self, names: Collection[str]) -> dict[str, str]:
        """Read parameters; those that do not exist are left out."""
        found: dict[str, str] = {}
        for some in batched(sorted(set(names)), _PARAMETERS_IN_ONE_CALL, strict=False):
            with aws_errors():
                answer = self._ssm().get_parameters(Names=list(some))
            found |= {one["Name"]: one["Value"] for one in answer["Parameters"]}
        return found

    def images(self, terms: Sequence[AmiTerm]) -> list[Image]:
        """List the AMIs that match at least one of the terms: by an id in any state, by other terms
        only available ones."""
        named = self.parameters([one.ssm_parameter for one in terms if one.ssm_parameter])
        ids = sorted({*named.values(), *(one.id for one in terms if one.id)})
        queries = [_by_fields(one) for one in terms if one.name or one.tags]
        if ids:
            queries.append({"Filters": [{"Name": "image-id", "Values": ids}]})
        found = {image.id: image for query in queries for image in self._described(query)}
        return [found[name] for name in sorted(found)]

    def _described(self, query: Mapping[str, Any]) -> Iterator[Image]:
        with aws_errors():
            pages = self._ec2().get_paginator("describe_images").paginate(**query)
            described = [image for page in pages for image in page["Images"]]
        yield from map(_image, described)


def _by_fields(term: AmiTerm) -> dict[str, Any]:
    """Karpenter's owners of terms without one: the account itself and Amazon."""
    owners = [term.owner] if term.owner else ["self", "amazon"]
    name = [{"Name": "name", "Values": [term.name]}] if term.name else []
    available = {"Name": "state", "Values": ["available"]}
    return {"Owners": owners, "Filters": [*name, *tag_filters(term.tags), available]}


def _image(described: Mapping[str, Any]) -> Image:
    deprecated = described.get("DeprecationTime")
    return Image(
        id=described["ImageId"],
        name=described.get("Name", ""),
        architecture=described["Architecture"],
        created_at=_moment(described["CreationDate"]),
        root_device=described.get("RootDeviceName", ""),
        deprecated=deprecated is not None and _moment(deprecated) <= datetime.now(UTC),
        state=described.get("State", "available"),
    )


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
