"""Reads shell scripts as far as their simple commands go: quotes, variables and separators.

It runs nothing. A word with a command substitution has no known value.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from leeway_sandbox.user_data.configuration import BootError

_VARIABLE = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^}]*))?\}|(?P<plain>[A-Za-z_]\w*))"
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2")
_SEPARATORS = "\n;&|()"
_ESCAPABLE = '$`"\\'  # what a backslash escapes between double quotes
_DECLARING = {"export", "declare", "local", "readonly"}


@dataclass(frozen=True)
class Word:
    """A word after expansion; `is_known` is false if a command substitution is part of it."""

    text: str
    is_known: bool = True


def commands(script: str) -> Iterator[list[Word]]:
    """The simple commands of a script in their order, each with the words that it is run with.

    BootError if a quote is not closed: the shell runs nothing from there on.
    """
    variables: dict[str, str] = {}
    for words in _Reader(_without_heredocs(script), variables).commands():
        rest = list(words)
        if rest and rest[0].text in _DECLARING:
            rest.pop(0)
        assigned = []
        while rest and (found := _ASSIGNMENT.fullmatch(rest[0].text)):
            assigned.append((found["name"], found["value"]))
            rest.pop(0)
        if rest:
            yield rest
        else:
            variables.update(assigned)


def _without_heredocs(script: str) -> str:
    """The script without the contents of its here-documents, which are no commands."""
    lines, kept = script.replace("\r\n", "\n").split("\n"), []
    while lines:
        line = lines.pop(0)
        kept.append(line)
        found = _HEREDOC.search(line)
        if found is None or "<<<" in line:
            continue
        while lines:
            content = lines.pop(0)
            if (content.lstrip("\t") if found[1] else content) == found[3]:
                break
    return "\n".join(kept)


class _Reader:
    """Reads a script once, from its start; `variables` has the values that are known so far."""

    def __init__(self, script: str, variables: dict[str, str]) -> None:
        self._script, self._at, self._variables = script, 0, variables

    def commands(self) -> Iterator[list[Word]]:
        """The words of each simple command."""
        words: list[Word] = []
        while self._at < len(self._script):
            here = self._script[self._at]
            if here in _SEPARATORS:
                self._at += 1
                if words:
                    yield words
                words = []
            elif here == "#":
                self._at = self._line_end()
            elif here in " \t":
                self._at += 1
            elif self._script.startswith("\\\n", self._at):
                self._at += 2
            elif here in "<>":
                self._skip_redirection()
            else:
                word = self._word()
                if word is not None:
                    words.append(word)
        if words:
            yield words

    def _line_end(self) -> int:
        end = self._script.find("\n", self._at)
        return len(self._script) if end < 0 else end

    def _skip_redirection(self) -> None:
        while self._at < len(self._script) and self._script[self._at] in "<>&":
            self._at += 1
        while self._at < len(self._script) and self._script[self._at] in " \t":
            self._at += 1
        if self._at < len(self._script) and self._script[self._at] not in _SEPARATORS:
            self._word()

    def _word(self) -> Word | None:
        """The word that begins here; None for the number of a redirection, such as 2 in 2>&1."""
        text, is_known = "", True
        while self._at < len(self._script):
            here = self._script[self._at]
            if here in _SEPARATORS or here in " \t":
                break
            if here in "<>":
                if text.isdigit():
                    self._skip_redirection()
                    return None
                break
            if here == "'":
                text += self._single_quoted()
            elif here == '"':
                quoted = self._double_quoted()
                text, is_known = text + quoted.text, is_known and quoted.is_known
            elif here == "\\":
                escaped = self._script[self._at + 1 : self._at + 2]
                text += {"\n": "", "": "\\"}.get(escaped, escaped)
                self._at += 2
            elif here in "$`":
                expanded = self._expansion()
                text, is_known = text + expanded.text, is_known and expanded.is_known
            else:
                text += here
                self._at += 1
        return Word(text, is_known)

    def _single_quoted(self) -> str:
        end = self._script.find("'", self._at + 1)
        if end < 0:
            raise BootError(f"line {self._line()} of the script: the quote ' is not closed")
        text = self._script[self._at + 1 : end]
        self._at = end + 1
        return text

    def _double_quoted(self) -> Word:
        begins, text, is_known = self._line(), "", True
        self._at += 1
        while self._at < len(self._script):
            here = self._script[self._at]
            if here == '"':
                self._at += 1
                return Word(text, is_known)
            if here == "\\":
                following = self._script[self._at + 1 : self._at + 2]
                text += following if following in _ESCAPABLE else f"\\{following}"
                text = text.removesuffix("\\\n")
                self._at += 2
            elif here in "$`":
                expanded = self._expansion()
                text, is_known = text + expanded.text, is_known and expanded.is_known
            else:
                text += here
                self._at += 1
        raise BootError(f'line {begins} of the script: the quote " is not closed')

    def _expansion(self) -> Word:
        if self._script[self._at] == "`" or self._script.startswith("$(", self._at):
            self._skip_substitution()
            return Word("", is_known=False)
        found = _VARIABLE.match(self._script, self._at)
        if found is None:
            self._at += 1
            return Word("$")
        self._at = found.end()
        name = found["braced"] or found["plain"]
        return Word(self._variables.get(name) or found["default"] or "")

    def _skip_substitution(self) -> None:
        begins = self._line()
        if self._script[self._at] == "`":
            end = self._script.find("`", self._at + 1)
            if end < 0:
                raise BootError(f"line {begins} of the script: the quote ` is not closed")
            self._at = end + 1
            return
        depth = 0
        while self._at < len(self._script):
            here = self._script[self._at]
            self._at += 1
            depth += {"(": 1, ")": -1}.get(here, 0)
            if here == ")" and depth == 0:
                return
        raise BootError(f"line {begins} of the script: $( is not closed")

    def _line(self) -> int:
        return self._script.count("\n", 0, self._at) + 1
