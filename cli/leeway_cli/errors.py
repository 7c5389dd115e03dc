"""Errors of commands: one line on stderr, `leeway: CODE: sentence`, and an exit code.

With `-o json` a failing command prints one JSON document on stdout, `{"error": {"code": …,
"message": …}}`. If the command has a result in spite of the error, such as the nodes that it
drained, its fields stand beside `error` in the same document.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from leeway.reasons import Reason

from leeway_cli.reasons import UNREADABLE_FILE


class CommandError(Exception):
    """A command failed for this reason. `details` are further lines for stderr. `result` has the
    fields of the JSON document that the command prints in spite of the error."""

    exit_code: ClassVar[int]

    def __init__(
        self, reason: Reason, details: str = "", result: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(reason.message)
        self.reason = reason
        self.details = details
        self.result = result


class BadInputError(CommandError):
    """The input is invalid. The message names the place (a file with its field, or an option) and
    what was expected there."""

    exit_code = 2


class CannotBeDoneError(CommandError):
    """The input is valid, but the command could not do its work."""

    exit_code = 1


def unreadable(path: Path, error: OSError) -> BadInputError:
    """Return the error for a file that cannot be opened: `FILE: No such file or directory`."""
    return BadInputError(UNREADABLE_FILE(path=path, error=error.strerror or error))


def as_clause(error: object) -> str:
    """Return a text as one line without its full stop, to embed it in a sentence."""
    return " ".join(str(error).split()).removesuffix(".")
