"""The page of user data lists every code of a warning, and no other."""

import re
from pathlib import Path

from leeway.bootstrap import kubelet
from leeway.reasons import ReasonCode


def test_the_page_lists_the_codes_of_all_warnings() -> None:
    codes = [one.name for one in vars(kubelet).values() if isinstance(one, ReasonCode)]
    page = (Path(__file__).parents[2] / "docs" / "bootstrap.md").read_text()
    assert re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE) == sorted(codes)
