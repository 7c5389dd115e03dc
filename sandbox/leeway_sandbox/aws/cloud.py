"""State that all parts of the embedded AWS share: the lock, timers, journal and faults."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from moto.ec2.models.instances import Instance

from leeway_sandbox.aws.faults import Faults
from leeway_sandbox.aws.timers import Timers
from leeway_sandbox.journal import Journal

ACCOUNT = "123456789012"

InstanceObserver = Callable[[Instance, str], None]


@dataclass(frozen=True)
class Delays:
    """Durations in seconds. They are much shorter than AWS's, so that a rehearsal is short."""

    instance_start: float = 1.0  # pending → running
    instance_stop: float = 1.0  # shutting-down → terminated, stopping → stopped
    health_check: float = 2.0  # until a group notices that an instance does not run
    reaction: float = 0.5  # until a group replaces a lost instance
    detach: float = 1.0  # Detaching → out of the group
    minimum_heartbeat: int = 30  # the shortest heartbeat timeout of a hook


@dataclass
class Cloud:
    """One account in one region, and the lock that every reader and writer of moto's models holds.

    moto's models are not thread-safe, so each request and each timed callback holds this reentrant
    lock. It costs no speed, because the interpreter runs one thread at a time.
    """

    region: str
    delays: Delays = field(default_factory=Delays)
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
        """Call every observer with the present state of the instance."""
        for observer in self._observers:
            observer(instance, instance.state)
