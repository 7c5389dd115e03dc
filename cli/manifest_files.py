"""Manifests from files, folders and stdin (`-`), and what is said when they cannot be used."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import BadInputError, unreadable
from cli.output import tell

if TYPE_CHECKING:
    from leeway.manifests.problems import Problem
    from leeway.manifests.reading import Reading

STDIN = Path("-")
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MOST_TOLD = 20
"""Problems that are told; whoever has more has made one mistake many times."""

FilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="A file of manifests, a folder of them, or - for stdin; may be given again.",
    ),
]


def read_files(paths: Iterable[Path]) -> "Reading":
    """Read all manifests of these files; warnings go to stderr.

    Raises:
        BadInputError: a file cannot be read, or a manifest is wrong, or there is none.
    """
    from leeway.manifests.reading import Reading, read_manifests

    reading, sources = Reading(), []
    for source, text in read_texts(paths):
        reading += read_manifests(text, source)
        sources.append(source)
    return checked(reading, sources)


def read_texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file that these stand for, folders' in order of name,
    each once.

    Raises:
        BadInputError: one cannot be read, or is no text.
    """
    from leeway.manifests.documents import LARGEST_TEXT

    for file in dict.fromkeys(file for path in paths for file in _files(path)):
        if file == STDIN:
            yield "stdin", _decoded("stdin", sys.stdin.buffer.read(LARGEST_TEXT + 1))
            continue
        try:
            with file.open("rb") as opened:
                content = opened.read(LARGEST_TEXT + 1)
        except OSError as error:
            raise unreadable(file, error) from error
        yield str(file), _decoded(str(file), content)


def _files(path: Path) -> list[Path]:
    # A Path of `https://host/x` has one slash only.
    if str(path).startswith(("https:/", "http:/")):
        raise BadInputError(
            f"{path}: expected a file or a folder; of an address: curl -sL … | leeway … -f -"
        )
    if path == STDIN or not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
    if not found:
        raise BadInputError(f"{path}: expected files that end in .yaml, .yml or .json in it")
    return found


def _decoded(source: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{source}:{line}: expected text in UTF-8") from error


def checked(reading: "Reading", sources: Sequence[str]) -> "Reading":
    """Print the warnings, and see that there are manifests and nothing is wrong with them.
    `sources` are what was read.

    Raises:
        BadInputError: there is a problem, or no manifest.
    """
    for warning in reading.warnings:
        tell(f"warning: {_line(warning)}")
    problems = [*reading.problems, *_repeated(reading)]
    if problems:
        first, *others = [_line(problem) for problem in problems]
        more = len(others) - _MOST_TOLD
        told = others[:_MOST_TOLD] + ([f"and {more} more problems"] if more > 0 else [])
        raise BadInputError(first, "\n".join(told))
    if not reading.written:
        where = ", ".join(sources) or "--filename"
        raise BadInputError(f"{where}: expected at least one manifest, found none")
    return reading


def _repeated(reading: "Reading") -> Iterator["Problem"]:
    from leeway.manifests.problems import Problem

    first: dict[tuple[str, str], str] = {}
    for one in reading.written:
        place = first.setdefault((one.title, one.namespace), f"{one.source}:{one.line}")
        if place != f"{one.source}:{one.line}":
            yield Problem(one.source, one.line, (), f"{one.title} stands at {place} already")


def _line(problem: "Problem") -> str:
    return " ".join(str(problem).split())
