"""Parts that could not be read: nothing is well that nobody has looked at."""

from collections.abc import Iterator

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, unread_parts
from leeway_cli.doctor.finding import Finding, finding


def check_unread(facts: Facts) -> Iterator[Finding]:
    """Report every part that could not be read, with the error."""
    for cluster, one in unread_parts(facts):
        yield finding(
            one.severity,
            reasons.PART_NOT_READ,
            one.part,
            f"The doctor could not read {one.part}: {one.problem}.",
            cluster=cluster,
        )
