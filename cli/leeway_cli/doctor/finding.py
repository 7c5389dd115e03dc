"""A finding: what is wrong, how badly, and the command that mends it.

Commands are text for a shell, in which names of others stay one word: the name of a group, of a
queue or of a rule is free text of whoever creates it, and somebody pastes these commands.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from leeway.printable import printable
from leeway.reasons import ReasonCode

from leeway_cli.errors import one_line

if TYPE_CHECKING:
    from leeway_cli.adopt.settings.leeway_stack import LeewayStack


class Severity(StrEnum):
    """Whether Leeway fails at some of its work because of a finding, or may do it worse."""

    FAILS = "fails"
    WARNS = "warns"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: `reason` says it, and `code` says what has to be mended. `subject`
    is what it is about, as `group web`. `cluster` is empty if it is about the stack or the account.
    `command` mends it, or shows what a person has to decide; empty if no command does. `kind` is
    the same for findings that belong together although each has a command of its own."""

    severity: Severity
    code: str
    subject: str
    reason: str
    command: str = ""
    cluster: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Findings of one kind, or that one command mends, as one finding: all of them have its
    severity, code and cluster. `command` has a line for each command."""

    severity: Severity
    code: str
    cluster: str
    command: str
    subjects: tuple[str, ...]
    reasons: tuple[str, ...]


def causes(findings: Iterable[Finding]) -> tuple[Cause, ...]:
    """Join findings with one cause, in the order of the first of each. Findings without a kind and
    a command stay alone: nothing says that they belong together."""
    found: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        key = (one.severity, one.code, one.cluster, one.kind or one.command or one)
        found.setdefault(key, []).append(one)
    return tuple(
        Cause(
            some[0].severity,
            some[0].code,
            some[0].cluster,
            "\n".join(dict.fromkeys(one.command for one in some if one.command)),
            tuple(dict.fromkeys(one.subject for one in some)),
            tuple(one.reason for one in some),
        )
        for some in found.values()
    )


@dataclass(frozen=True, slots=True)
class About:
    """What findings are about: the code of the thing to mend, the subject and the cluster."""

    code: ReasonCode
    subject: str
    cluster: str = ""

    def fails(self, reason: str, command: str = "", kind: str = "") -> Finding:
        """Return a finding because of which Leeway fails at some of its work."""
        return self.finding(Severity.FAILS, reason, command, kind)

    def warns(self, reason: str, command: str = "", kind: str = "") -> Finding:
        """Return a finding because of which Leeway may do its work worse."""
        return self.finding(Severity.WARNS, reason, command, kind)

    def finding(
        self, severity: Severity, reason: str, command: str = "", kind: str = ""
    ) -> Finding:
        """Return a finding. Names of groups, rules and manifests are free text of others, so
        control characters become escapes."""
        subject, shown = printable(self.subject), one_line(printable(reason))
        return Finding(severity, self.code.name, subject, shown, command, self.cluster, kind)


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


def deploy(stack: "LeewayStack", **values: str) -> str:
    """Return the command that creates again what somebody deleted or changed in a stack, with other
    values of some parameters."""
    return shell(*stack.deployment(**values))
