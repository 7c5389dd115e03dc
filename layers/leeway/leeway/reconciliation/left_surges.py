"""Restores the sizes of workloads that have an additional pod for a retirement which has ended."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from leeway.interruption.instance_state import read_instance
from leeway.reasons import Reason
from leeway.retirement.decide_surge import SURGE, SURGE_TIMEOUT, Surge
from leeway.retirement.surge import SCALES, SurgePorts, continue_surge
from leeway.table import Table

ABANDONED_AFTER = SURGE_TIMEOUT + timedelta(minutes=30)
"""The age of a surge that its retirement does not continue any more. A drain that has run for long
pauses for some twenty minutes."""


def left_surges(
    table: Table, cluster: str, now: datetime, ports: Callable[[], SurgePorts]
) -> Iterator[tuple[Surge, Callable[[], Reason | None]]]:
    """Yield the surges that nobody continues, each with what continues it: that returns the reason
    of a change, and raises what the API server and the table raise."""
    for surge in table.list(SURGE, cluster=cluster, unreadable=lambda _: None):
        if surge.is_open and _is_left(table, surge, now):
            yield surge, partial(_continue, surge, ports)


def _is_left(table: Table, surge: Surge, now: datetime) -> bool:
    if now >= surge.began_at + ABANDONED_AFTER:
        return True
    retirement = read_instance(table, surge.instance, [surge.cluster]).retirement
    return retirement is None or not retirement.is_open


def _continue(surge: Surge, ports: Callable[[], SurgePorts]) -> Reason | None:
    decision = continue_surge(ports(), surge.cluster, surge.workload, left=False, ending=True)
    return decision.reason if decision is not None and decision.action in SCALES else None
