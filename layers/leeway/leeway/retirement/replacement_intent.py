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
    """The replacement that a retirement asked for; written before the call that asks.

    A successor by name is asked for in `zones`, one after the other, each with its reason, with
    tokens of this `attempt`, and is as many `units` of its group's capacity as the instance.
    `desired` is what the group wants with it, at the least. No zones: none was asked for by name,
    or it has failed since, and its group launches another one. `to_restore` says that the group may
    be larger for it and is to be as large as before, `ending` that it is just being asked to end the
    instance for that. `detached` says that the group has let the instance go, so that Leeway has to
    end it: by this alone may it be terminated. `settled` says that Leeway has nothing more to do
    for that end, and `failures` how often its node was drained and it did not end.
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
