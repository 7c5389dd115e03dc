"""The sandbox's catalog, read once."""

import pytest
from leeway.selection.offers.catalog import Catalog

from cli.selection.catalogs import sandbox_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """Real instance types and zones of us-east-1."""
    return sandbox_catalog("us-east-1")
