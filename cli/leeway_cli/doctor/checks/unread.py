"""Parts that could not be read: nothing is well that nobody has looked at."""

from collections.abc import Iterator

from leeway_cli.doctor.facts import Facts, unread_parts
from leeway_cli.doctor.finding import Finding, Severity, fails, warns
from leeway_cli.doctor.reasons import PART_NOT_READ


def check_unread(facts: Facts) -> Iterator[Finding]:
    """Report every part that could not be read, with the error."""
    for cluster, one in unread_parts(facts):
        severity = fails if one.severity is Severity.FAILS else warns
        yield severity(
            PART_NOT_READ,
            one.part,
            "",
            cluster,
            part=one.part,
            problem=one.problem.message.rstrip("."),
        )
