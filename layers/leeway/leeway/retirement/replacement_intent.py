"""The replacement that a retirement requests, as its record stores it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """A zone of a group, and why it is asked."""

    zone: str
    why: str


class Method(StrEnum):
    """What is done so that a successor starts.

    `launch-successor` has the group launch one more instance, by LaunchInstances, whose id is known
    at once, and ends this one, with a decrement, when its pods have gone.
    """

    NOTHING = "nothing"
    LEFT_TO_OWNER = "left-to-owner"
    TERMINATE_IN_GROUP = "terminate-in-group"
    LAUNCH = "launch-successor"
    DETACH = "detach"


@dataclass(frozen=True, slots=True)
class Successor:
    """An instance that was launched for one that retires; `why` says why in this zone."""

    instance: str
    instance_type: str
    zone: str
    why: str

    def __str__(self) -> str:
        return f"{self.instance}, {self.instance_type} in {self.zone}: {self.why}"


class ReplacementIntent(BaseModel):
    """The replacement that a retirement requests; written before the request.

    With the method `launch-successor`, the retirement calls LaunchInstances in `zones`, one zone
    after the other, with client tokens of this `attempt`. Other methods have no zones.

    - `units`: how much of the group's capacity the instance is. `desired`: the least desired
      capacity of the group after the launch, in the same units.
    - `to_restore`: the group may be larger because of the launch, and its desired capacity must be
      lowered again. `ending`: the request to the group that terminates the instance and lowers the
      capacity is being made.
    - `detached`: the group has detached the instance. Only then may Leeway terminate it.
    - `settled`: Leeway has nothing more to do to terminate the detached instance. `failures`: how
      often the node was drained and the termination failed.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    method: Method
    reason: str
    asked_at: AwareDatetime
    group: str = ""
    zones: tuple[ZoneChoice, ...] = ()
    attempt: int = 1
    units: int = 1
    desired: int = 0
    successors: tuple[Successor, ...] = ()
    to_restore: bool = False
    ending: bool = False
    detached: bool = False
    settled: bool = False
    failures: Annotated[int, Field(ge=0)] = 0
