"""What a command raises when it cannot go on: one line on stderr, and an exit code."""

from pathlib import Path


class BadInputError(Exception):
    """What the user gave cannot be used: exit code 2.

    The message is one line that names the place (a file, with the field where there is one, or an
    option) and what was expected there; `details`, where there are any, follow it as they are.
    """

    exit_code = 2

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class CannotBeDoneError(Exception):
    """The input is fine, yet the work could not be done: exit code 1.

    The message is one line that says why; `details`, where there are any, follow it as they are.
    """

    exit_code = 1

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def unreadable(path: Path, error: OSError) -> BadInputError:
    """The line for a file that cannot be opened: `FILE: No such file or directory`."""
    return BadInputError(f"{path}: {error.strerror or error}")
