"""Text of others, made fit to be shown: no character of it moves a cursor or starts a new line.

Owners' kinds and names, annotations, providers' ids and messages of conditions are free text in
Kubernetes, and names of tags are in AWS. A terminal obeys what is in them.
"""

import json
import unicodedata

_NOT_SHOWN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Categories of Unicode: controls, invisible formats such as U+202E, which turns the reading
direction round, code points without a meaning, and separators of lines and paragraphs."""


def printable(text: str) -> str:
    """Return a text on one line, with `\\u0001` for each character that is not shown as itself, as
    JSON has it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines, each of them printable; tabulators stay, too."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(one if one in "\n\t" else _shown(one) for one in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _NOT_SHOWN:
        return character
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
