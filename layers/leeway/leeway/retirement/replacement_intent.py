"""The replacement that a retirement requests, as the retirement record stores it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """A zone of the group in which the replacement may be launched, and why."""

    zone: str
    why: Reason


class Method(StrEnum):
    """How a retirement gets its instance replaced.

    - `nothing`: no replacement is requested.
    - `left-to-owner`: the owner of the instance replaces it.
    - `terminate-in-group`: TerminateInstanceInAutoScalingGroup without a decrement. The group
      launches a replacement at once, and a terminate hook holds the instance during the drain.
    - `launch-successor`: LaunchInstances adds one instance to the group, and returns its id. After
      the drain, the instance is terminated with a decrement.
    - `detach`: DetachInstances without a decrement. Leeway terminates the instance after the drain.
    """

    NOTHING = "nothing"
    LEFT_TO_OWNER = "left-to-owner"
    TERMINATE_IN_GROUP = "terminate-in-group"
    LAUNCH = "launch-successor"
    DETACH = "detach"


@dataclass(frozen=True, slots=True)
class Successor:
    """The instance that replaces a retiring instance; `why` says why it is in this zone."""

    instance: str
    instance_type: str
    zone: str
    why: Reason


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
    reason: Reason
    requested_at: AwareDatetime
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
