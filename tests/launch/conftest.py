"""The sandbox's catalog, read once, and the dependencies of launches."""

import pytest
from leeway.selection.offers.catalog import Catalog
from leeway_cli.selection.sources import sandbox_catalog

from tests.launch.launching import World


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """Real instance types and zones of us-east-1."""
    return sandbox_catalog("us-east-1")


@pytest.fixture
def world() -> World:
    """The dependencies of launches, in memory."""
    return World()
