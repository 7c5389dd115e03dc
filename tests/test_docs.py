"""What the documents say of this repository is so: links, anchors, files, commands and options."""

import functools
import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main
from leeway_cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for top in ROOT.glob("[a-z]*/") for path in top.rglob("*.md"))]
)
OURS = [page for page in PAGES if "manifests" not in page.relative_to(ROOT).parts]
"""Without the pages that are made from models."""

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[([^]]*)\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| (?!-)(.+) \|$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FILE = re.compile(r"[a-z_]+/[\w./-]+\.(?:py|json|yaml|yml|md|toml|txt)")
SHELLS = {"", "sh", "console", "bash"}


@dataclass(frozen=True)
class Link:
    """A link of a page to a place in the repository."""

    page: Path
    text: str
    target: str

    def __str__(self) -> str:
        return f"{named(self.page)}: [{self.text}]({self.target})"

    @property
    def path(self) -> Path:
        """The file that it leads to."""
        path = self.target.partition("#")[0]
        return (self.page.parent / path).resolve() if path else self.page


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@functools.cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(page: Path) -> list[Link]:
    prose = CODE.sub("", FENCE.sub("", text_of(page)))
    found = [Link(page, text, target) for text, target in LINK.findall(prose)]
    return [link for link in found if "://" not in link.target]


@functools.cache
def anchors(page: Path) -> set[str]:
    """The fragments by which GitHub links to a page's headings."""
    taken: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text_of(page))):
        plain = LINK.sub(r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        free = (f"{slug}-{n}" if n else slug for n in range(100))
        taken.add(next(name for name in free if name not in taken))
    return taken


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `leeway …` on a page, in blocks of a shell and within lines."""
    text = text_of(page)
    lines = [
        line.strip().removeprefix("$ ")
        for language, block in FENCE.findall(text)
        if language in SHELLS
        for line in block.replace("\\\n", " ").splitlines()
    ]
    for line in [*lines, *CODE.findall(FENCE.sub("", text))]:
        if line.startswith("leeway "):
            yield shlex.split(re.split(r" (?:&&|\||&|>) ?", line)[0], comments=True)[1:]


def unknown(words: list[str]) -> str:
    """The first word that the command line does not know, as command or as option; or the first
    option that a command with options and values needs and does not have; or nothing."""
    command: Any = typer.main.get_command(main.app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        # What is no word in small letters stands for any command.
        if not re.fullmatch(r"[a-z]+", name):
            return ""
        if name not in command.commands:
            return name
        command = command.commands[name]
    known = {"--help", "-h"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    required = (
        one.opts[0]
        for one in command.params
        if one.required and not one.envvar and one.opts[0].startswith("-")
        if options and len(rest) > len(options) and not {*one.opts} & {*options}
    )
    wrong = (option for option in options if option not in known)
    return next(wrong, "") or next(required, "")


def test_every_link_leads_somewhere() -> None:
    dead = [
        str(link)
        for page in PAGES
        for link in links(page)
        if not link.path.exists()
        or ("#" in link.target and link.target.partition("#")[2] not in anchors(link.path))
    ]
    assert dead == []


def test_a_link_that_says_test_leads_to_tests() -> None:
    found = [link for page in OURS for link in links(page)]
    tests = [link for link in found if "/tests/" in str(link.path) and link.text == "test"]
    assert [str(one) for one in tests if "\ndef test_" not in text_of(one.path)] == []


def test_files_and_modules_that_are_named_are_there() -> None:
    tops = {path.name for path in ROOT.iterdir()}
    for page in OURS:
        spoken = CODE.findall(FENCE.sub("", text_of(page)))
        files = [word for word in spoken if FILE.fullmatch(word)]
        gone = [name for name in files if name.split("/")[0] in tops and not (ROOT / name).exists()]
        modules = [word for word in spoken if re.fullmatch(r"leeway\.[a-z_.]+", word)]
        gone += [name for name in modules if not is_in_the_layer(name)]
        assert gone == [], named(page)


def is_in_the_layer(name: str) -> bool:
    """Whether there is such a module, or a module with such a name in it."""
    outer, _, last = name.rpartition(".")
    try:
        module = importlib.import_module(outer)
    except ModuleNotFoundError:
        return False
    return hasattr(module, last) or (
        hasattr(module, "__path__") and importlib.util.find_spec(name) is not None
    )


def test_commands_and_options_that_are_written_down_exist() -> None:
    wrong = {
        (named(page), " ".join(words)): what
        for page in OURS
        for words in commands(page)
        if (what := unknown(words))
    }
    assert wrong == {}


def test_the_check_of_commands_finds_errors() -> None:
    assert unknown(["drain", "NODE", "--deadline", "2m"]) == ""
    assert unknown(["drain", "NODE", "--dedline", "2m"]) == "--dedline"
    assert unknown(["sandbox", "upp"]) == "upp"
    assert unknown(["userdata", "-f", "POOLS"]) == "--cluster-file"
    assert unknown(["userdata"]) == ""
    assert anchors(README) >= {"compared-with-other-tools", "deploy-it"}


def test_the_verbs_of_make_that_are_written_down_exist() -> None:
    rules = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    verbs = {
        verb
        for page in OURS
        for verb in re.findall(r"(?:^|`)make ([a-z-]+)", text_of(page), re.MULTILINE)
    }
    assert verbs
    assert verbs - rules == set()


def test_each_guarantee_links_to_a_file_that_has_tests() -> None:
    rows = [row for row in ROW.findall(text_of(GUARANTEES)) if not row.startswith("behaviour ")]
    assert len(rows) > 100
    assert [row for row in rows if not any(map(has_tests, targets(row)))] == []


def targets(row: str) -> Iterator[Path]:
    for _, target in LINK.findall(row):
        yield (GUARANTEES.parent / target.partition("#")[0]).resolve()


def has_tests(path: Path) -> bool:
    """Whether a file has a test, or measures something."""
    if path.suffix != ".py" or not path.is_file():
        return False
    return path.parent.name == "bench" or "\ndef test_" in text_of(path)


def test_the_readme_has_at_most_500_words() -> None:
    assert len(text_of(README).split()) <= 500


def test_links_lead_from_the_readme_to_every_page() -> None:
    reached, left = set[Path](), [README.resolve()]
    while left:
        page = left.pop()
        reached.add(page)
        for _, target in LINK.findall(text_of(page)):
            found = (page.parent / target.partition("#")[0]).resolve()
            if found.suffix == ".md" and found.is_file() and found not in reached:
                left.append(found)
    assert set((README.parent / "docs").resolve().glob("*.md")) <= reached


def test_the_readme_keeps_its_order() -> None:
    text = text_of(README)
    parts = [
        "It is for",
        "leeway rehearse --lose",
        "![",
        "leeway demo ",
        "leeway sandbox up ",
        "## Compared with other tools",
        "## Deploy it",
        "## Read on",
        "`make test`",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_the_readme_compares_leeway_with_three_tools_in_six_to_eight_rows() -> None:
    heading, *rows = [row.split(" | ") for row in ROW.findall(text_of(README))]
    tools = ["Leeway", "aws-node-termination-handler", "Karpenter", "managed node groups"]
    assert heading[1:] == tools
    assert 6 <= len(rows) <= 8
    assert {len(row) for row in rows} == {5}
