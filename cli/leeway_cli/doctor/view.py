"""Renders findings for a terminal and as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leeway_cli.doctor.checks.configuration import spending_limit
from leeway_cli.doctor.facts import Facts, known, unread_parts
from leeway_cli.doctor.finding import Finding, Severity

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {Severity.FAILS: "bold red", Severity.WARNS: "yellow"}


def print_findings(console: "Console", facts: Facts, findings: Sequence[Finding]) -> None:
    """Print the findings, each with its sentence and its command below."""
    from rich.text import Text

    for one in findings:
        line = Text()
        line.append(f"{one.severity.value:<5}  ", style=_STYLES[one.severity])
        line.append(one.code, style="bold")
        where = f"{one.cluster}: " if one.cluster else ""
        line.append(f"  {where}{one.subject}", style="dim")
        console.print(line, soft_wrap=True)
        console.print(Text(f"       {one.message}"), soft_wrap=True)
        if one.command:
            console.print(Text(f"       $ {one.command}", style="cyan"), soft_wrap=True)
    for cluster in facts.clusters:
        configuration = known(cluster.configuration)
        if configuration is not None and configuration.pools:
            most = spending_limit(configuration.usd_per_hour)
            text = f"{cluster.name}: Leeway's nodes may cost {most}"
            console.print(Text(text), soft_wrap=True)
    console.print(Text(_summary(facts, findings)), soft_wrap=True)


def _summary(facts: Facts, findings: Sequence[Finding]) -> str:
    names = ", ".join(one.name for one in facts.clusters) or "no cluster"
    fails, warns = (count(findings, severity) for severity in Severity)
    unread = sum(1 for _ in unread_parts(facts))
    text = f"{names}: {fails} fails, {warns} warns"
    if unread:
        return f"{text}; {unread} parts could not be read"
    return f"{text}; everything was read" if findings else f"{names}: all is well"


def count(findings: Sequence[Finding], severity: Severity) -> int:
    """Count the findings of a severity."""
    return sum(one.severity is severity for one in findings)


def as_data(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """Render findings for JSON."""
    return {
        "region": facts.region,
        "clusters": [one.name for one in facts.clusters],
        "fails": count(findings, Severity.FAILS),
        "warns": count(findings, Severity.WARNS),
        "unread": [
            {"part": one.part, "cluster": cluster, "reason": one.problem}
            for cluster, one in unread_parts(facts)
        ],
        "findings": [
            {
                "severity": one.severity.value,
                "code": one.code,
                "cluster": one.cluster,
                "subject": one.subject,
                "reason": one.message,
                "command": one.command,
            }
            for one in findings
        ],
    }
