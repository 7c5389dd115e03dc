"""NodeOverlay of `karpenter.sh/v1alpha1`: what administrators say about the price of instance
types, and the resources that their nodes will have; and which overlays conflict."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from leeway.manifests.base import (
    Amount,
    LabelKey,
    Manifest,
    Note,
    Strict,
    Wrong,
    check_pool_label,
)
from leeway.reasons import Reason, ReasonCode
from leeway.selection.labels import NODEPOOL
from leeway.selection.offers.catalog import OF_MARKETS, OF_TYPES, Catalog, bits
from leeway.selection.offers.overlays import HUGE_PAGES, Overlay, in_order
from leeway.selection.pods import NodePool as Pool
from leeway.selection.requirements import Operator, Requirement, Requirements
from leeway.selection.resources import BadQuantity, Resources, parse


def _overlay_label(key: str) -> str:
    return key if key == NODEPOOL else check_pool_label(key)


def _promisable(resource: str) -> str:
    """Accept the resources that a pod may request, and that Leeway does not know from EC2. Source:
    Kubernetes, `IsExtendedResourceName` and "Manage HugePages"."""
    if resource.startswith(HUGE_PAGES):
        try:
            if parse(resource.removeprefix(HUGE_PAGES)) > 0:
                return resource
        except BadQuantity:
            pass
        raise ValueError(f"expected a size of huge pages such as hugepages-2Mi, got {resource}")
    domain, slash, _ = resource.partition("/")
    native = f".{domain}".endswith(".kubernetes.io") or domain.startswith("requests.")
    if not slash or native:
        raise ValueError(
            "expected an extended resource such as smarter-devices/fuse, or huge pages such as "
            f"hugepages-2Mi: an overlay can't promise {resource}"
        )
    return resource


class OverlayRequirement(Strict):
    """A requirement on a label of the pool, of the instance type or of the offering."""

    key: Annotated[LabelKey, AfterValidator(_overlay_label)]
    """Label key. `karpenter.sh/nodepool` selects pools."""
    operator: Operator
    """How the label's value is compared with `values`."""
    values: tuple[str, ...] = ()
    """Values: at least one for `In` and `NotIn`, one integer from 0 for `Gt`, `Lt`, `Gte` and
    `Lte`, none for `Exists` and `DoesNotExist`."""

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        Requirement.of(self.key, self.operator, self.values)
        return self


# Source: the CRD of NodeOverlay.
_PRICE = r"^[0-9]+(\.[0-9]+)?$"
_ADJUSTMENT = r"^([+-]([0-9]*\.?[0-9]+)|\+[0-9]*\.?[0-9]+%|-[0-9]{1,2}(\.[0-9]+)?%|-100%)$"


