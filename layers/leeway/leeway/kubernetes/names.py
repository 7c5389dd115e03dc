"""Names that may stand in a path of the API: what others write is looked at before it gets there.

An object may refer to others by any text. In a URL, `a/status` is a subresource, `../pods` another
resource, and in a field selector a comma begins another condition.
"""

import re

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_SEGMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]*[A-Za-z0-9])?")
_API_VERSION = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?v[a-z0-9]+")
LONGEST = 253
"""Characters. Source: Kubernetes documentation, "Object Names and IDs"."""


def is_subdomain(name: str) -> bool:
    """Whether it is the name of a workload, a node or a namespace: a DNS subdomain."""
    return len(name) <= LONGEST and _SUBDOMAIN.fullmatch(name) is not None


def is_segment(name: str) -> bool:
    """Whether it is one segment of a path, as the names of all kinds of objects are; those of RBAC
    may have colons and capitals."""
    return len(name) <= LONGEST and _SEGMENT.fullmatch(name) is not None


def is_api_version(text: str) -> bool:
    """Whether it is a version, with a group or without: `apps/v1`."""
    return len(text) <= LONGEST and _API_VERSION.fullmatch(text) is not None
