"""The process of the tests' AWS ends with its context."""

import subprocess

import pytest

from tests.sandbox.aws.started import started


def test_the_process_ends_when_a_test_fails() -> None:
    processes: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with started() as (process, _):
            processes.append(process)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert processes[0].poll() is not None
