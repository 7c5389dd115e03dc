"""A started `python -m sandbox.aws`, and an HTTP API that writes down what it got."""

from collections.abc import Iterator

import pytest

from tests.sandbox.aws.started import Recorder, Sandbox, started


@pytest.fixture(scope="module")
def aws() -> Iterator[Sandbox]:
    """One process a module."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        yield sandbox
        sandbox.close()


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """A fresh recorder a module."""
    recorder = Recorder()
    yield recorder
    recorder.close()
