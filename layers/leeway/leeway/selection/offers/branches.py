"""How many branch interfaces (for pods with security groups of their own) an instance type has.

EC2 does not describe them. Types of one line and size may have so many interfaces in all, and
branches are what is left beside the ordinary ones: the rule behind the limits that Amazon's VPC
resource controller carries (as of October 2025). Lines that it was not checked for, and those that
are unlike (m5zn, r7iz, burstable, accelerated and storage types), are taken to have none.
"""

import re

POD_ENI = "vpc.amazonaws.com/pod-eni"
"""The resource of which a pod with security groups of its own asks for one."""

_LINES = {
    "5": {"", "a", "ad", "b", "d", "dn", "n"},
    "6": {"a", "g", "gd", "gn", "i", "id", "idn", "in"},
    "7": {"a", "g", "gd", "gn", "i", "i-flex"},
    "8": {"g", "gd", "gn", "i", "i-flex"},
}
"""Of the categories c, m and r, by generation."""

_FAMILY = re.compile(r"[cmr]([5-8])([a-z-]*)")

_IN_ALL = {"medium": 6, "large": 12, "xlarge": 22, "2xlarge": 42, "4xlarge": 62, "9xlarge": 62}
_IN_ALL_OF_FLEX = {"large": 6, "xlarge": 12, "2xlarge": 22, "4xlarge": 42, "8xlarge": 62}
_IN_ALL_OF_MIDDLE_SIZES = {"8xlarge": 92, "12xlarge": 122}
_IN_ALL_OF_OLD_AND_ARM = 62
_IN_ALL_OF_LARGE_ONES = 122


def branch_interfaces(name: str, interfaces: int) -> int:
    """Return how many branches a type has that has so many interfaces on all its cards."""
    family, _, size = name.partition(".")
    matched = _FAMILY.fullmatch(family)
    if matched is None or matched[2] not in _LINES[matched[1]]:
        return 0
    generation, line = matched.groups()
    if line.endswith("-flex"):
        in_all = _IN_ALL_OF_FLEX.get(size, _IN_ALL_OF_LARGE_ONES)
    elif size in _IN_ALL_OF_MIDDLE_SIZES and (generation == "5" or line.startswith("g")):
        in_all = _IN_ALL_OF_OLD_AND_ARM
    else:
        in_all = {**_IN_ALL, **_IN_ALL_OF_MIDDLE_SIZES}.get(size, _IN_ALL_OF_LARGE_ONES)
    return max(0, in_all - interfaces)
