"""Reads PowerShell scripts as far as their simple commands go: quotes, variables, separators.

It runs nothing. A variable that the script does not assign is empty, but for `$env:` ones, which
stay as they are.
"""

import re
from collections.abc import Iterator

from leeway_sandbox.user_data.configuration import BootError

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[^}]+)\}|(?P<plain>(?:env:)?\w+))", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"(\[[\w.\[\]]+\]\s*)?\$(?P<name>\w+)\s*=\s*", re.IGNORECASE)
_SEPARATORS = "\n;|{}()"


def commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a script in their order, each as the words that it is run with."""
    variables: dict[str, str] = {}
    reader = _Reader(script.replace("\r\n", "\n"), variables)
    for name, words in reader.statements():
        if name is None:
            yield words
        elif words:
            variables[name.lower()] = words[0]


class _Reader:
    """Reads a script once, from its start; `variables` has the values that are known so far."""

    def __init__(self, script: str, variables: dict[str, str]) -> None:
        self._script, self._at, self._variables = script, 0, variables

    def statements(self) -> Iterator[tuple[str | None, list[str]]]:
        """Each statement: the variable that it assigns, or None, and its words."""
        name: str | None = None
        words: list[str] = []
        while self._at < len(self._script):
            here = self._script[self._at]
            if here in _SEPARATORS:
                self._at += 1
                if words:
                    yield name, words
                name, words = None, []
            elif here == "#":
                end = self._script.find("\n", self._at)
                self._at = len(self._script) if end < 0 else end
            elif here in " \t":
                self._at += 1
            elif self._script.startswith("`\n", self._at):
                self._at += 2
            elif not words and (found := _ASSIGNMENT.match(self._script, self._at)):
                name, self._at = found["name"], found.end()
            elif here == "&" and not words:
                self._at += 1
            elif (word := self._word()) is not None:
                words.append(word)
        if words:
            yield name, words

    def _word(self) -> str | None:
        """The word that begins here; None for a redirection such as 3>&1."""
        begins, text = self._at, ""
        while self._at < len(self._script):
            here = self._script[self._at]
            if here in _SEPARATORS or here in " \t":
                break
            if here == "'":
                text += self._single_quoted()
            elif here == '"':
                text += self._double_quoted()
            else:
                text += self._character()
        raw = self._script[begins : self._at]
        return None if re.fullmatch(r"[\d*]?>>?(&\d)?.*", raw) else text

    def _single_quoted(self) -> str:
        """Between single quotes nothing is special; two of them are one."""
        text, line = "", self._line()
        while True:
            end = self._script.find("'", self._at + 1)
            if end < 0:
                raise BootError(f"line {line} of the PowerShell script: the quote ' is not closed")
            text += self._script[self._at + 1 : end]
            self._at = end + 1
            if not self._script.startswith("'", self._at):
                return text
            text += "'"

    def _double_quoted(self) -> str:
        text, line = "", self._line()
        self._at += 1
        while self._at < len(self._script):
            here = self._script[self._at]
            if self._script.startswith('""', self._at):
                text, self._at = text + '"', self._at + 2
            elif here == '"':
                self._at += 1
                return text
            else:
                text += self._character()
        raise BootError(f'line {line} of the PowerShell script: the quote " is not closed')

    def _character(self) -> str:
        """One character, an escaped character or the value of a variable."""
        here = self._script[self._at]
        if here == "$":
            return self._expansion()
        begins = self._at + 1 if here == "`" else self._at
        self._at = begins + 1
        return self._script[begins : begins + 1]

    def _expansion(self) -> str:
        found = _VARIABLE.match(self._script, self._at)
        if found is None:
            self._at += 1
            return "$"
        self._at = found.end()
        name = (found["braced"] or found["plain"]).lower()
        return f"${name}" if name.startswith("env:") else self._variables.get(name, "")

    def _line(self) -> int:
        return self._script.count("\n", 0, self._at) + 1
