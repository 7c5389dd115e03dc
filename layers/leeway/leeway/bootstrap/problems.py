"""The error of user data that cannot be rendered."""

from leeway.printable import printable


class UserDataError(ValueError):
    """User data cannot be rendered. `field` is the manifest's field, `message` names the
    expected value. As text, the error is one line.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(printable(f"{field}: {message}"))
        self.field = field
        self.message = message
