"""The rules by which EC2 accepts tags of resources that a call creates.

Sources: EC2 user guide, "Tag restrictions"; EC2 API reference, CreateFleet, CreateLaunchTemplate
and LaunchTemplateTagSpecificationRequest.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from moto.ec2.exceptions import InvalidParameterValue, TagLimitExceeded

MOST_TAGS = 50
LONGEST_KEY, LONGEST_VALUE = 128, 256  # characters


def tags_by_resource(
    specifications: Iterable[Mapping[str, Any]], allowed: Collection[str]
) -> dict[str, dict[str, str]]:
    """The tags of TagSpecifications by resource type; raises EC2's error for a refused one."""
    found: dict[str, dict[str, str]] = {}
    for specification in specifications:
        kind = str(specification.get("ResourceType"))
        if kind not in allowed:
            raise InvalidParameterValue(
                f"'{kind}' is not a valid taggable resource type for this operation."
            )
        tags = found.setdefault(kind, {})
        tags |= {tag["Key"]: tag.get("Value", "") for tag in specification.get("Tags") or ()}
        _check(tags)
    return found


def _check(tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            raise InvalidParameterValue(
                f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are "
                "reserved for internal use"
            )
        if not key or len(key) > LONGEST_KEY:
            raise InvalidParameterValue(
                f"Tag key exceeds the maximum length of {LONGEST_KEY} characters"
            )
        if len(value) > LONGEST_VALUE:
            raise InvalidParameterValue(
                f"Tag value exceeds the maximum length of {LONGEST_VALUE} characters"
            )
    if len(tags) > MOST_TAGS:
        raise TagLimitExceeded
