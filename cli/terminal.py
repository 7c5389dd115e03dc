"""A console for what others have written: their text is shown, and never obeyed."""

from collections.abc import Iterable
from typing import Any

from leeway.printable import printable_lines
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


class Terminal(Console):
    """Shows control characters of what is printed as `\\u001b`. Colours, and what moves the cursor
    of a progress bar, come from styles and control segments, and stay."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render an object as segments whose text is fit to be shown."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


def terminal(**settings: Any) -> Console:
    """Open a console that highlights nothing."""
    return Terminal(highlight=False, **settings)
