"""Text between single quotes, which bash and PowerShell take literally.

All values are validated where they enter. This is the last check before they reach a script.
"""

import re

from leeway.bootstrap.problems import UserDataError

# No space, no quote of any kind, no backslash, no `$`, no backtick, no control character.
_WORD = re.compile(r"[A-Za-z0-9._:/=,<%+@\[\]-]+")


def quoted(*words: str) -> str:
    """Quote words, with a space between them, for bash and for PowerShell.

    Raises:
        UserDataError: a word has a character that no value of user data has.
    """
    for word in words:
        if not _WORD.fullmatch(word):
            raise UserDataError("user data", f"expected a value that needs no escape, got {word!r}")
    return f"'{' '.join(words)}'"
