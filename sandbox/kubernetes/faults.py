"""Makes the API fail on command: statuses, lost connections, latency, refusal, a wrong clock."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from sandbox.kubernetes.wall import WALL


@dataclasses.dataclass(slots=True)
class Fault:
    """One way to fail; `rate` is the share of matching calls, `left` how often it still may."""

    verb: str
    resource: str
    status: int
    drop: str
    retry_after: int
    rate: float
    left: int | None
    latency: float


class Faults:
    """The faults that hold now. ValueError for what can't be understood."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: list[Fault] = []
        self.refusing = False

    def replace(self, faults: list[dict[str, Any]]) -> None:
        """Replace all faults by these."""
        calls = [one for one in faults if not one.keys() & {"refuse", "clock"}]
        read = [_read(one) for one in calls]
        ahead = sum(float(one.get("clock", 0)) for one in faults)
        self.refusing = any(one.get("refuse") for one in faults)
        self._faults = read
        WALL.ahead = ahead

    def strike(self, verb: str, resource: str) -> Fault | None:
        """Return the fault that this call meets, and count it."""
        for fault in self._faults:
            if fault.left == 0 or not _matches(fault, verb, resource):
                continue
            if fault.rate < 1 and self._random.random() >= fault.rate:
                continue
            if fault.left is not None:
                fault.left -= 1
            return fault
        return None


def _matches(fault: Fault, verb: str, resource: str) -> bool:
    return fault.verb in ("*", verb) and fault.resource in ("*", resource)


def _read(one: dict[str, Any]) -> Fault:
    known = {"verb", "resource", "status", "drop", "retryAfter", "rate", "count", "latency"}
    unknown = one.keys() - known
    if unknown:
        raise ValueError(f"unknown field of a fault: {', '.join(sorted(unknown))}")
    drop = one.get("drop", False)
    if drop not in (False, True, "before"):
        raise ValueError('drop must be true (midway through the answer) or "before"')
    return Fault(
        verb=one.get("verb", "*"),
        resource=one.get("resource", "*"),
        status=int(one.get("status", 0)),
        drop="midway" if drop is True else str(drop or ""),
        retry_after=int(one.get("retryAfter", 1)),
        rate=float(one.get("rate", 1.0)),
        left=int(one["count"]) if "count" in one else None,
        latency=float(one.get("latency", 0.0)),
    )
