"""A living cluster in which headroom is kept."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.policy.rules import ClusterPolicy

from tests.headroom.reconciling import Desk
from tests.sandbox.kubernetes.live import Live


@pytest.fixture
def desk(live: Live, kubeconfig: Path) -> Iterator[Desk]:
    """Headroom's keeper; what a test asked for is gone when it ends."""
    live.fail_with()
    connection = kubeconfig_connection(kubeconfig)
    desk = Desk(live, HttpWorkloads(connection))
    yield desk
    live.fail_with()
    desk.apply()
    desk.unreadable, desk.policy, desk.takes = frozenset(), ClusterPolicy(), timedelta(0)
    desk.tick()
    connection.close()
