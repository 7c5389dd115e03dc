"""A living cluster for the adapter."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from leeway.cluster.kubeconfig import kubeconfig_cluster
from leeway.cluster.lightkube_cluster import LightkubeCluster

from tests.sandbox.kubernetes.live import Live, running_cluster


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One cluster a module."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kubeconfig(live: Live) -> Path:
    """Its kubeconfig."""
    return live.kubeconfig()


@pytest.fixture
def cluster(live: Live, kubeconfig: Path) -> Iterator[LightkubeCluster]:
    """The adapter under test; the API has no faults when a test begins."""
    live.fail_with()
    adapter = kubeconfig_cluster(kubeconfig)
    yield adapter
    live.fail_with()
    adapter.close()
