"""One model of a report: its headline, sections and faults, for a page and a terminal.

A page is one HTML document without dependencies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from leeway_cli.output import templates
from leeway_cli.report.chart import Figure

type Where = Literal["", "page", "terminal"]
"""Where a section is shown; empty: on both."""


@dataclass(frozen=True)
class Run:
    """A run of `leeway demo`, which its report shows so that it can be repeated: its `options`, its
    start and its duration in seconds. `pods` are those of a storm's cluster."""

    seed: int
    began: datetime
    duration: float
    options: Mapping[str, int | str] = field(default_factory=dict)
    pods: int = 0

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        given = {"scenario": self.options.get("scenario"), "seed": self.seed, **self.options}
        return " ".join(
            ["leeway demo", *(f"--{name} {value}" for name, value in given.items() if value)]
        )

    @property
    def about(self) -> str:
        """The command, its start and its duration."""
        return f"{self.command} · {self.began:%Y-%m-%d %H:%M} UTC · {self.duration:.0f} s in total"

    def as_data(self, **fields: object) -> dict[str, Any]:
        """Render the run as JSON, with the fields of its scenario."""
        return {
            "command": self.command,
            "seed": self.seed,
            **fields,
            "began": self.began.isoformat(),
            "durationSeconds": round(self.duration, 1),
        }


class Tile(NamedTuple):
    """A figure in large letters: `value`, of how many, what it is, and a note."""

    value: object
    of: object
    what: str
    note: str
    good: bool = True


@dataclass(frozen=True)
class Tiles:
    """A row of tiles, on the page."""

    tiles: Sequence[Tile]
    form = "tiles"


class Column(NamedTuple):
    """A column; `kind` is its CSS class: `n` for numbers, `w` for texts in one line."""

    title: str
    kind: str = "w"
    where: Where = ""


class Cell(NamedTuple):
    """A cell: bold, or with a CSS class (`kind`), and a small line below it on the page."""

    text: str
    small: str = ""
    kind: str = ""
    command: str = ""


type Row = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """A table under a title and `lines`. The title of a column of numbers may be a text that ends
    with `>`."""

    columns: Sequence[str | Column]
    rows: Sequence[Row]
    title: str = ""
    lines: Sequence[str] = ()
    where: Where = ""
    form = "table"

    @property
    def heads(self) -> list[Column]:
        """The columns."""
        return [one if isinstance(one, Column) else _column(one) for one in self.columns]


def _column(title: str) -> Column:
    return Column(title.removesuffix(">"), "n" if title.endswith(">") else "w")


@dataclass(frozen=True)
class Lines:
    """Sentences, on a terminal."""

    lines: Sequence[str]
    form = "lines"


type Section = Tiles | Figure | Table | Lines


@dataclass(frozen=True)
class Page:
    """A report. `lede` introduces it on the page, `about` on a terminal; `source` says where its
    values come from, and `run` how to repeat it."""

    headline: str
    lede: str
    sections: Sequence[Section]
    source: str
    run: str
    about: str = ""
    faults: Sequence[str] = ()
    faults_title: str = "Faults"


def render_page(page: Page) -> str:
    """Render a report as a self-contained HTML document."""
    template = templates().get_template("sections.html.j2")
    return template.render(page=page, headline=page.headline, faults=page.faults)


def print_page(page: Page, console: Console) -> None:
    """Print a report: its headline, what it is about, its tables and sentences, and its faults."""
    console.print(f"\n[bold {'red' if page.faults else 'green'}]{page.headline}[/]")
    console.print(f"[dim]{page.about}[/]\n")
    for section in page.sections:
        if isinstance(section, Lines):
            for one in section.lines:
                console.print(one, highlight=False)
        elif isinstance(section, Table) and section.where != "page":
            console.print(_rich(section), "", sep="\n")
    for fault in page.faults:
        console.print(f"[red]✗[/] {fault}", highlight=False)


def _rich(section: Table) -> RichTable:
    table = RichTable(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    shown = [head.where != "page" for head in section.heads]
    for head in section.heads:
        if head.where != "page":
            justify: Literal["right", "left"] = "right" if head.kind == "n" else "left"
            table.add_column(head.title, justify=justify, no_wrap=bool(head.title))
    for row in section.rows:
        cells = [one if isinstance(one, Cell) else Cell(one) for one in row]
        table.add_row(
            *(
                Text.from_markup(one.text) if one.kind == "bar" else Text(one.text)
                for one, show in zip(cells, shown, strict=False)
                if show
            )
        )
    return table


def seconds(value: float | None) -> str:
    """Render seconds: two decimals below one second, a dash without a measurement."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.2f} s" if abs(value) < 1 else f"{value:.1f} s"


def after(moment: float | None, since: float | None) -> str:
    """Render the seconds between two times."""
    return seconds(None if moment is None or since is None else moment - since)
