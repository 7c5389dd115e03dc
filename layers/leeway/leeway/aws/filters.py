"""Filters of EC2's Describe calls."""

from collections.abc import Mapping
from typing import Any


def tag_filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the filters of resources that have all of these tags; `*` matches any value."""
    return [
        {"Name": "tag-key", "Values": [key]}
        if value == "*"
        else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]
