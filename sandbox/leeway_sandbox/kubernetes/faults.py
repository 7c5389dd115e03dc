"""Injected faults of the API: statuses, lost connections, latency, closed port, wrong clock."""

from __future__ import annotations

import random
from typing import Annotated, Literal

import msgspec

from leeway_sandbox.kubernetes.clock import CLOCK

type Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Fault(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """One fault.

    `rate` is the share of matching calls, `count` the remaining number of times. `drop` closes the
    connection in the middle of the answer, or, with "before", before the call is handled. `hold`
    applies to evictions: the seconds between the decrement of the budget and the deletion of the
    pod; a client that disconnects meanwhile cancels the deletion. `refuse` closes the port, and
    `clock` moves the dates of the server by seconds. `no_devices` stops the device plugins: nodes
    that join offer no devices until the fault is removed. These three apply to no call.
    """

    verb: str = "*"
    resource: str = "*"
    status: int = 0
    drop: bool | Literal["before"] = False
    retry_after: int = 1
    rate: Share = 1.0
    count: int | None = None
    latency: float = 0.0
    hold: float = 0.0
    refuse: bool = False
    clock: float = 0.0
    no_devices: bool = False

    def matches(self, verb: str, resource: str) -> bool:
        """Whether the fault applies to this call."""
        about_calls = not (self.refuse or self.clock or self.no_devices)
        return about_calls and self.verb in ("*", verb) and self.resource in ("*", resource)


class Faults:
    """The present faults."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: list[Fault] = []
        self.refusing = False
        self.without_devices = False

    def replace(self, faults: list[Fault]) -> None:
        """Replace all faults."""
        self._faults = faults
        self.refusing = any(fault.refuse for fault in faults)
        self.without_devices = any(fault.no_devices for fault in faults)
        CLOCK.ahead = sum(fault.clock for fault in faults)

    def take(self, verb: str, resource: str) -> Fault | None:
        """Return the fault that applies to this call, and decrement its count."""
        for fault in self._faults:
            if fault.count == 0 or not fault.matches(verb, resource):
                continue
            if fault.rate < 1 and self._random.random() >= fault.rate:
                continue
            if fault.count is not None:
                fault.count -= 1
            return fault
        return None
