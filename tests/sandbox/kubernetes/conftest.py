"""One cluster per test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.kubernetes.live import Live, running_cluster


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return an empty cluster that lives as long as the module's tests run."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
