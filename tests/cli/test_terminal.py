"""What a terminal shows of a view that changes."""

import re
from io import StringIO

import pytest
from leeway_cli.terminal import show_changes, terminal
from rich.console import RenderableType
from rich.text import Text


def shown(view: RenderableType, height: int = 10) -> list[str]:
    """Return the lines that a terminal shows of a view in the end."""
    file = StringIO()
    console = terminal(file=file, force_terminal=True, width=40, height=height, color_system=None)
    show_changes(iter([view]), console)
    parts = re.split(r"\x1b\[[\d?;]*[A-Za-z]|\r", file.getvalue())
    return [part for part in parts if part.strip()][-1].splitlines()


@pytest.mark.parametrize("height", [10, 24])
def test_a_view_that_is_too_long_loses_its_middle(height: int) -> None:
    lines = [f"line {number}" for number in range(1000)]
    found = shown(Text("\n".join(lines)), height)
    assert len(found) < height
    assert found[0] == "line 0"
    assert found[-5:] == lines[-5:]
    left_out = 1000 - (len(found) - 1)
    assert found[-6] == f"… {left_out} lines more"


def test_a_view_that_fits_is_whole() -> None:
    assert shown(Text("one\ntwo")) == ["one", "two"]
