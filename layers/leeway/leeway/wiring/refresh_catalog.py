"""Builds `refresh_catalog`."""

from functools import cache, partial

from leeway.aws.market import Ec2Market, PricingPriceList, pricing_region
from leeway.catalog.refresh import CatalogReader, CatalogTelemetry, RefreshCatalog
from leeway.wiring.clients import (
    background_client,
    clock,
    logger,
    metrics,
    prepare,
    session,
    table,
)


def region() -> str:
    """Return the region that this function runs in."""
    return str(session().region_name)


@cache
def refresh_catalog() -> RefreshCatalog:
    """Build the use case."""
    return RefreshCatalog(
        reader=CatalogReader(
            market=Ec2Market(partial(background_client, "ec2")),
            price_list=PricingPriceList(
                partial(background_client, "pricing", pricing_region(region()))
            ),
        ),
        table=table(),
        report=CatalogTelemetry(logger(), metrics()).catalog_refreshed,
        clock=clock(),
    )


prepare(["dynamodb"], [])
