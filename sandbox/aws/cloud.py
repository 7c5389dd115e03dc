"""What the parts of the embedded AWS share: the lock, the clock of things to come, the records."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from moto.ec2.models.instances import Instance

from sandbox.aws.faults import Faults
from sandbox.aws.timers import Timers
from sandbox.journal import Journal

ACCOUNT = "123456789012"

InstanceObserver = Callable[[Instance, str], None]


@dataclass(frozen=True)
class Pace:
    """How long things take, in seconds. Far quicker than life, so that a rehearsal is short."""

    instance_start: float = 1.0  # pending → running
    instance_stop: float = 1.0  # shutting-down → terminated, stopping → stopped
    health_check: float = 2.0  # until a group sees that an instance is dead
    reaction: float = 0.5  # until a group replaces what it lost
    detach: float = 1.0  # Detaching → out of the group
    minimum_heartbeat: int = 30  # the shortest heartbeat timeout a hook may ask for


@dataclass
class Cloud:
    """One account in one region, and the lock that every reader and writer of moto's models holds.

    moto's models are not thread-safe. A reentrant lock round each request and each timed callback
    makes them so, and costs nothing: the interpreter runs one thread at a time anyway.
    """

    region: str
    pace: Pace = field(default_factory=Pace)
    seed: int | None = None

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.random = random.Random(self.seed)
        self.journal = Journal()
        self.timers = Timers(self.lock)
        self.faults = Faults(random.Random(self.seed))
        self._observers: list[InstanceObserver] = []

    def watch_instances(self, observer: InstanceObserver) -> None:
        """Call `observer(instance, state)` after every change of an instance's state."""
        self._observers.append(observer)

    def instance_changed(self, instance: Instance) -> None:
        """Tell every observer the state that the instance has now."""
        for observer in self._observers:
            observer(instance, instance.state)
