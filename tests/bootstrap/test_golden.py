"""User data is byte by byte what `golden/` has. To write it again:
`.venv/bin/python -m tests.bootstrap.write_golden`."""

import pytest

from tests.bootstrap.cases import CASES
from tests.bootstrap.write_golden import GOLDEN


@pytest.mark.parametrize("name", CASES)
def test_user_data_is_as_its_golden_file_has_it(name: str) -> None:
    assert CASES[name]().text.encode() == (GOLDEN / name).read_bytes()


def test_every_golden_file_has_a_case() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)
