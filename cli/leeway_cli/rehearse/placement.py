"""Where the pods of lost nodes get a place, as selection plans it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class Place:
    """The node for a pod. `ready_in` are the seconds from the notice until it is Ready, 0 for a
    node of the cluster."""

    node: str
    ready_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A node that is launched: for a `pool`, or in place of the node `instead_of`. `price` is in
    USD per hour, None if it is not known."""

    pool: str
    instead_of: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    capacity_type: str
    price: float | None
    pods: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placements:
    """The places of the pods of lost nodes by `namespace/name`, the nodes that are launched, and
    why a pod has no place."""

    places: Mapping[str, Place] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    without: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def on_existing(self) -> int:
        """How many pods get a place on a node that the cluster has."""
        return sum(not place.ready_in for place in self.places.values())

    @property
    def price(self) -> float | None:
        """The price of the launched nodes in USD per hour; None if one of them is not known."""
        prices = [launch.price for launch in self.launches]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None
