"""Reads docs/runbook.md: its sections, and the commands that it tells people to run."""

import re
from dataclasses import dataclass
from pathlib import Path

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
_HEADING = re.compile(r"^(#{2,4}) +(.+?) *$", re.MULTILINE)
_PART = re.compile(r"^\*\*(Means|Seen|Look|Do)\.\*\*", re.MULTILINE)
_BLOCK = re.compile(r"^ *```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:aws|leeway|kubectl) [^`]+)`")
COUNTED = "Problems that an alarm counts"


@dataclass(frozen=True)
class Section:
    """A section: its title, its anchor, the heading above it, its text, and its parts by name."""

    title: str
    anchor: str
    below: str
    text: str
    parts: dict[str, str]

    @property
    def look(self) -> list[str]:
        """The commands that show the cause, in their order."""
        return commands(self.parts.get("Look", ""))

    @property
    def seen(self) -> str:
        """When the commands show the cause."""
        return " ".join(self.parts.get("Seen", "").split())


def anchor_of(title: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def sections(text: str) -> dict[str, Section]:
    """Return the sections by anchor."""
    found: dict[str, Section] = {}
    headings = [*_HEADING.finditer(text)]
    above = ""
    for number, heading in enumerate(headings):
        end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
        title = heading[2]
        if heading[1] == "##":
            above = title
        anchor = anchor_of(title)
        body = text[heading.end() : end]
        pieces = _PART.split(body)
        parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
        found[anchor] = Section(title, anchor, "" if heading[1] == "##" else above, body, parts)
    return found


def commands(text: str) -> list[str]:
    """Return the commands of a text: those of its blocks, and those within lines."""
    found: list[tuple[int, str]] = []
    for block in _BLOCK.finditer(text):
        lines = re.sub(r"\\\n *", "", block[1]).splitlines()
        found += [(block.start(), one.strip().removeprefix("$ ")) for one in lines if one.strip()]
    outside = _BLOCK.sub(lambda block: " " * len(block[0]), text)
    found += [(one.start(), " ".join(one[1].split())) for one in _INLINE.finditer(outside)]
    return [command for _, command in sorted(found, key=lambda one: one[0])]


def wakes(section: Section) -> bool:
    """Whether an alarm leads to the section."""
    return section.title.endswith("Alarm") or section.below == COUNTED
