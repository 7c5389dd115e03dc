"""What catalog refreshes call, as Protocols."""

from typing import Protocol

from leeway.selection.offers.machines import Machine


class Market(Protocol):
    """EC2's instance types, offerings and Spot prices of one region."""

    def types(self) -> tuple[Machine, ...]:
        """Read all instance types."""
        ...

    def offered(self) -> dict[str, frozenset[str]]:
        """Read the names of the types that each zone offers."""
        ...

    def zone_ids(self) -> dict[str, str]:
        """Read the zone ids, which are the same in every account, by this account's zone names."""
        ...

    def spot(self) -> dict[str, dict[str, float]]:
        """Read the current Linux Spot prices in USD per hour, by zone and type."""
        ...


class PriceList(Protocol):
    """The on-demand prices."""

    def on_demand(self, region: str) -> dict[str, float]:
        """Read the prices for Linux with shared tenancy in USD per hour, by type."""
        ...
