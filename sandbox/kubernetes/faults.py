"""Makes the API fail on command: statuses, lost connections, latency, refusal, a wrong clock."""

from __future__ import annotations

import random
from typing import Annotated, Literal

import msgspec

from sandbox.kubernetes.clock import CLOCK

type Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Fault(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """One way to fail.

    `rate` is the share of matching calls, `count` how often it still may; `drop` loses the answer
    midway, or the call before it is carried out. `hold` is for evictions: so many seconds pass
    between the budget's decrement and the pod's deletion, and a client that disconnects meanwhile
    cancels the deletion. One that says `refuse` or `clock` is about no call: the port is closed, or
    dates are so many seconds ahead.
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

    def meets(self, verb: str, resource: str) -> bool:
        """Whether it may hit this call."""
        about_calls = not (self.refuse or self.clock)
        return about_calls and self.verb in ("*", verb) and self.resource in ("*", resource)


class Faults:
    """The faults that hold now."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: list[Fault] = []
        self.refusing = False

    def replace(self, faults: list[Fault]) -> None:
        """Replace all faults by these."""
        self._faults = faults
        self.refusing = any(fault.refuse for fault in faults)
        CLOCK.ahead = sum(fault.clock for fault in faults)

    def strike(self, verb: str, resource: str) -> Fault | None:
        """Return the fault that this call meets, and count it."""
        for fault in self._faults:
            if fault.count == 0 or not fault.meets(verb, resource):
                continue
            if fault.rate < 1 and self._random.random() >= fault.rate:
                continue
            if fault.count is not None:
                fault.count -= 1
            return fault
        return None
