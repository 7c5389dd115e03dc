"""A finding: what is wrong, how badly, and the command that mends it."""

from dataclasses import dataclass
from enum import StrEnum

from leeway.printable import printable
from leeway.reasons import Reason, ReasonCode


class Severity(StrEnum):
    """Whether Leeway fails at some of its work because of a finding, or may do it worse."""

    FAILS = "fails"
    WARNS = "warns"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. `subject` is what it is about, as `group web`. `cluster` is empty if
    it is about the stack or the account. `command` mends it, or shows what a person has to decide;
    empty if no command does."""

    severity: Severity
    reason: Reason
    subject: str
    command: str = ""
    cluster: str = ""


def fails(
    code: ReasonCode, subject: str, command: str = "", cluster: str = "", **facts: object
) -> Finding:
    """Return a finding because of which Leeway fails at some of its work."""
    return _finding(Severity.FAILS, code, subject, command, cluster, facts)


def warns(
    code: ReasonCode, subject: str, command: str = "", cluster: str = "", **facts: object
) -> Finding:
    """Return a finding because of which Leeway may do its work worse."""
    return _finding(Severity.WARNS, code, subject, command, cluster, facts)


def of_reason(
    severity: Severity, reason: Reason, subject: str, command: str = "", cluster: str = ""
) -> Finding:
    """Return a finding whose reason somebody else has built."""
    shown = Reason(reason.code, printable(reason.message))
    return Finding(severity, shown, printable(subject), command, cluster)


def _finding(
    severity: Severity,
    code: ReasonCode,
    subject: str,
    command: str,
    cluster: str,
    facts: dict[str, object],
) -> Finding:
    # Names of groups, rules and manifests are free text of others.
    known = {"cluster": cluster, **facts}
    shown = {name: printable(str(value)) for name, value in known.items()}
    return Finding(severity, code(**shown), printable(subject), command, cluster)
