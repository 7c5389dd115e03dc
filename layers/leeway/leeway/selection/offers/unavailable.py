"""Offerings that are temporarily unavailable."""

from dataclasses import dataclass

ANY = "*"
"""Every instance type, or every zone, in an unavailable offering."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """An offering without capacity at present. `ANY` as the type or the zone means all of them."""

    instance_type: str
    zone: str
    capacity_type: str
