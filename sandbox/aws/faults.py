"""Errors, latency, duplicates and losses that somebody asked for."""

import random
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, le=1)]


class Fault(BaseModel):
    """One thing that goes wrong.

    `service` and `action` are globs over names as in IAM (`ec2`, `Describe*`). Three actions are
    not APIs: `events`/`Deliver` is a delivery to a target (`latency`, `copies` and `drop` apply
    there, `detail_type` says to which events), `scheduler`/`Deliver` is the same for what schedules
    send when they are due, `autoscaling`/`Launch` is a launch of instances in a group, by itself or
    by LaunchInstances, and `ec2`/`Launch` is a launch of a fleet in one of its pools
    (`instance_type`, `zone` and `capacity_type` say of which; `spot` or `on-demand`). Of an API
    call, `drop` closes the connection after the action is done.
    """

    model_config = ConfigDict(extra="forbid")

    service: str
    action: str = "*"
    detail_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"
    error: str | None = None
    message: str = "Injected by the sandbox"
    status: int = Field(default=400, ge=400, le=599)
    when: Literal["before", "after"] = "before"  # after: the action is done, its answer is lost
    rate: Fraction = 1.0
    count: int | None = Field(default=None, ge=0)
    latency: float = Field(default=0, ge=0)  # seconds
    jitter: float = Field(default=0, ge=0)  # seconds, added at random to the latency
    copies: int = Field(default=1, ge=1)
    drop: bool = False

    def meets(self, service: str, action: str, detail_type: str) -> bool:
        """Whether it may hit this."""
        return (
            fnmatchcase(service, self.service)
            and fnmatchcase(action, self.action)
            and fnmatchcase(detail_type, self.detail_type)
        )


class Faults:
    """The faults in force, in order: the first one that matches and whose dice fall is taken."""

    def __init__(self, dice: random.Random):
        self._dice = dice
        self._lock = threading.Lock()
        self._current: list[Fault] = []

    def replace(self, faults: list[Fault]) -> None:
        """Put these in force instead."""
        with self._lock:
            self._current = faults

    def show(self) -> list[dict[str, Any]]:
        """The faults in force, with what is left of their counts."""
        with self._lock:
            return [fault.model_dump() for fault in self._current]

    def strike(self, service: str, action: str, detail_type: str = "") -> Fault | None:
        """The fault that hits this call or delivery, if one does; uses up one of its count."""
        return self._strike(lambda fault: fault.meets(service, action, detail_type))

    def strike_launch(
        self, service: str, instance_type: str, zone: str, capacity_type: str
    ) -> Fault | None:
        """The fault that hits a launch of this type in this zone, if one does: by a group
        (`autoscaling`) or by a fleet (`ec2`)."""
        return self._strike(
            lambda fault: (
                fault.meets(service, "Launch", "")
                and fnmatchcase(instance_type, fault.instance_type)
                and fnmatchcase(zone, fault.zone)
                and fnmatchcase(capacity_type, fault.capacity_type)
            )
        )

    def _strike(self, meets: Callable[[Fault], bool]) -> Fault | None:
        if not self._current:
            return None
        with self._lock:
            for fault in self._current:
                if not meets(fault):
                    continue
                if fault.count == 0 or self._dice.random() >= fault.rate:
                    continue
                if fault.count is not None:
                    fault.count -= 1
                return fault
        return None

    def delay(self, fault: Fault) -> float:
        """Seconds that this fault costs, this time."""
        return fault.latency + (self._dice.uniform(0, fault.jitter) if fault.jitter else 0)
