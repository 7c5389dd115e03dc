"""Overlays: what administrators say about the price and the capacity of instance types, beside what
EC2 says.

Source: Karpenter's design "Node Overlay" and its controller `nodeoverlay`: for each offering the
price of the overlay with the largest weight counts, and each resource is that of the largest weight
that names it. Of equal weights, the name that is later in the alphabet comes first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources

HUGE_PAGES = "hugepages-"
"""The prefix of resources that the kubelet takes from the memory of a node."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay as it applies to the nodes of one pool.

    `requirements` are on labels of types and offerings. `price` is what a node costs in USD per
    hour ("0.5"), or a change of what it costs ("+0.1", "-10%"); empty for none. `capacity` are
    resources that the nodes will have.
    """

    name: str
    requirements: Requirements = field(default_factory=Requirements)
    weight: int = 0
    price: str = ""
    capacity: Resources = field(default_factory=Resources)

    def priced(self, price: float) -> float:
        """Return the price in USD per hour in place of this one, at least 0. NaN, an unknown price,
        stays unknown unless the overlay says what a node costs."""
        if not self.price.startswith(("+", "-")):
            return float(self.price)
        change = float(self.price.removesuffix("%"))
        changed = price * (1 + change / 100) if self.price.endswith("%") else price + change
        return 0.0 if changed < 0 else changed


def in_order(overlays: Iterable[Overlay]) -> tuple[Overlay, ...]:
    """Order overlays: the first one that sets a value counts."""
    by_name = sorted(overlays, key=lambda one: one.name, reverse=True)
    return tuple(sorted(by_name, key=lambda one: -one.weight))


def with_promised(allocatable: Resources, promised: Mapping[str, int]) -> Resources:
    """Return the allocatable resources of a node that has these besides. Huge pages are taken from
    its memory. Source: Kubernetes documentation, "Manage HugePages"."""
    pages = sum(amount for name, amount in promised.items() if name.startswith(HUGE_PAGES))
    memory = max(0, allocatable.of("memory") - pages)
    return Resources({**allocatable, "memory": memory, **promised})


def is_published_later(resource: str) -> bool:
    """Whether a node may register without a resource and offer it later: a device plugin makes
    extended resources allocatable, and the kubelet finds huge pages when it starts again."""
    return "/" in resource or resource.startswith(HUGE_PAGES)
