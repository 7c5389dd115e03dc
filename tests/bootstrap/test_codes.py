"""Every warning's code is in docs/bootstrap.md, and every code there is one of a warning."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_lists_the_codes_of_all_warnings() -> None:
    sources = (ROOT / "layers/leeway/leeway/bootstrap").glob("*.py")
    code = re.compile(r'(?:BootWarning|_Need)\(\s*"([A-Z]\w+)"')
    raised = {found for source in sources for found in code.findall(source.read_text())}
    page = (ROOT / "docs/bootstrap.md").read_text()
    rows = re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE)
    assert len(raised) > 15
    assert rows == sorted(raised)
