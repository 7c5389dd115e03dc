"""What holds for all tests."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from leeway_sandbox.nursery import VARIABLE, nursery
from leeway_sandbox.startup import bypass_proxies

from tests.sandbox.kubernetes.live import Live, running_cluster
from tests.tally import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

LONGEST = (
    "drills/test_drills.py",
    "adopt/test_adopt_on_the_sandbox.py",
    "conformance/test_adoption.py",
    "cli/test_demo.py",
    "doctor/test_doctor_on_the_sandbox.py",
    "cli/test_on_the_sandbox.py",
    "kubernetes/test_misbehaviour.py",
    "conformance/test_drains.py",
    "launch/test_kills.py",
    "rehearse/test_like_the_sandbox.py",
    "end_to_end/test_pools_replace.py",
    "end_to_end/test_acceptance.py",
    "end_to_end/test_acceptance_of_interruptions.py",
    "end_to_end/test_giving_back.py",
    "end_to_end/test_provisioning.py",
    "end_to_end/test_static_and_reserved.py",
    "end_to_end/test_retirements.py",
    "end_to_end/test_reconciliation.py",
    "end_to_end/test_launch_faults.py",
    "end_to_end/test_hazards.py",
    "end_to_end/test_surge.py",
    "end_to_end/test_faults.py",
    "end_to_end/test_rolls.py",
)
"""Modules of a minute and more. They run first, and the longest of them before the others: a long
one that starts last runs alone."""


def pytest_configure(config: pytest.Config) -> None:
    """Run one nursery for the servers of all tests, those of the workers of pytest-xdist too."""
    if VARIABLE not in os.environ:
        running = ExitStack()
        running.enter_context(nursery())
        config.add_cleanup(running.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest modules first; `--no-loadscope-reorder` keeps this order."""
    order = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    assert all(path.exists() for path in order), "LONGEST names a file that is not there"
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among modules and tests: they all stay until the end of the process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# A shell without job control lets background commands ignore SIGINT, and whatever they start:
# commands that tests interrupt would run on.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers that tests start are on this machine, whatever proxy the way to a package index takes.
bypass_proxies()

# Each session of boto3 would parse its models of the services again, for a quarter of a second.
botocore.session.create_loader = cache(botocore.session.create_loader)

# How long an example takes says how busy the machine is, and nothing about what is tested. A change
# meets the same examples each time, so that no new one fails in somebody else's change; `make hunt`
# draws new ones, also of the constants in Leeway's modules. Those change with each change, and with
# the modules that a process has loaded.
settings.register_profile("hunt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("hunt"), derandomize=True)
settings.load_profile("gate")
_all_constants = providers._get_local_constants
providers._get_local_constants = lambda: (
    providers._local_constants
    if settings.get_current_profile_name() == "gate"
    else _all_constants()
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """An empty cluster that lives as long as the module's tests run."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kubeconfig(live: Live) -> Path:
    """The kubeconfig of the module's cluster."""
    return live.kubeconfig()
