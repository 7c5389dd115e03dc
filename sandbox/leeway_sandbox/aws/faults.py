"""Injected faults: errors, latency, duplicates, losses, and kills of callers."""

import random
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from leeway_sandbox.access_entries import access_key
from leeway_sandbox.aws.calls import Call

Fraction = Annotated[float, Field(ge=0, le=1)]


class Fault(BaseModel):
    """One fault.

    `service` and `action` are patterns of IAM names (`ec2`, `Describe*`). Three actions are not
    APIs. `events`/`Deliver` is the delivery of an event to a target: `latency`, `copies` and `drop`
    apply, `detail_type` selects the events. `scheduler`/`Deliver` is the same for schedules.
    `autoscaling`/`Launch` is a launch of a group or of LaunchInstances, `ec2`/`Launch` is a launch
    of a fleet in one of its pools: `instance_type`, `zone` and `capacity_type` (`spot` or
    `on-demand`) select the launches; a pool of a fleet launches `launched` instances before its
    error. For an API call, `drop` closes the connection after the action is done; `kill` kills the
    function that calls, before or after the action, and passes over the calls of Lambda's pollers;
    `function` selects the calls of one function; `skip` is the number of calls that pass first.
    """

    model_config = ConfigDict(extra="forbid")

    service: str
    action: str = "*"
    detail_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"
    error: str | None = None
    launched: int = Field(default=0, ge=0)
    message: str = "Injected by the sandbox"
    status: int = Field(default=400, ge=400, le=599)
    when: Literal["before", "after"] = "before"  # after: the action is done and its answer is lost
    rate: Fraction = 1.0
    count: int | None = Field(default=None, ge=0)
    latency: float = Field(default=0, ge=0)  # seconds
    jitter: float = Field(default=0, ge=0)  # seconds, added at random to the latency
    copies: int = Field(default=1, ge=1)
    drop: bool = False
    kill: bool = False
    function: str | None = None
    skip: int = Field(default=0, ge=0)

    def matches(self, service: str, action: str, detail_type: str) -> bool:
        """Whether the fault applies to this call or delivery."""
        return (
            fnmatchcase(service, self.service)
            and fnmatchcase(action, self.action)
            and fnmatchcase(detail_type, self.detail_type)
        )


class Faults:
    """The present faults. The first one that matches, with its probability, applies."""

    def __init__(self, dice: random.Random):
        self._dice = dice
        self._lock = threading.Lock()
        self._current: list[Fault] = []

    def replace(self, faults: list[Fault]) -> None:
        """Replace all faults."""
        with self._lock:
            self._current = faults

    def show(self) -> list[dict[str, Any]]:
        """Return the present faults with their remaining counts."""
        with self._lock:
            return [fault.model_dump() for fault in self._current]

    def take(self, service: str, action: str, detail_type: str = "") -> Fault | None:
        """Return the fault that applies to a delivery, and decrement its count."""
        return self._take(lambda fault: fault.matches(service, action, detail_type))

    def take_call(self, call: Call) -> Fault | None:
        """Return the fault that applies to a call, and decrement its count."""
        return self._take(
            lambda fault: (
                fault.matches(call.service, call.action, "")
                and (fault.function is None or access_key(fault.function) == call.access_key)
                and not (fault.kill and call.polling)
            )
        )

    def take_launch(
        self, service: str, instance_type: str, zone: str, capacity_type: str
    ) -> Fault | None:
        """Return the fault that applies to a launch of this type in this zone, by a group
        (`autoscaling`) or by a fleet (`ec2`)."""
        return self._take(
            lambda fault: (
                fault.matches(service, "Launch", "")
                and fnmatchcase(instance_type, fault.instance_type)
                and fnmatchcase(zone, fault.zone)
                and fnmatchcase(capacity_type, fault.capacity_type)
            )
        )

    def _take(self, matches: Callable[[Fault], bool]) -> Fault | None:
        if not self._current:
            return None
        with self._lock:
            for fault in self._current:
                if not matches(fault):
                    continue
                if fault.count == 0 or self._dice.random() >= fault.rate:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.count is not None:
                    fault.count -= 1
                return fault
        return None

    def delay(self, fault: Fault) -> float:
        """Return the latency of a fault, with random jitter, in seconds."""
        return fault.latency + (self._dice.uniform(0, fault.jitter) if fault.jitter else 0)
