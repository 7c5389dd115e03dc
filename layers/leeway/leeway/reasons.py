"""Reason codes: a stable name for why something happened, and one plain sentence about it.

Each feature declares its codes in its own `reasons` module, with the section of the runbook that
says what to do. docs/reasons.md lists all of them.
"""

import re
from dataclasses import dataclass

_DOUBLED_STOP = re.compile(r"(?<!\.)\.\.(?=\s|$)")


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
    """A declared code. `sentence` has `{placeholders}` for facts; `runbook` is the anchor of a
    section of docs/runbook.md, empty if nobody has to act."""

    name: str
    sentence: str
    runbook: str = ""

    def __call__(self, why: object = None, /, **facts: object) -> Reason:
        """Return the reason with its facts filled in; `why` is the fact of this name. A fact that
        ends with a full stop, such as another sentence, does not double the full stop after it.

        Raises:
            KeyError: the sentence names a fact that was not given.
        """
        message = self.sentence.format(**facts if why is None else {"why": why, **facts})
        return Reason(self.name, _DOUBLED_STOP.sub(".", message))


def clause(text: object) -> str:
    """Return a sentence or an error message without its full stop, as a fact of a reason."""
    return str(text).rstrip().removesuffix(".")
