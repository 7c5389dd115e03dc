"""Types of fields that several kinds have: quantities, selectors, schedules and labels of pools."""

import difflib
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from leeway.headroom.windows import Cron, parse_cron
from leeway.manifests.base import LabelKey, Strict, near_miss
from leeway.selection.labels import ALIASES, HOSTNAME, NODE_CLASS, NODEPOOL, WELL_KNOWN
from leeway.selection.resources import requested_quantity


def _amount(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    return str(requested_quantity(str(value)))


Amount = Annotated[
    str,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "description": "A quantity such as 500m, 2 or 1Gi.",
        }
    ),
]
Amounts = dict[LabelKey, Amount]
"""A quantity for each resource: `cpu`, `memory`, `nvidia.com/gpu`, …"""


TagText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Tags = dict[Annotated[TagText, StringConstraints(max_length=128)], TagText]


class SubnetTerm(Strict):
    """A subnet matches a term if it has the ID, or all of the tags."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the subnet; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-z]+$")] | None = None
    """ID of the subnet; the only field of its term."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.tags) == (self.id is not None):
            raise ValueError("expected either tags or id in a term")
        return self


class SecurityGroupTerm(Strict):
    """A security group matches a term if it has the ID, the name, or all of the tags."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the security group; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-z]+$")] | None = None
    """ID of the security group; the only field of its term."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Name of the security group (not its `Name` tag); the only field of its term."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum((bool(self.tags), self.id is not None, self.name is not None)) != 1:
            raise ValueError("expected exactly one of tags, id and name in a term")
        return self


SubnetTerms = Annotated[tuple[SubnetTerm, ...], Field(min_length=1, max_length=30)]
SecurityGroupTerms = Annotated[tuple[SecurityGroupTerm, ...], Field(min_length=1, max_length=30)]


def _cron(value: Any) -> Any:
    return parse_cron(value) if isinstance(value, str) else value


_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _cron_or_descriptor(value: Any) -> Any:
    return _cron(_DESCRIPTORS.get(value, value)) if isinstance(value, str) else value


def _timezone(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _zones():
        raise ValueError(
            "expected a time zone of the IANA database such as Europe/Berlin"
            + near_miss(value[:64], _zones())
        )
    return ZoneInfo(value)


@cache
def _zones() -> frozenset[str]:
    """Return the names in the layer's copy of the database. The machine that checks a manifest may
    have others, and some file systems ignore case; the functions would not find these names."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


CronExpression = Annotated[
    Cron,
    BeforeValidator(_cron),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\S+ +\S+ +\S+ +\S+ +\S+$",
            "description": "A cron expression: minute, hour, day of month, month, day of week.",
        }
    ),
]
BudgetSchedule = Annotated[
    Cron,
    BeforeValidator(_cron_or_descriptor),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(\\S+ +\\S+ +\\S+ +\\S+ +\\S+|{'|'.join(_DESCRIPTORS)})$",
            "description": "A cron expression of five fields, or a descriptor such as @daily.",
        }
    ),
]
"""The schedule of a disruption budget; Karpenter accepts descriptors there, too."""
TimeZone = Annotated[
    ZoneInfo,
    BeforeValidator(_timezone),
    WithJsonSchema(
        {
            "type": "string",
            "description": "A time zone of the IANA database, for example Europe/Berlin.",
        }
    ),
]


_RESTRICTED = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws")
_FREE = ("node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io")

NOT_ACTED_ON = dict.fromkeys(
    (
        "karpenter.k8s.aws/instance-tenancy",
        "karpenter.k8s.aws/capacity-reservation-id",
        "karpenter.k8s.aws/capacity-reservation-type",
        "karpenter.k8s.aws/capacity-reservation-interruptible",
        "karpenter.k8s.aws/placement-group-id",
        "karpenter.k8s.aws/placement-group-partition",
    ),
    "ignored: Leeway does not support this label",
)
"""Labels that Karpenter supports and Leeway ignores, with the warning for each."""


def check_pool_label(key: str) -> str:
    """Refuse a label that a pool may not set.

    Raises:
        ValueError: a pool may not set it.
    """
    if key in {NODEPOOL, HOSTNAME} or ALIASES.get(key) == NODEPOOL:
        raise ValueError(f"expected another label: Leeway sets {key} on every node")
    if key in WELL_KNOWN or key in ALIASES or key in NOT_ACTED_ON or key == NODE_CLASS:
        return key
    domain, slash, _ = key.partition("/")
    if slash and domain.endswith(_RESTRICTED) and not domain.endswith(_FREE):
        near = difflib.get_close_matches(key, sorted(WELL_KNOWN), n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"expected a well-known label or a label of your own domain, got {key}{guess}"
        )
    return key
