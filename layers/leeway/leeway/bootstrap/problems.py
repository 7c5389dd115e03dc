"""Errors and warnings of user data."""

from dataclasses import dataclass

from leeway.printable import printable


class UserDataError(ValueError):
    """User data cannot be rendered. `field` is the manifest's field, `message` names the
    expected value. As text, the error is one line.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(printable(f"{field}: {message}"))
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class BootWarning:
    """User data is rendered, and its author should know something.

    `code` is stable and in CamelCase; docs/bootstrap.md lists all of them. `reason` is one
    sentence.
    """

    code: str
    reason: str
