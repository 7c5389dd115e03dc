"""Real instance types for all tests of selection, read once."""

from collections.abc import Mapping
from typing import Any

import pytest
from leeway.selection.offers.catalog import Catalog
from leeway_cli.selection.sources import sandbox_catalog
from leeway_sandbox.aws.regions import Region, read_region


@pytest.fixture(scope="session")
def region() -> Region:
    """What us-east-1 offers, as DescribeInstanceTypes describes it."""
    return read_region("us-east-1")


@pytest.fixture(scope="session")
def described(region: Region) -> Mapping[str, Mapping[str, Any]]:
    """Its types' documents by name."""
    documents = {document["InstanceType"]: document for document in region.types}
    assert documents, "what holds for every type would hold for none"
    return documents


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The same as a catalog."""
    return sandbox_catalog("us-east-1")
