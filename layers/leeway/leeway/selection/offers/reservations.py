"""Capacity reservations as offerings: capacity that is paid for whether a node uses it or not."""

from collections.abc import Mapping
from dataclasses import dataclass

from leeway.selection.labels import RESERVATION_ID, RESERVATION_INTERRUPTIBLE, RESERVATION_TYPE

BLOCK = "capacity-block"
INTERRUPTIBLE = "interruptible-capacity-reservation"
"""EC2's names of the market of a Capacity Block, and of a reservation that its owner may take
back; the lifecycle of an instance has them too."""

CHEAPER = 100_000
"""The price of a reserved offering is the on-demand price divided by this: it is used before any
other one, and among several the one that is worth the least. Karpenter divides by ten million,
which is below the precision of the solver."""


@dataclass(frozen=True, slots=True)
class ReservedCapacity:
    """The capacity reservation that a node runs in. `block`: it is a Capacity Block, and EC2 ends
    its instances before its end. `interruptible`: its owner may take the capacity back."""

    id: str
    block: bool = False
    interruptible: bool = False

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its nodes, besides the capacity type."""
        return {
            RESERVATION_ID: self.id,
            RESERVATION_TYPE: BLOCK if self.block else "default",
            RESERVATION_INTERRUPTIBLE: str(self.interruptible).lower(),
        }


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation that nodes of a pool may be launched into: `free` more of one type, in
    one zone."""

    capacity: ReservedCapacity
    instance_type: str
    zone: str
    free: int

    @property
    def id(self) -> str:
        """Its id."""
        return self.capacity.id
