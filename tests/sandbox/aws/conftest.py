"""A running `python -m leeway_sandbox.aws`, and an HTTP server that records its requests."""

from collections.abc import Iterator

import pytest

from tests.sandbox.aws.started import Recorder, Sandbox, started


@pytest.fixture(scope="module")
def aws() -> Iterator[Sandbox]:
    """One process for each module: the groups, subnets and faults of one would disturb others."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        yield sandbox
        sandbox.close()


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """A new recorder for each module."""
    recorder = Recorder()
    yield recorder
    recorder.close()
