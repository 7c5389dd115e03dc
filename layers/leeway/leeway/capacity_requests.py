"""The request of a retirement for capacity, and the answer of provision_nodes.

The request names no pods: provision_nodes reads those that still run on the node. So a run that
comes late, or twice, requests nothing for pods that have moved.
"""

from datetime import datetime, timedelta
from typing import Annotated, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.reasons import Reason
from leeway.table import Record


class CapacityAnswer(BaseModel):
    """The answer to a request.

    - `launched`: the instances that were launched, now or before, for pods of the node or on which
      they have a place. An instance whose Node retires, is cordoned or not Ready is left out.
    - `existing`: how many of its pods have a place on other nodes that were ready for pods.
    - `without_node`: why some of its pods have no place; empty if all have one.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    answered_at: AwareDatetime
    launched: tuple[str, ...] = ()
    existing: Annotated[int, Field(ge=0)] = 0
    without_node: tuple[Reason, ...] = ()


class PriceLimit(BaseModel):
    """The limit of what is launched for pods that move to save money: together it costs less than
    `below` (USD per hour). All nodes that are given back together have the same `decision`. `own`
    is what the node costs whose pods move, None if it is not known: if some of these nodes stay
    after all, what is launched costs less than the others."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    decision: str
    below: float
    own: float | None = None


class CapacityRequest(BaseModel):
    """The request for capacity for the pods of a node that retires.

    - `instance`, `node`: the retiring instance and the name of its node. The name is empty if EC2
      interrupts an instance that has not joined: it has no pods, and its place is no longer
      promised to pods that wait.
    - `instance_type`, `zone`, `capacity_type`: its offering, which is not launched for it, unless
      it `keeps_offering`.
    - `attempt`: the attempt of the retirement that requests.
    - `ends_at`: when the request ends, whatever became of it.
    - `price_limit`: that of what is launched for pods that are still on the node, None for none.
    - `in_place`: a static pool launches a node in the place of this one, and the node goes only
      when that one is Ready, whether or not it has pods.
    - `version`: counts writes (the optimistic lock).
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    instance: str
    node: str
    instance_type: str
    zone: str
    capacity_type: str
    attempt: Annotated[int, Field(ge=1)]
    requested_at: AwareDatetime
    ends_at: AwareDatetime
    version: Annotated[int, Field(ge=1)] = 1
    answer: CapacityAnswer | None = None
    keeps_offering: bool = False
    price_limit: PriceLimit | None = None
    in_place: bool = False

    def is_open(self, now: datetime) -> bool:
        """Whether nodes are launched for it at the time `now`."""
        return now < self.ends_at

    def answered(self, answer: CapacityAnswer) -> "CapacityRequest":
        """Return the request with an answer, which replaces an earlier one."""
        return self.model_copy(update={"answer": answer, "version": self.version + 1})

    def ended(self, now: datetime) -> "CapacityRequest":
        """Return the request as its retirement ends it at the time `now`."""
        return self.model_copy(update={"ends_at": now, "version": self.version + 1})


CAPACITY_REQUEST = Record(
    CapacityRequest,
    "CAPACITY#{cluster}",
    "RETIREMENT#{instance}",
    versioned=True,
    kept_for=lambda request: request.ends_at + timedelta(days=1),
)
"""A request is kept for a day after its end, for `leeway status`."""


class ProvisionNodes(Protocol):
    """The queue of the function provision_nodes."""

    def wake(self, cluster: str, why: str, at: datetime | None = None) -> None:
        """Request a run for a cluster, asynchronously, at this time (aware) or up to three seconds
        later, or now. `why` is for the log of the run: the run itself reads what is to do. One run
        may serve several calls."""
        ...
