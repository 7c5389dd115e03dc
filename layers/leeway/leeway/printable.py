"""Escapes control characters in text from the cluster and from AWS, before a terminal shows it.

In Kubernetes, kinds and names of owners, annotations, provider ids and messages of conditions are
free text; in AWS, tags are. A terminal executes the escape sequences that such text contains.
"""

import json
import unicodedata

_ESCAPED = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories that are escaped: controls, invisible formats (U+202E reverses the reading
direction), unassigned and private code points, and separators of lines and paragraphs."""


def printable(text: str) -> str:
    """Return the text on one line; each character of an escaped category becomes `\\u0001`, as in
    JSON."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(character) for character in text)


def printable_lines(text: str) -> str:
    """Escape as `printable` does, but keep line feeds and tabs."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(one if one in "\n\t" else _escape(one) for one in text)


def _escape(character: str) -> str:
    if unicodedata.category(character) not in _ESCAPED:
        return character
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
