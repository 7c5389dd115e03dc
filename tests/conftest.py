"""What holds for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sandbox.proxies import bypass_proxies
from tests.sandbox.kubernetes.live import Live, running_cluster
from tests.tally import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

# Servers that tests start are on this machine, whatever proxy the way to a package index takes.
bypass_proxies()

# How long an example takes says how busy the machine is, and nothing about what is tested.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """An empty cluster that lives as long as the module's tests run."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kubeconfig(live: Live) -> Path:
    """The kubeconfig of the module's cluster."""
    return live.kubeconfig()
