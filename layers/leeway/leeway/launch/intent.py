"""The launch intent: one fleet request, written before the call and completed after the answer.

A run that ends in between leaves the request with its client token: the next run repeats it, and
EC2 launches nothing again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.launch.fleets import FleetRequest
from leeway.ports.kubernetes_objects import Taint

JOIN_WITHIN = timedelta(minutes=15)
"""How long a launched instance may take to join its cluster."""

REPEAT_WITHIN = timedelta(minutes=5)
"""How long after it was written a request without an answer is repeated. After that its instances
are found by their tag: the pods that needed them may have gone."""


@dataclass(frozen=True, slots=True)
class FleetInstance:
    """An instance that a fleet launched."""

    instance: str
    instance_type: str
    zone: str
    capacity_type: str


class LaunchIntent(BaseModel):
    """One fleet request, and the instances that it launched.

    `labels` are those of every node of the pool; `labels_for_admission` and `taints_for_admission`
    are those of the pool that admission puts on, and `startup_taints` the keys of taints that
    admission waits for. `templates` are the names of its launch templates. `pods` are those that
    the nodes are planned for. `efa`: the nodes have EFA interfaces. `request` is dropped when it
    has been answered. `admitted` are the instances whose admission was started. `version` counts
    writes (the optimistic lock).
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    cluster: str
    pool: str
    labels: Mapping[str, str] = Field(default_factory=dict)
    labels_for_admission: Mapping[str, str] = Field(default_factory=dict)
    taints_for_admission: tuple[Taint, ...] = ()
    startup_taints: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    efa: bool = False
    token: str
    created_at: AwareDatetime
    version: Annotated[int, Field(ge=1)] = 1
    request: FleetRequest | None
    instances: tuple[FleetInstance, ...] = ()
    admitted: frozenset[str] = frozenset()

    @property
    def is_answered(self) -> bool:
        """Whether the instances are known."""
        return self.request is None

    @property
    def to_admit(self) -> tuple[FleetInstance, ...]:
        """The instances whose admission has not been started."""
        return tuple(one for one in self.instances if one.instance not in self.admitted)

    def answered(self, instances: Iterable[FleetInstance]) -> "LaunchIntent":
        """Return the intent with the answer of its request."""
        return self._changed(request=None, instances=tuple(instances))

    def with_admissions(self, instances: Iterable[str]) -> "LaunchIntent":
        """Return the intent after the admission of these instances was started."""
        return self._changed(admitted=self.admitted | frozenset(instances))

    def may_repeat(self, now: datetime) -> bool:
        """Whether its request is repeated if there is no answer to it."""
        return now - self.created_at < REPEAT_WITHIN

    def may_join(self, now: datetime) -> bool:
        """Whether its instances may still join."""
        return now - self.created_at < JOIN_WITHIN

    def joining(self, now: datetime) -> tuple[FleetInstance, ...]:
        """Return its instances, as long as they may still join."""
        return self.instances if self.may_join(now) else ()

    def _changed(self, **fields: object) -> "LaunchIntent":
        return self.model_copy(update={**fields, "version": self.version + 1})
