"""Private addresses that no two instances share.

moto draws them at random: of five thousand instances two have the same one more often than not, and
with it the same name of a node.
"""

from collections.abc import Iterator
from itertools import count

import moto.ec2.models.instances

SIDE = 254
"""Values of each of the last three bytes: 1 to 254."""

STRIDE = 10_000_019
"""A prime: steps of it come by every address once before the first is had again."""


def addresses() -> Iterator[str]:
    """Name all addresses in 10.0.0.0/8, neighbours far apart, over and over."""
    for number in count(1):
        place = number * STRIDE % SIDE**3
        first, rest = divmod(place, SIDE**2)
        second, third = divmod(rest, SIDE)
        yield f"10.{first + 1}.{second + 1}.{third + 1}"


def install() -> None:
    """Give these to instances that are launched in no subnet."""
    drawn = addresses()
    vars(moto.ec2.models.instances)["random_private_ip"] = lambda: next(drawn)
