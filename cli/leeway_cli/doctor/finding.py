"""A finding: what is wrong, how badly, and the command that mends it."""

from dataclasses import dataclass
from enum import StrEnum

from leeway.printable import printable
from leeway.reasons import ReasonCode

from leeway_cli.errors import one_line


class Severity(StrEnum):
    """Whether Leeway fails at some of its work because of a finding, or may do it worse."""

    FAILS = "fails"
    WARNS = "warns"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: `message` says it, and `code` says what has to be mended. `subject`
    is what it is about, as `group web`. `cluster` is empty if it is about the stack or the account.
    `command` mends it, or shows what a person has to decide; empty if no command does."""

    severity: Severity
    code: str
    subject: str
    message: str
    command: str = ""
    cluster: str = ""


def fails(
    code: ReasonCode, subject: str, message: str, command: str = "", cluster: str = ""
) -> Finding:
    """Return a finding because of which Leeway fails at some of its work."""
    return finding(Severity.FAILS, code, subject, message, command, cluster)


def warns(
    code: ReasonCode, subject: str, message: str, command: str = "", cluster: str = ""
) -> Finding:
    """Return a finding because of which Leeway may do its work worse."""
    return finding(Severity.WARNS, code, subject, message, command, cluster)


def finding(
    severity: Severity,
    code: ReasonCode,
    subject: str,
    message: str,
    command: str = "",
    cluster: str = "",
) -> Finding:
    """Return a finding. Names of groups, rules and manifests are free text of others, so control
    characters become escapes."""
    shown = one_line(printable(message))
    return Finding(severity, code.name, printable(subject), shown, command, cluster)