class NodeOverlaySpec(Strict):
    """What the overlay says, and to which instance types and offerings it applies."""

    requirements: Annotated[tuple[OverlayRequirement, ...], Field(max_length=100)] = ()
    """Requirements on the labels of pools (their own labels too), instance types and offerings.
    Without any, the overlay applies to all."""
    price: Annotated[str, StringConstraints(pattern=_PRICE, max_length=20)] | None = None
    """USD per hour, such as `"0.25"`, in place of the price that AWS publishes. Not together with
    `priceAdjustment`."""
    price_adjustment: (
        Annotated[str, StringConstraints(pattern=_ADJUSTMENT, max_length=20)] | None
    ) = None
    """Change of the price that AWS publishes: by USD per hour (`"+0.05"`), or by a percentage
    (`"-15%"`)."""
    capacity: dict[Annotated[LabelKey, AfterValidator(_promisable)], Amount] = Field(
        default_factory=dict
    )
    """Extended resources (`smarter-devices/fuse`) and huge pages (`hugepages-2Mi`) that the nodes
    will have."""
    weight: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Weight of the overlay: of overlays that set the same value, the one with the largest weight
    counts. Two of the same weight conflict."""

    @model_validator(mode="after")
    def _one_price(self) -> Self:
        if self.price is not None and self.price_adjustment is not None:
            raise ValueError("expected either price or priceAdjustment")
        return self

    @model_validator(mode="after")
    def _whole_amounts(self) -> Self:
        for name, text in self.capacity.items():
            unit = parse(name.removeprefix(HUGE_PAGES)) if name.startswith(HUGE_PAGES) else 1
            if (parse(text) / Fraction(unit)).denominator != 1:
                what = f"a multiple of {unit} bytes" if unit != 1 else "a whole number"
                raise Wrong(("capacity", name), f"expected {what}, got {text}")
        return self


class NodeOverlay(Manifest):
    """What administrators say about the price of instance types, and the resources that their nodes
    will have. Leeway plans with it."""

    api_version: Literal["karpenter.sh/v1alpha1"]
    kind: Literal["NodeOverlay"]
    spec: NodeOverlaySpec
    """What the overlay says, and to what it applies."""

    summary_columns: ClassVar[tuple[str, ...]] = ("WEIGHT", "PRICE", "CAPACITY", "REQUIREMENTS")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec = self.spec
        asked = Requirements(_requirement(r) for r in spec.requirements)
        promised = ", ".join(f"{name}: {text}" for name, text in spec.capacity.items())
        return (
            str(spec.weight or 0),
            spec.price or spec.price_adjustment or "",
            promised,
            str(asked),
        )

    def notes(self) -> tuple[Note, ...]:
        """Warn also about labels that Leeway does not support, amounts of 0, and an overlay that
        says nothing."""
        spec = self.spec
        nothing = (
            Note(("spec", "capacity", name), "ignored: an amount of 0 promises nothing")
            for name, text in spec.capacity.items()
            if not parse(text)
        )
        says = spec.price or spec.price_adjustment or spec.capacity
        empty = () if says else (Note(("spec",), "the overlay sets no price and no capacity"),)
        return (*super().notes(), *nothing, *empty)


def overlays_of_pool(
    overlays: Iterable[NodeOverlay], labels: Mapping[str, str]
) -> tuple[Overlay, ...]:
    """Return the overlays that apply to nodes of a pool with these labels, the first that counts
    first. A label that neither the pool nor an instance type has matches only `NotIn` and
    `DoesNotExist`, as in Karpenter."""
    found = []
    for one in overlays:
        asked = Requirements(_requirement(r) for r in one.spec.requirements)
        own = {key for key in asked if key not in OF_TYPES and key not in OF_MARKETS}
        if all(asked[key].admits(labels.get(key)) for key in own):
            of_offers = Requirements(r for key, r in asked.items() if key not in own)
            found.append(_overlay(one, of_offers))
    return in_order(found)


def _requirement(written: OverlayRequirement) -> Requirement:
    return Requirement.of(written.key, written.operator, written.values)


def _overlay(manifest: NodeOverlay, requirements: Requirements) -> Overlay:
    spec = manifest.spec
    return Overlay(
        name=manifest.metadata.name,
        requirements=requirements,
        weight=spec.weight or 0,
        price=spec.price or spec.price_adjustment or "",
        capacity=Resources.parsed(spec.capacity),
    )


OVERLAY_CONFLICT = ReasonCode(
    "OverlayConflict",
    "NodeOverlay {name} is not applied: NodeOverlay {other} has the same weight ({weight}) and "
    "also sets {what} of {type} in pool {pool}. Give one of them another weight, or narrow its "
    "requirements.",
    "a-nodeoverlay-is-not-applied",
)


@dataclass(frozen=True, slots=True)
class _Reach:
    """The types that an overlay applies to as nodes of a pool: of each market, and in all."""

    pool: str
    overlay: Overlay
    by_market: tuple[int, ...]
    types: int


def conflicts_of(pools: Iterable[Pool], catalog: Catalog) -> Mapping[str, Reason]:
    """Return the overlays of pools that conflict with another one, by name, and why. Two conflict
    if they have one weight and set the price of one offering, or one resource of one type, also to
    equal values. The one whose name is later in the alphabet is not among them.

    Source: Karpenter's controller `nodeoverlay` and its suite.
    """
    reaching: dict[str, list[_Reach]] = defaultdict(list)
    for pool in pools:
        table = catalog.for_node_class(replace(pool.node_class, overlays=()))
        for overlay in pool.node_class.overlays:
            by_market = tuple(table.reach_by_market(overlay))
            reach = _Reach(pool.name, overlay, by_market, table.reach(overlay))
            reaching[overlay.name].append(reach)
    kept: list[_Reach] = []
    conflicts: dict[str, Reason] = {}
    for name in sorted(reaching, reverse=True):
        pairs = ((one, two) for one in reaching[name] for two in kept if one.pool == two.pool)
        found = next(filter(None, (_conflict(one, two, catalog) for one, two in pairs)), None)
        if found is None:
            kept += reaching[name]
        else:
            conflicts[name] = found
    return conflicts


def _conflict(one: _Reach, two: _Reach, catalog: Catalog) -> Reason | None:
    """Return why an overlay conflicts with another one of the same pool; None if it does not."""
    first, second = one.overlay, two.overlay
    if first.weight != second.weight:
        return None
    shared = sorted(first.capacity.keys() & second.capacity.keys())
    types, what = (one.types & two.types if shared else 0), ", ".join(shared)
    if first.price and second.price:
        markets = zip(one.by_market, two.by_market, strict=True)
        if priced := next((a & b for a, b in markets if a & b), 0):
            types, what = priced, "the price"
    if not types:
        return None
    return OVERLAY_CONFLICT(
        name=first.name,
        other=second.name,
        weight=first.weight,
        what=what,
        type=catalog.names[next(bits(types))],
        pool=one.pool,
    )
