"""A living cluster for the adapter."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from leeway.kubernetes.http_cluster import HttpCluster
from leeway_cli.kubeconfig import kubeconfig_cluster

from tests.sandbox.kubernetes.live import Live


@pytest.fixture
def cluster(live: Live, kubeconfig: Path) -> Iterator[HttpCluster]:
    """The adapter under test; the API has no faults when a test begins."""
    live.fail_with()
    adapter = kubeconfig_cluster(kubeconfig)
    yield adapter
    live.fail_with()
    adapter.close()
