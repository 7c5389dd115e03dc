"""Commands as text for a shell, in which names of others stay one word.

The name of a group, of a queue or of a rule is free text of whoever creates it, and somebody pastes
these commands.
"""

import shlex

from leeway.printable import printable

_READ_FROM = ("file://", "fileb://", "http://", "https://")
"""The AWS CLI replaces a value that begins so with what it reads there."""


def aws(operation: str, **options: str | int | tuple[str, ...] | None) -> str:
    """Return a command of the AWS CLI: `aws("events enable-rule", name="web")`. An option that is
    None has no value.

    Empty if a value would be taken as an option or as a file to read: nobody should run that.
    """
    words = ["aws", *operation.split()]
    for name, given in options.items():
        values = given if isinstance(given, tuple) else () if given is None else (str(given),)
        if any(value.startswith("-") or _reads_something(name, value) for value in values):
            return ""
        words += [f"--{name.replace('_', '-')}", *values]
    return shell(*words)


def _reads_something(option: str, value: str) -> bool:
    return option != "queue_url" and value.startswith(_READ_FROM)


def shell(*words: str) -> str:
    """Return words as a command. A control character becomes an escape, so that the command names
    nothing that exists and a terminal shows it."""
    return shlex.join(printable(word) for word in words)


def deploy(stack: str) -> str:
    """Return the command that creates again what somebody deleted or changed in a stack."""
    return shell("sam", "deploy", "--stack-name", stack)
