"""The target groups of load balancers, which drain deregistered targets for a time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from leeway.ports.aws import Target, TargetGroup

from tests.fakes.clock import FakeClock


@dataclass
class FakeTargets:
    """The Targets Protocol for the target groups in `registered`: group → instance → port.

    `error` is raised by each read. `reads` are the groups that each read was about.
    """

    clock: FakeClock
    registered: dict[str, dict[str, int]] = field(default_factory=dict)
    delay: timedelta = timedelta(seconds=300)
    error: Exception | None = None
    reads: list[Collection[str] | None] = field(default_factory=list)
    _until: dict[tuple[str, str, int], datetime] = field(default_factory=dict)

    def deregister(self, group: str, instance: str) -> None:
        port = self.registered[group].pop(instance)
        self._until[group, instance, port] = self.clock.now() + self.delay

    def groups(self) -> Sequence[str]:
        self.reads.append(None)
        if self.error is not None:
            raise self.error
        return sorted({*self.registered, *(group for group, *_ in self._until)})

    def group(self, arn: str) -> TargetGroup:
        self.reads.append((arn,))
        states: dict[str, tuple[str, ...]] = {}
        states |= dict.fromkeys(self.registered.get(arn, {}), ("healthy",))
        for (group, instance, _), until in self._until.items():
            if group == arn and self.clock.now() < until:
                states[instance] = (*states.get(instance, ()), "draining")
        return TargetGroup(states, int(self.delay.total_seconds()) if states else 0)

    def of_instance(self, instance: str, among: Collection[str] | None = None) -> Sequence[Target]:
        self.reads.append(among)
        if self.error is not None:
            raise self.error
        now = self.clock.now()
        found = [
            Target(group, targets[instance], "healthy")
            for group, targets in self.registered.items()
            if instance in targets
        ]
        found += [
            Target(group, port, "draining")
            for (group, drained, port), until in self._until.items()
            if drained == instance and now < until
        ]
        return [one for one in found if among is None or one.group in among]
