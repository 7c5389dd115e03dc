"""A running cluster whose headroom tests reconcile."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.policy.rules import ClusterPolicy
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.headroom.headroom_run import HeadroomRun
from tests.sandbox.kubernetes.live import Live


@pytest.fixture
def headroom(live: Live, kubeconfig: Path) -> Iterator[HeadroomRun]:
    """The headroom of a cluster; its objects are deleted after each test."""
    live.fail_with()
    connection = kubeconfig_connection(kubeconfig)
    headroom = HeadroomRun(live, HttpWorkloads(connection))
    yield headroom
    live.fail_with()
    headroom.apply()
    headroom.unreadable, headroom.policy, headroom.clock_step = (
        frozenset(),
        ClusterPolicy(),
        timedelta(0),
    )
    headroom.run()
    connection.close()
