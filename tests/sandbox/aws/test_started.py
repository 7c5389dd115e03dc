"""The process of the tests' AWS ends with its context."""

import pytest
from leeway_sandbox.children import Child

from tests.sandbox.aws.started import started


def test_the_process_ends_when_a_test_fails() -> None:
    children: list[Child] = []

    def fail() -> None:
        with started() as (child, _):
            children.append(child)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert children[0].process.poll() is not None
