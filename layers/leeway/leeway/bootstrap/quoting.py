"""Text between single quotes, which bash and PowerShell take literally.

All values are validated where they enter. This is the last check before they reach a script.
"""

import re

from leeway.bootstrap.problems import UserDataError

# No quote of any kind, no backslash, no `$`, no backtick, no control character.
_LITERAL = re.compile(r"[A-Za-z0-9 ._:/=,<%+@\[\]-]*")


def quoted(text: str) -> str:
    """Quote text for a shell and for PowerShell.

    Raises:
        UserDataError: the text has a character that no value of user data has.
    """
    if not _LITERAL.fullmatch(text):
        raise UserDataError("user data", f"expected a value that needs no escape, got {text!r}")
    return f"'{text}'"
