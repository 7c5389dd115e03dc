"""Fleets in memory: they launch in the order of priorities and of the overrides."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import Lock

from leeway.instances.facts import INTENT_TAG
from leeway.launch.fleets import FleetAnswer, FleetError, FleetInstance, FleetRequest, Override
from leeway.ports.aws import CloudUnavailable


@dataclass(frozen=True)
class Shortage:
    """An error of each override that the patterns match."""

    code: str = "InsufficientInstanceCapacity"
    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"

    def hits(self, override: Override, capacity_type: str) -> bool:
        """Whether an override has the error."""
        return (
            fnmatchcase(override.instance_type, self.instance_type)
            and fnmatchcase(override.zone, self.zone)
            and fnmatchcase(capacity_type, self.capacity_type)
        )


@dataclass
class FleetsInMemory:
    """The Fleets Protocol. `reserved` is what capacity reservations have free, if that is limited.
    `exists` says whether there is a launch template; `free` are the free
    addresses of subnets that have few; `lost` answers never arrive, and `empty` ones name neither
    instances nor errors; `unknown` is the code for a template that does not exist. Instances that
    have `ended` do not run any more. The ids of instances count from `first`."""

    exists: Callable[[str], bool]
    shortages: list[Shortage] = field(default_factory=list)
    free: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    first: int = 0
    empty: int = 0
    refused: str = ""
    reserved: dict[str, int] = field(default_factory=dict)
    unknown: str = "InvalidLaunchTemplateName.NotFoundException"
    running: dict[str, FleetInstance] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    intents: dict[str, str] = field(default_factory=dict)
    requests: list[FleetRequest] = field(default_factory=list)
    _answers: dict[str, tuple[FleetRequest, FleetAnswer]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def create(self, request: FleetRequest, token: str) -> FleetAnswer:
        with self._lock:  # launches of several pools run concurrently
            return self._create(request, token)

    def _create(self, request: FleetRequest, token: str) -> FleetAnswer:
        self.requests.append(request)
        if self.refused:
            return _refusal(self.refused, request)
        if any(not self.exists(one.template) for one in request.templates):
            return _refusal(self.unknown, request)
        if token not in self._answers:
            self._answers[token] = (request, self._launch(request))
        known, answer = self._answers[token]
        if known != request:
            return _refusal("IdempotentParameterMismatch", request)
        if self.lost:
            self.lost -= 1
            raise CloudUnavailable("EC2 does not answer")
        if self.empty:
            self.empty -= 1
            return FleetAnswer((), ())
        return answer

    def launched_by(self, intent: str) -> list[FleetInstance]:
        with self._lock:
            ours = [one for name, one in self.running.items() if self.intents[name] == intent]
            return [one for one in ours if one.instance not in self.ended]

    def alive(self, instances: Collection[str]) -> frozenset[str]:
        with self._lock:
            return frozenset(instances) & (self.running.keys() - self.ended)

    def _launch(self, request: FleetRequest) -> FleetAnswer:
        launched: list[FleetInstance] = []
        errors: list[FleetError] = []
        for override in sorted(request.overrides, key=lambda one: one.priority or 0):
            missing = request.count - len(launched)
            if not missing:
                break
            code = next(
                (s.code for s in self.shortages if s.hits(override, request.capacity_type)), ""
            )
            room = 0 if code else min(missing, self.free.get(override.subnet, missing))
            reservation = request.reservation.id if request.reservation else ""
            if not code and self.reserved.get(reservation, room) < room:
                code, room = "ReservationCapacityExceeded", self.reserved[reservation]
            if reservation in self.reserved:
                self.reserved[reservation] -= room
            if override.subnet in self.free:
                self.free[override.subnet] -= room
            if not code and room < missing:
                code = "InsufficientFreeAddressesInSubnet"
            if code:
                errors.append(
                    FleetError(code, "none", request.capacity_type, override, reservation)
                )
            launched += [self._instance(override, request) for _ in range(room)]
        return FleetAnswer(tuple(launched), tuple(errors))

    def _instance(self, override: Override, request: FleetRequest) -> FleetInstance:
        name = f"i-{self.first + len(self.running):017x}"
        launched = FleetInstance(
            name, override.instance_type, override.zone, request.capacity_type, request.reservation
        )
        self.running[name] = launched
        self.intents[name] = request.tags.get(INTENT_TAG, "")
        return launched


def _refusal(code: str, request: FleetRequest) -> FleetAnswer:
    return FleetAnswer((), (FleetError(code, "refused", request.capacity_type),))
