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
    - `request-capacity`: provision_nodes launches nodes of Leeway's pools for the pods of the node.
    """

    NOTHING = "nothing"
    LEFT_TO_OWNER = "left-to-owner"
    TERMINATE_IN_GROUP = "terminate-in-group"
    LAUNCH = "launch-successor"
    DETACH = "detach"
    REQUEST_CAPACITY = "request-capacity"


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

    - `group`: the group of the instance, empty if it has none.

    - `units`: how much of the group's capacity the instance is. `desired`: the least desired
      capacity of the group after the launch, in the same units.
    - `to_restore`: a successor was requested in addition to the group's desired capacity, so the
      group must still terminate the instance with a decrement. `ending`: this request is being
      made.
    - `to_terminate`: Leeway itself terminates the instance after the drain, because its group has
      detached it or because Leeway has launched it. It terminates no other instance itself.
    - `settled`: Leeway has nothing more to do for this termination. `failures`: how often the node
      was drained and the termination failed.
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
    to_terminate: bool = False
    settled: bool = False
    failures: Annotated[int, Field(ge=0)] = 0
