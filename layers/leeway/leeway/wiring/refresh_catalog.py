"""Refreshes the catalog of the function's own region."""

from functools import cache, partial

from leeway.aws.market import Ec2Market, pricing_region
from leeway.catalog.refresh import CatalogRefresh, CatalogTelemetry
from leeway.catalog.refresh import refresh_catalog as refresh
from leeway.wiring.clients import (
    background_client,
    clock,
    logger,
    metrics,
    prepare,
    session,
    table,
)


@cache
def _market(region: str) -> Ec2Market:
    pricing = partial(background_client, "pricing", pricing_region(region))
    return Ec2Market(partial(background_client, "ec2"), pricing)


def refresh_catalog() -> CatalogRefresh:
    """Read the catalog of the region that this function runs in, and store it.

    Raises:
        CatalogUnavailable, CloudUnavailable: as `leeway.catalog.refresh.refresh_catalog`.
    """
    region = str(session().region_name)
    return refresh(
        _market(region),
        table(),
        CatalogTelemetry(logger(), metrics()).catalog_refreshed,
        clock(),
        region,
    )


prepare(["dynamodb"], [])
