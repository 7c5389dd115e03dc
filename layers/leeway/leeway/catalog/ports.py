"""catalog.ports"""

from typing import Protocol

from leeway.selection.offers.machines import Machine


class Surveys(Protocol):
    """The table's surveys, one for each region, as `selection.offers.compressed` packs them."""

    def packed(self, region: str) -> bytes | None:
        """Read a region's survey; None where there has been none."""
        ...

    def write(self, region: str, packed: bytes) -> None:
        """Write a region's survey in place of what there was.

        Raises:
            CloudRefused: it is larger than an item of the table may be.
        """
        ...


class Market(Protocol):
    """What EC2 says of a region's instance types, where it has them, and what Spot costs."""

    def types(self) -> tuple[Machine, ...]:
        """Read every instance type."""
        ...

    def offered(self) -> dict[str, frozenset[str]]:
        """Read which types each zone has, by name."""
        ...

    def zone_ids(self) -> dict[str, str]:
        """Read what each zone is called in every account, by what this one calls it."""
        ...

    def spot(self) -> dict[str, dict[str, float]]:
        """Read what Spot costs now on Linux, in USD per hour, by zone and type."""
        ...


class PriceList(Protocol):
    """What instances cost on demand."""

    def on_demand(self, region: str) -> dict[str, float]:
        """Read what types cost on Linux with shared tenancy, in USD per hour."""
        ...
