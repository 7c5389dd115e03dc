"""A console for untrusted text: control characters are shown and have no effect."""

from collections.abc import Iterable
from typing import Any

from leeway.printable import printable_lines
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


class Terminal(Console):
    """Shows control characters of text as `\\u001b`. Colours and cursor movements come from styles
    and control segments and are not changed."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render an object as segments of printable text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


def terminal(**settings: Any) -> Console:
    """Return a console without highlighting."""
    return Terminal(highlight=False, **settings)
