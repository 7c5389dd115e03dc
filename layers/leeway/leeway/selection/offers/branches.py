"""The number of branch interfaces of an instance type, for pods with their own security groups.

EC2 does not describe it. Source: the limits table of the Amazon VPC resource controller
(`BranchInterface` of the types that are `IsTrunkingCompatible`), as Karpenter's AWS provider
includes it, generated on 2026-08-06. Most types follow one rule: the size determines the total
number of interfaces, and branches are the total less the ordinary interfaces. `_OWN` lists the
types that do not follow it. All other types have none.
"""

import re
from collections.abc import Mapping

POD_ENI = "vpc.amazonaws.com/pod-eni"
"""The resource that a pod with its own security groups requests once."""

_BY_GENERATION = {
    "5": {"", "a", "ad", "b", "d", "dn", "n"},
    "6": {"a", "g", "gd", "gn", "i", "id", "idn", "in"},
    "7": {"a", "g", "gd", "gn", "i", "i-flex", "iz"},
    "8": {
        *("a", "g", "g-flex", "gb", "gd", "gn", "i", "i-flex"),
        *("ib", "id", "idb", "idn", "in", "ine"),
    },
    "9": {"g", "gd"},
}
"""The families of the categories c, m and r that follow the rule."""

_BY_RULE = frozenset(
    {
        *("dl1", "dl2q", "g6", "g6e", "g6f", "g7", "gr6", "gr6f", "inf2", "p3dn", "p4d", "p4de"),
        *("u7i-6tb", "u7i-8tb", "u7i-12tb", "u7in-16tb", "u7in-24tb", "u7in-32tb"),
        *("x2idn", "x8i"),
    }
)
"""Other families that follow the rule."""

_BY_RULE_OF_ARM = frozenset({"g5g", "i4g", "i8g", "im4gn", "is4gen", "x2gd", "x8g"})

_FAMILY = re.compile(r"[cmr]([5-9])([a-z-]*)")

_IN_ALL = {
    "medium": 6,
    "large": 12,
    "xlarge": 22,
    "2xlarge": 42,
    "4xlarge": 62,
    "9xlarge": 62,
    "8xlarge": 92,
}
_IN_ALL_OF_FLEX = {
    "medium": 3,
    "large": 6,
    "xlarge": 12,
    "2xlarge": 22,
    "4xlarge": 42,
    "8xlarge": 62,
}
_FEWER_OF_OLD_AND_ARM = frozenset({"8xlarge", "12xlarge"})
_IN_ALL_OF_MIDDLE_SIZES = 62
_IN_ALL_OF_LARGE_ONES = 122


def _own(**by_size: str) -> Mapping[str, Mapping[str, int]]:
    """Parse `family="size branches, …"`; `_` stands for a dash."""
    return {
        family.replace("_", "-"): {
            size: int(count) for size, count in (entry.split() for entry in written.split(", "))
        }
        for family, written in by_size.items()
    }


