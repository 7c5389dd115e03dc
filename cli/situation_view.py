"""How it stands with clusters, for a terminal and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from leeway.drain.progress import Stage
from leeway.drain.summary import DrainState
from leeway.records import Phase, Retirement
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.manifest_output import age
from cli.situation import Leaving, Situation

MOST_PODS = 12
"""Pods of one node that are told one by one; the rest are counted."""

_STILL_THERE = (Stage.BLOCKED, Stage.FAILED, Stage.PENDING, Stage.TERMINATING, Stage.RETURNED)


def as_view(situations: Sequence[Situation], now: datetime) -> RenderableType:
    """Render for a terminal."""
    parts: list[RenderableType] = []
    for situation in situations:
        parts += [_heading(situation), *_body(situation, now), Text()]
    return Group(*parts[:-1])


def _heading(situation: Situation) -> Text:
    heading = Text(situation.cluster, style="bold")
    for on, word in ((situation.paused, "paused"), (situation.dry_run, "dry run")):
        if on:
            heading.append(f"  {word}", style="bold yellow")
    return heading


def _body(situation: Situation, now: datetime) -> Iterator[RenderableType]:
    for problem in situation.problems:
        yield Text(f"  cannot be read: {problem}", style="red")
    if situation.retirements:
        yield _retirements(situation.retirements, now)
    if situation.arrivals:
        yield _arrivals(situation, now)
    if situation.headroom:
        yield _headroom(situation)
    if not (situation.retirements or situation.arrivals or situation.headroom):
        yield Text("  nothing under way", style="dim")


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _retirements(retirements: Sequence[Leaving], now: datetime) -> Table:
    table = _table("LEAVING", "NODE", "WHY", "PHASE", "LEFT", "REPLACEMENT", "PODS")
    for one in retirements:
        record, drain = one.record, one.drain
        table.add_row(
            record.instance,
            drain.node if drain else record.facts.private_dns_name,
            record.kind.value,
            record.phase.value,
            _left(record, now),
            record.replaced.method if record.replaced else "-",
            _counts(drain),
        )
        for line in _pods(drain):
            table.add_row("", line)
    return table


def _left(record: Retirement, now: datetime) -> str:
    if record.phase is Phase.FINISHED or record.deadline is None:
        return "-"
    left = record.deadline - now
    return age(left) if left.total_seconds() >= 0 else f"{age(-left)} over"


def _counts(drain: DrainState | None) -> str:
    if drain is None:
        return "-"
    stages = Counter(pod.stage for pod in drain.pods)
    told = [f"{stages[Stage.GONE]}/{len(drain.pods)} gone"]
    told += [f"{stages[stage]} {stage}" for stage in _STILL_THERE if stages[stage]]
    return ", ".join(told)


def _pods(drain: DrainState | None) -> Iterator[str]:
    if drain is None:
        return
    if drain.problem:
        yield f"pods cannot be listed: {drain.problem}"
    there = [pod for pod in drain.pods if pod.stage in _STILL_THERE]
    for pod in there[:MOST_PODS]:
        yield f"{pod.pod} {pod.stage}: {pod.reason}"
    if len(there) > MOST_PODS:
        yield f"and {len(there) - MOST_PODS} more"


def _arrivals(situation: Situation, now: datetime) -> Table:
    table = _table("ARRIVING", "NODE", "PHASE", "LEFT", "WHY")
    for one in situation.arrivals:
        left = age(one.deadline - now)
        table.add_row(one.instance, one.facts.private_dns_name, one.phase.value, left, one.reason)
    return table


def _headroom(situation: Situation) -> Table:
    table = _table("HEADROOM", "MANIFEST", "REPLICAS", "WHY")
    for one in situation.headroom:
        size = "-" if one.replicas is None else str(one.replicas)
        table.add_row(one.subject, one.source, size, one.problem or one.reason)
    return table


def as_data(situations: Sequence[Situation]) -> dict[str, Any]:
    """Render as JSON."""
    return {"clusters": [_cluster(situation) for situation in situations]}


def _cluster(situation: Situation) -> dict[str, Any]:
    return {
        "cluster": situation.cluster,
        "paused": situation.paused,
        "dryRun": situation.dry_run,
        "manifests": situation.manifests,
        "problems": list(situation.problems),
        "retirements": [_retirement(one) for one in situation.retirements],
        "arrivals": [
            {
                "instance": one.instance,
                "phase": one.phase.value,
                "deadline": one.deadline.isoformat(),
                "reason": one.reason,
            }
            for one in situation.arrivals
        ],
        "headroom": [
            {
                "subject": one.subject,
                "manifest": one.source,
                "replicas": one.replicas,
                "reason": one.reason,
                "problem": one.problem or None,
            }
            for one in situation.headroom
        ],
    }


def _retirement(one: Leaving) -> dict[str, Any]:
    record, drain = one.record, one.drain
    return {
        "instance": record.instance,
        "node": drain.node if drain else record.facts.private_dns_name,
        "kind": record.kind.value,
        "generation": record.generation,
        "phase": record.phase.value,
        "noticedAt": record.noticed_at.isoformat(),
        "deadline": record.deadline.isoformat() if record.deadline else None,
        "replacement": record.replaced.method if record.replaced else None,
        "reason": record.reason,
        "seenAt": drain.at.isoformat() if drain else None,
        "pods": [
            {
                "pod": pod.pod,
                "stage": pod.stage.value,
                "way": pod.way.value if pod.way else None,
                "reason": pod.reason,
            }
            for pod in (drain.pods if drain else ())
        ],
    }
