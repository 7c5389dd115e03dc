"""`leeway select --for-group`: the MixedInstancesPolicy with which an Auto Scaling group has many
Spot capacity pools and holds the same pods.

Sources: Amazon EC2 Auto Scaling API reference, `MixedInstancesPolicy`; user guide, "Allocation
strategies".
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import yaml
from leeway.aws.group_templates import template_version
from leeway.reasons import counted
from leeway.selection.labels import ARCH, INSTANCE, ON_DEMAND, SPOT
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog, InstanceType
from leeway.selection.offers.machines import ACCELERATORS
from leeway.selection.resources import Resources

from leeway_cli.cost import COUNTED_FOR, counted_spot
from leeway_cli.errors import CannotBeDoneError, aws_errors

if TYPE_CHECKING:
    from leeway.costs import SpotPool
    from leeway.selection.pods import ExistingNode

MOST_TYPES = 20
"""Types of a policy. A group takes 40 overrides, and more than 20 add few capacity pools with a
price near the lowest one."""

DEAREST = 2.0
"""How often the price of the group's cheapest type an added type costs at most: the group pays it
when the cheaper ones have no capacity."""

LARGER = 4
"""How many times the vCPUs of the group's largest type an added type has at most: an interruption
takes a larger part of the group."""

_ACCELERATED_BY = (
    f"{INSTANCE}gpu-name",
    f"{INSTANCE}accelerator-name",
)

_DEAR = 10_000.0
"""USD per hour: no instance costs as much. A type without a price is not added."""

_TEMPLATE = "LaunchTemplateSpecification"

STRATEGY = "price-capacity-optimized"

UNKNOWN_INTERRUPTIONS = (
    "Interruptions: Leeway knows of no Spot instances of these types in the cluster. EC2 shows the "
    "interruptions of the last month in the Spot Instance Advisor."
)


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """What a group launches now. `weights` are those of its types, empty if it counts instances.
    `instances` are the ids of its members. `described` is the answer of AWS, `version` the number
    of the version of its launch template, `versions` that of each type with one of its own."""

    name: str
    types: tuple[str, ...]
    weights: Mapping[str, int]
    zones: frozenset[str]
    instances: frozenset[str]
    specification: Mapping[str, str]
    described: Mapping[str, Any]
    version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    spot_in_template: bool = False

    @property
    def distribution(self) -> dict[str, Any]:
        """The distribution of the group's policy, empty without one."""
        mixed = self.described.get("MixedInstancesPolicy") or {}
        return dict(mixed.get("InstancesDistribution") or {})

    @property
    def overrides(self) -> dict[str, dict[str, Any]]:
        """The overrides of the group's policy, by their type, as a request may have them."""
        mixed = (self.described.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
        found = {one["InstanceType"]: dict(one) for one in mixed.get("Overrides") or []}
        for one in found.values():
            if written := one.get(_TEMPLATE):
                one[_TEMPLATE] = _specification(written)
        return found


@dataclass(frozen=True, slots=True)
class Choice:
    """Some types of a group: their Spot capacity pools (a type in a zone), and the lowest and the
    highest Spot and on-demand price of an instance, or of a unit of weight, in USD per hour."""

    types: tuple[str, ...]
    pools: int
    spot: tuple[float, float] | None
    on_demand: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Advice:
    """The policy, and what it changes. `need` is what each node has room for."""

    group: ScalingGroup
    policy: Mapping[str, Any]
    need: Resources
    before: Choice
    after: Choice


@dataclass(frozen=True, slots=True)
class CountedInterruptions:
    """The interruptions that Leeway counted in instance hours of some types: of `seen` of them."""

    interruptions: int
    hours: float
    seen: int

    def __str__(self) -> str:
        return (
            f"{self.interruptions} in {self.hours:,.0f} instance-h of {counted(self.seen, 'type')}"
        )


def counted_in(
    choice: Choice, zones: Collection[str], spot: "Mapping[str, SpotPool]"
) -> CountedInterruptions:
    """Sum up what was counted of the types of a choice in these zones. `spot` is by type and zone,
    as `m5.large us-east-1a`."""
    keys = {one: [f"{one} {zone}" for zone in zones] for one in choice.types}
    pools = {one: [spot[key] for key in some if key in spot] for one, some in keys.items()}
    found = [pool for some in pools.values() for pool in some]
    return CountedInterruptions(
        sum(pool.interruptions for pool in found),
        sum(pool.hours for pool in found),
        sum(bool(some) for some in pools.values()),
    )


def spot_of(group: ScalingGroup, stack: str, now: datetime) -> "Mapping[str, SpotPool]":
    """Read what was counted of the Spot instances of the group's cluster; nothing without a
    deployment, or without a cluster in the tags of the group."""
    from leeway.instances.facts import cluster_of

    tags = {one["Key"]: one.get("Value", "") for one in group.described.get("Tags", ())}
    cluster = cluster_of(tags)
    return counted_spot(stack, cluster, now) if cluster else {}


def read_group(name: str, client: Any, ec2: Any) -> ScalingGroup:
    """Read a group.

    Raises:
        CannotBeDoneError: there is none, AWS refuses, or no policy can be written for it.
    """
    with aws_errors(f"Auto Scaling group {name}"):
        found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    if not found["AutoScalingGroups"]:
        raise CannotBeDoneError(f"There is no Auto Scaling group {name} in this region.")
    (given,) = found["AutoScalingGroups"]
    for tag in given.get("Tags", ()):
        if tag["Key"] == "eks:nodegroup-name":
            raise CannotBeDoneError(
                f"Group {name} is of managed node group {tag['Value']}, and EKS writes its policy: "
                "create a node group with more instance types."
            )
    of_mixed = (given.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    written = given.get("LaunchTemplate") or of_mixed.get("LaunchTemplateSpecification")
    if not written:
        raise CannotBeDoneError(
            f"Group {name} has no launch template, which a MixedInstancesPolicy needs: give it one."
        )
    overrides = of_mixed.get("Overrides") or []
    if any(one.get("InstanceRequirements") for one in overrides):
        raise CannotBeDoneError(
            f"Group {name} selects its types by InstanceRequirements: it has many types already."
        )
    with aws_errors(f"the launch templates of group {name}"):
        template = template_version(ec2, written)
        versions = {
            one["InstanceType"]: str(template_version(ec2, one[_TEMPLATE])["VersionNumber"])
            for one in overrides
            if one.get(_TEMPLATE) and one.get("InstanceType")
        }
    data = template["LaunchTemplateData"]
    listed = [one["InstanceType"] for one in overrides if one.get("InstanceType")]
    types = tuple(dict.fromkeys(listed or filter(None, [data.get("InstanceType")])))
    if not types:
        raise CannotBeDoneError(
            f"Group {name} names no instance type, neither in overrides nor in its launch template."
        )
    return ScalingGroup(
        name=name,
        types=types,
        weights={
            one["InstanceType"]: int(one["WeightedCapacity"])
            for one in overrides
            if one.get("WeightedCapacity") and one.get("InstanceType")
        },
        zones=frozenset(given.get("AvailabilityZones", ())),
        instances=frozenset(one["InstanceId"] for one in given.get("Instances", ())),
        specification=_specification(written),
        described=given,
        version=str(template["VersionNumber"]),
        versions=versions,
        spot_in_template=(data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot",
    )


def _specification(written: Mapping[str, str]) -> dict[str, str]:
    """AWS answers with the id and the name of a template, and takes one of them."""
    key = "LaunchTemplateId" if written.get("LaunchTemplateId") else "LaunchTemplateName"
    return {key: written[key], "Version": written.get("Version") or "$Default"}


def requested(nodes: Iterable["ExistingNode"], names: Iterable[str]) -> Resources | None:
    """Return what the pods of the fullest of some nodes request, of each resource; None without
    any."""
    of_group = set(names)
    most: dict[str, int] = {}
    for node in nodes:
        if node.name in of_group:
            total: dict[str, int] = {"pods": len(node.pods)}
            for pod in node.pods:
                for name, amount in pod.requests.items():
                    total[name] = total.get(name, 0) + amount
            most = {one: max(most.get(one, 0), total.get(one, 0)) for one in {*most, *total}}
    return Resources(most) if most.get("pods") else None


def advise(group: ScalingGroup, catalog: Catalog, pods: Resources | None) -> Advice:
    """Choose types for a group. `pods` is what the pods of a node request; None: each type must
    have as much as the smallest type of the group.

    Raises:
        CannotBeDoneError: the catalog has none of the group's types, or each of them has a launch
            template or an AMI of its own.
    """
    known = {one.name: one for one in catalog.for_node_class(NodeClass()).types()}
    now = [known[name] for name in group.types if name in known]
    if not now:
        raise CannotBeDoneError(
            f"The catalog has none of the types of group {group.name}: {', '.join(group.types)}."
        )
    own = {
        name for name, one in group.overrides.items() if one.get(_TEMPLATE) or one.get("ImageId")
    }
    first = next((one for one in now if one.name not in own), None)
    if first is None:
        raise CannotBeDoneError(
            f"Group {group.name} has no type in the catalog that runs its launch template: each "
            "override has a template or an AMI of its own, and Leeway cannot tell whose a further "
            "type needs."
        )
    smallest = Resources(
        {name: min(one.allocatable.of(name) for one in now) for name in ("cpu", "memory")}
    )
    need = smallest if pods is None else pods
    if not any(need.fits(one.allocatable) for one in now):
        need = smallest  # pods of a type that the group does not launch any more
    weights = _weights(group, now, known.values())
    limit = DEAREST * min(_cheapest(one, group, weights) for one in now)
    fitting = [
        one
        for one in known.values()
        if one.name not in group.types
        and (not weights or one.name in weights)
        and _is_like(one, first, now)
        and need.fits(one.allocatable)
        and _cheapest(one, group, weights) <= min(limit, _DEAR)
    ]
    fitting.sort(key=lambda one: (_cheapest(one, group, weights), one.name))
    chosen = [*now, *fitting[: max(0, MOST_TYPES - len(now))]]
    return Advice(
        group,
        _policy(group, chosen, weights),
        need,
        _choice(now, group, weights),
        _choice(chosen, group, weights),
    )


def _is_like(one: InstanceType, first: InstanceType, now: Sequence[InstanceType]) -> bool:
    """Whether the AMI and the pods of a group run on a type as on its types: the architecture and
    the accelerators are those of the first one that runs the group's own template, it is burstable
    or bare metal only if one of them is, and it is not much larger."""
    equal = all(one.labels.get(key) == first.labels.get(key) for key in (ARCH, *_ACCELERATED_BY))
    accelerators = all(one.capacity.of(a) == first.capacity.of(a) for a in ACCELERATORS)
    largest = max(each.capacity.of("cpu") for each in now)
    kinds = {"", *(_kind(each.name) for each in now)}
    small = one.capacity.of("cpu") <= LARGER * largest
    return equal and accelerators and _kind(one.name) in kinds and small


def _kind(name: str) -> str:
    family, _, size = name.partition(".")
    return "burstable" if family.startswith("t") else "metal" if size.startswith("metal") else ""


def _weights(
    group: ScalingGroup, now: Sequence[InstanceType], types: Iterable[InstanceType]
) -> Mapping[str, int]:
    """Return the weight of each type: those of the group, and for others as many units as they hold
    of what the smallest type holds for one unit. Others that hold less than a unit have none, as a
    weight is at least 1. Empty for a group that counts instances."""
    weighted = [one for one in now if one.name in group.weights]
    if not weighted:
        return {}
    by = min(weighted, key=lambda one: group.weights[one.name])
    weight = group.weights[by.name]
    found = {
        one.name: min(
            999,
            *(one.allocatable.of(n) * weight // by.allocatable.of(n) for n in ("cpu", "memory")),
        )
        for one in types
    }
    units = {name: amount for name, amount in found.items() if amount}
    return {**{one.name: 1 for one in now}, **units, **group.weights}


def _prices(
    one: InstanceType, group: ScalingGroup, weights: Mapping[str, int], market: str
) -> list[float]:
    unit = weights.get(one.name, 1)
    return [
        each.price / unit
        for each in one.offerings
        if each.capacity_type == market and each.price is not None and each.zone in group.zones
    ]


def _cheapest(one: InstanceType, group: ScalingGroup, weights: Mapping[str, int]) -> float:
    return min(_prices(one, group, weights, SPOT), default=float("inf"))


def _choice(
    types: Sequence[InstanceType], group: ScalingGroup, weights: Mapping[str, int]
) -> Choice:
    spot = [price for one in types for price in _prices(one, group, weights, SPOT)]
    on_demand = [price for one in types for price in _prices(one, group, weights, ON_DEMAND)]
    return Choice(
        tuple(one.name for one in types),
        len(spot),
        (min(spot), max(spot)) if spot else None,
        (min(on_demand), max(on_demand)) if on_demand else None,
    )


def _policy(
    group: ScalingGroup, types: Sequence[InstanceType], weights: Mapping[str, int]
) -> dict[str, Any]:
    """Return the policy. What the group has stays: its template, also that of a type, and its
    share of on-demand instances; SpotInstancePools belongs to another strategy."""
    before, overrides = group.overrides, []
    for one in types:
        override = before.get(one.name, {"InstanceType": one.name})
        if weights:
            override["WeightedCapacity"] = str(weights[one.name])
        overrides.append(override)
    distribution = group.distribution
    if not group.described.get("MixedInstancesPolicy"):
        share = 0 if group.spot_in_template else 100
        distribution = {
            "OnDemandBaseCapacity": 0,
            "OnDemandPercentageAboveBaseCapacity": share,
        }
    distribution.pop("SpotInstancePools", None)
    return {
        "LaunchTemplate": {
            _TEMPLATE: dict(group.specification),
            "Overrides": overrides,
        },
        "InstancesDistribution": {**distribution, "SpotAllocationStrategy": STRATEGY},
    }


def notes(advice: Advice) -> list[str]:
    """Return what somebody has to know who applies the policy."""
    group, said = advice.group, []
    share = advice.policy["InstancesDistribution"].get("OnDemandPercentageAboveBaseCapacity", 100)
    if group.spot_in_template:
        said.append(
            "its launch template requests Spot instances (InstanceMarketOptions), which a "
            "MixedInstancesPolicy refuses: create a version without it"
        )
    if share == 100:
        said.append(
            "it launches on-demand instances only: lower OnDemandPercentageAboveBaseCapacity to "
            "launch Spot instances"
        )
    if lacking := [one for one in group.types if one not in advice.before.types]:
        said.append(f"the catalog lacks {', '.join(lacking)}: the policy leaves them out")
    if len(advice.after.types) == len(advice.before.types):
        said.append("no further type fits: its pods need all of what its types have")
    return said


def as_text(advice: Advice, spot: "Mapping[str, SpotPool]") -> str:
    """Say what the policy changes; `spot` is what was counted of Spot instances."""
    before, after = advice.before, advice.after
    unit = "unit of weight" if advice.group.weights else "instance"
    types = [counted(len(one.types), "instance type") for one in (before, after)]
    pools = [counted(one.pools, "Spot capacity pool") for one in (before, after)]
    zones = counted(len(advice.group.zones), "zone")
    lines = [f"Group {advice.group.name}: {' -> '.join(types)}, {' -> '.join(pools)} in {zones}."]
    for market, was, will in (
        ("Spot", before.spot, after.spot),
        ("On-demand", before.on_demand, after.on_demand),
    ):
        if was is not None and will is not None:
            lines.append(f"{market}, USD per hour and {unit}: {_span(was)} -> {_span(will)}.")
    seen, seen_after = (counted_in(one, advice.group.zones, spot) for one in (before, after))
    if not seen_after.seen:
        return "\n".join([*lines, UNKNOWN_INTERRUPTIONS])
    new = len(after.types) - seen_after.seen
    rest = f"; {counted(new, 'type')} of the policy did not run here" if new else ""
    days = counted(COUNTED_FOR.days, "day")
    lines.append(f"Interruptions in {days}: {seen} -> {seen_after}{rest}.")
    return "\n".join(lines)


def _span(prices: tuple[float, float]) -> str:
    low, high = (f"{one:.4f}" for one in prices)
    return low if low == high else f"{low} to {high}"


def as_data(advice: Advice, spot: "Mapping[str, SpotPool]") -> dict[str, Any]:
    """Render as JSON."""
    zones = advice.group.zones
    return {
        "group": advice.group.name,
        "mixedInstancesPolicy": advice.policy,
        "need": advice.need.printed(),
        "before": _choice_as_data(advice.before, zones, spot),
        "after": _choice_as_data(advice.after, zones, spot),
        "notes": notes(advice),
    }


def _choice_as_data(
    choice: Choice, zones: Collection[str], spot: "Mapping[str, SpotPool]"
) -> dict[str, Any]:
    found: dict[str, Any] = {"types": list(choice.types), "spotPools": choice.pools}
    for name, prices in (("spot", choice.spot), ("onDemand", choice.on_demand)):
        low, high = prices or (None, None)
        found |= {f"{name}LowestPerHour": low, f"{name}HighestPerHour": high}
    seen = counted_in(choice, zones, spot)
    found["counted"] = {
        "days": COUNTED_FOR.days,
        "interruptions": seen.interruptions,
        "instanceHours": seen.hours,
        "types": seen.seen,
    }
    return found


def for_aws(advice: Advice) -> str:
    """Return the policy as UpdateAutoScalingGroup takes it: a file for AWS, which has no version of
    Leeway's documents."""
    return json.dumps(advice.policy, indent=2)


def for_cloudformation(advice: Advice) -> str:
    """Return the property of a group's resource. CloudFormation takes no $Latest and no $Default as
    the version, so it names the number that the group has now."""
    group, template = advice.group, advice.policy["LaunchTemplate"]
    written = {
        _TEMPLATE: {**template[_TEMPLATE], "Version": group.version},
        "Overrides": [
            {**one, _TEMPLATE: {**one[_TEMPLATE], "Version": group.versions[one["InstanceType"]]}}
            if _TEMPLATE in one
            else one
            for one in template["Overrides"]
        ],
    }
    found = {"MixedInstancesPolicy": {**advice.policy, "LaunchTemplate": written}}
    return yaml.safe_dump(found, sort_keys=False)
