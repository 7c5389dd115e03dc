"""How it stands with clusters, for a terminal and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from leeway.drain.progress import Stage
from leeway.drain.summary import DrainState
from leeway.retirement.record import OVER, Retirement
from rich.console import Group, RenderableType
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
    for leaving in situation.retirements:
        yield from _retirement_lines(leaving, now)
    for arrival in situation.arrivals:
        left = age(arrival.deadline - now)
        told = f"arriving, {arrival.phase}, {left} left: {arrival.reason}"
        yield _line(arrival.instance, arrival.facts.private_dns_name, told)
    for kept in situation.headroom:
        size = "as it is" if kept.replicas is None else f"{kept.replicas} replicas"
        if kept.pending:
            size += f", {kept.pending} of them Pending"
        yield _line(kept.subject, kept.source, f"{size}: {kept.problem or kept.reason}")
    if not (situation.retirements or situation.arrivals or situation.headroom):
        yield Text("  nothing under way", style="dim")


def _line(what: str, where: str, told: str) -> Text:
    line = Text("  ")
    line.append(what, style="bold")
    line.append(f"  {where}  " if where else "  ", style="dim")
    return line.append(told)


def _retirement_lines(one: Leaving, now: datetime) -> Iterator[Text]:
    record, drain = one.record, one.drain
    told = [f"{record.kind}, {record.phase}", *_left(record, now)]
    if record.replacement_intent:
        told.append(f"replacement {record.replacement_intent.method}")
    if record.phase in OVER and record.must_restore_capacity:
        told.append("left in its group, which is one larger")
    if record.phase in OVER and record.needs_termination:
        told.append("detached from its group, and not terminated yet")
    told += _counts(drain)
    node = drain.node if drain else record.facts.private_dns_name
    yield _line(record.instance, node, ", ".join(told))
    for line in _pods(drain):
        yield Text(f"      {line}")


def _left(record: Retirement, now: datetime) -> list[str]:
    if record.phase in OVER or record.deadline is None:
        return []
    left = record.deadline - now
    return [f"{age(left)} left" if left.total_seconds() >= 0 else f"{age(-left)} over its time"]


def _counts(drain: DrainState | None) -> list[str]:
    if drain is None:
        return []
    stages = Counter(pod.stage for pod in drain.pods)
    told = [f"{stages[Stage.GONE]}/{len(drain.pods)} pods gone"]
    return told + [f"{stages[stage]} {stage}" for stage in _STILL_THERE if stages[stage]]


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
                "pending": one.pending if one.running is not None else None,
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
        "attempt": record.attempt,
        "phase": record.phase.value,
        "noticedAt": record.noticed_at.isoformat(),
        "deadline": record.deadline.isoformat() if record.deadline else None,
        "replacement": record.replacement_intent.method if record.replacement_intent else None,
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
