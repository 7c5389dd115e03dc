"""Offerings that could not be had lately, for those who need not know the whole catalog."""

from dataclasses import dataclass

ANY = "*"
"""Stands for every type or every zone in an unavailable offering."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """An offering that could not be had lately; `ANY` for the type or the zone is all of them."""

    instance_type: str
    zone: str
    capacity_type: str
