"""Unique private addresses for instances.

moto chooses them at random. With five thousand instances, two of them probably have the same
address, and so the same node name.
"""

from collections.abc import Iterator
from itertools import count

import moto.ec2.models.instances

SIDE = 254
"""Values of each of the last three bytes: 1 to 254."""

STRIDE = 10_000_019
"""A prime, so that steps of this size visit every address once before one repeats."""


def addresses() -> Iterator[str]:
    """Yield the addresses of 10.0.0.0/8 without end, with consecutive ones far apart."""
    for number in count(1):
        place = number * STRIDE % SIDE**3
        first, rest = divmod(place, SIDE**2)
        second, third = divmod(rest, SIDE)
        yield f"10.{first + 1}.{second + 1}.{third + 1}"


def install() -> None:
    """Let moto give these addresses to instances without a subnet."""
    drawn = addresses()
    vars(moto.ec2.models.instances)["random_private_ip"] = lambda: next(drawn)
