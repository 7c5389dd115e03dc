"""Reason codes: a stable name for why something happened, and one plain sentence about it.

Each feature declares its codes in its own `reasons` module, with the section of the runbook that
says what to do. docs/reasons.md lists all of them.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from leeway.durations import render_duration

_DOUBLED_STOP = re.compile(r"(?:(?<!\.)(\.)|(\?))\.(?=\s|$)")

_COUNT = re.compile(r"\{(\w+):([A-Za-z][^{}|]+)\|?([^{}]*)\}")
"""A placeholder of a count and its noun, such as `{pods:pod}` and `{pods:pod is|pods are}`."""


def counted(number: float, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`. `many` is the plural if it is not `one`
    with an s, for example because of a verb: `pods get`."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {one if number == 1 else many or one + 's'}"


def some(names: Iterable[str], most: int = 3) -> str:
    """Return the first names for a sentence, and the number of the others."""
    found = list(names)
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more} more" if more > 0 else "")


class _Counting:
    """A number in a sentence; a placeholder may give it a noun."""

    def __format__(self: Any, spec: str) -> str:
        if len(spec) > 1 and spec[0].isalpha():
            return counted(self, *spec.split("|"))
        return str(super().__format__(spec))


class _Whole(_Counting, int):
    pass


class _Fraction(_Counting, float):
    pass


def _lasts(duration: timedelta) -> str:
    whole = timedelta(seconds=int(duration.total_seconds()))
    return render_duration(whole or duration)


_SHOWN: dict[type, Callable[[Any], object]] = {int: _Whole, float: _Fraction, timedelta: _lasts}
"""How facts of these types appear in a sentence: durations as `19m27s`."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something happened: a `code` in CamelCase, which log queries and alarms can rely on, and
    a `message` of one or more sentences for people."""

    code: str
    message: str

    def __str__(self) -> str:
        return self.message

    def and_then(self, *others: object) -> "Reason":
        """Return this reason with the sentences of others after its own."""
        return Reason(self.code, " ".join([self.message, *map(str, others)]))


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """A declared code. `sentence` has `{placeholders}` for facts, and `{pods:pod}` or
    `{pods:pod is|pods are}` for a number with its noun; `runbook` is the anchor of a section of
    docs/runbook.md, empty if nobody has to act."""

    name: str
    sentence: str
    runbook: str = ""

    def __call__(self, why: object = None, /, **facts: object) -> Reason:
        """Return the reason with its facts filled in; `why` is the fact of this name. A fact that
        ends with a full stop or a question mark, such as another sentence, has no full stop
        after it.

        Raises:
            KeyError: the sentence names a fact that was not given.
        """
        for name, fact in facts.items():
            if (shown := _SHOWN.get(type(fact))) is not None:
                facts[name] = shown(fact)
        message = self.sentence.format(**facts if why is None else {"why": why, **facts})
        return Reason(self.name, _DOUBLED_STOP.sub(r"\1\2", message))

    @property
    def plain_sentence(self) -> str:
        """The sentence as documentation shows it, with a plural after each count."""
        return _COUNT.sub(lambda one: f"{{{one[1]}}} {one[3] or one[2] + 's'}", self.sentence)


def clause(text: object) -> str:
    """Return a sentence or an error message without its full stop, as a fact of a reason."""
    return str(text).rstrip().removesuffix(".")
