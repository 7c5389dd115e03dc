"""Checks names before they become part of an API path.

A field that refers to another object may contain any text. In a URL, `a/status` is a subresource
and `../pods` another resource; in a field selector, a comma starts another condition.
"""

import re

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_SEGMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]*[A-Za-z0-9])?")
_API_VERSION = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?v[a-z0-9]+")
LONGEST = 253
"""Characters. Source: Kubernetes documentation, "Object Names and IDs"."""


def is_subdomain(name: str) -> bool:
    """Whether a name is a DNS subdomain, as names of workloads and nodes must be."""
    return len(name) <= LONGEST and _SUBDOMAIN.fullmatch(name) is not None


def is_segment(name: str) -> bool:
    """Whether a name is one path segment, as names of all kinds must be. Names of RBAC objects may
    contain colons and capitals."""
    return len(name) <= LONGEST and _SEGMENT.fullmatch(name) is not None


def is_api_version(text: str) -> bool:
    """Whether a text is an API version, with or without a group: `apps/v1`, `v1`."""
    return len(text) <= LONGEST and _API_VERSION.fullmatch(text) is not None