_OWN = _own(
    a1="medium 10, large 9, xlarge 18, 2xlarge 38, 4xlarge 54, metal 54",
    c8g_flex="12xlarge 54, 16xlarge 47",
    d3="xlarge 42, 2xlarge 92, 4xlarge 118, 8xlarge 119",
    d3en="xlarge 24, 2xlarge 58, 4xlarge 118, 6xlarge 118, 8xlarge 118, 12xlarge 119",
    f2="6xlarge 84, 12xlarge 114, 48xlarge 107",
    g4ad="xlarge 12, 2xlarge 12, 4xlarge 11, 8xlarge 10, 16xlarge 6",
    g4dn="xlarge 39, 2xlarge 39, 4xlarge 59, 8xlarge 58, 12xlarge 54, 16xlarge 118, metal 107",
    g5="xlarge 4, 2xlarge 17, 4xlarge 34, 8xlarge 84, 12xlarge 107, 16xlarge 114, 24xlarge 107, "
    "48xlarge 115",
    g7e="2xlarge 120, 4xlarge 120, 8xlarge 120, 12xlarge 120, 24xlarge 120, 48xlarge 120",
    hpc7g="4xlarge 118, 8xlarge 118, 16xlarge 118",
    i3="metal 120",
    i3en="large 5, xlarge 12, 2xlarge 28, 3xlarge 38, 6xlarge 54, 12xlarge 54, 24xlarge 107, "
    "metal 107",
    i4i="large 9, xlarge 6, 2xlarge 26, 4xlarge 52, 8xlarge 112, 12xlarge 112, 16xlarge 120, "
    "24xlarge 105, 32xlarge 120, metal 120",
    i7i="large 9, xlarge 18, 2xlarge 38, 4xlarge 54, 8xlarge 84, 12xlarge 84, 16xlarge 107, "
    "24xlarge 107, 48xlarge 107, metal-24xl 107, metal-48xl 107",
    i7ie="large 19, xlarge 27, 2xlarge 27, 3xlarge 27, 6xlarge 54, 12xlarge 54, 18xlarge 107, "
    "24xlarge 107, 48xlarge 107, metal-24xl 107, metal-48xl 107",
    i8ge="large 19, xlarge 27, 2xlarge 27, 3xlarge 25, 6xlarge 52, 12xlarge 50, 18xlarge 106, "
    "24xlarge 106, 48xlarge 98, metal-24xl 106, metal-48xl 98",
    inf1="xlarge 38, 2xlarge 38, 6xlarge 54, 24xlarge 111",
    m5="metal 120",
    m5zn="large 13, xlarge 29, 2xlarge 62, 3xlarge 92, 6xlarge 114, 12xlarge 107, metal 107",
    m8azn="medium 3, large 8, xlarge 18, 3xlarge 34, 6xlarge 54, 12xlarge 106, 24xlarge 106, "
    "metal-12xl 106, metal-24xl 106",
    m8g_flex="12xlarge 54, 16xlarge 47",
    mac1="metal 6",
    mac2="metal 6",
    mac2_m1ultra="metal 6",
    mac2_m2="metal 6",
    mac2_m2pro="metal 6",
    mac_m3ultra="metal 6",
    mac_m4="metal 6",
    mac_m4max="metal 6",
    mac_m4pro="metal 6",
    p5="4xlarge 58, 48xlarge 120",
    p5e="48xlarge 120",
    p5en="48xlarge 120",
    p6_b200="48xlarge 120",
    p6_b300="48xlarge 120",
    r5="metal 120",
    trn1="2xlarge 17, 32xlarge 82",
    trn1n="32xlarge 120",
    u_3tb1="56xlarge 6",
    vt1="3xlarge 38, 6xlarge 54, 24xlarge 107",
    x2gd="medium 10",
    x2iedn="xlarge 11, 2xlarge 27, 4xlarge 54, 8xlarge 114, 16xlarge 107, 24xlarge 107, "
    "32xlarge 107, metal 107",
    x2iezn="2xlarge 62, 4xlarge 114, 6xlarge 114, 8xlarge 114, 12xlarge 107, metal 107",
    x8aedz="large 8, xlarge 18, 3xlarge 34, 6xlarge 54, 12xlarge 106, 24xlarge 106, "
    "metal-12xl 106, metal-24xl 106",
    z1d="large 13, xlarge 28, 2xlarge 58, 3xlarge 54, 6xlarge 54, 12xlarge 107, metal 107",
)


def branch_interfaces(name: str, interfaces: int) -> int:
    """Return the number of branch interfaces of a type. `interfaces` is the total on all its
    cards."""
    family, _, size = name.partition(".")
    own = _OWN.get(family, {}).get(size)
    if own is not None:
        return own
    in_all = _in_all(family, size)
    return 0 if in_all is None else max(0, in_all - interfaces)


def _in_all(family: str, size: str) -> int | None:
    """The total number of interfaces of types that follow the rule; None for all others."""
    matched = _FAMILY.fullmatch(family)
    generation, line = matched.groups() if matched else ("", "")
    if line not in _BY_GENERATION.get(generation, frozenset()):
        if family not in _BY_RULE | _BY_RULE_OF_ARM:
            return None
    elif line.endswith("-flex"):
        return _IN_ALL_OF_FLEX.get(size, _IN_ALL_OF_LARGE_ONES)
    old_or_arm = generation == "5" or line.startswith("g") or family in _BY_RULE_OF_ARM
    if size in _FEWER_OF_OLD_AND_ARM and old_or_arm:
        return _IN_ALL_OF_MIDDLE_SIZES
    return _IN_ALL.get(size, _IN_ALL_OF_LARGE_ONES)
