"""The control API of the sandbox's AWS."""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from leeway_sandbox.aws import fault_injection
from leeway_sandbox.aws.authorization import Authorization
from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.eks import Access, ClusterAccess, link_cluster
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.faults import Fault
from leeway_sandbox.aws.instance_status import Impairment, Maintenance, announce, impair
from leeway_sandbox.aws.interruptions import Interruption, Interruptions
from leeway_sandbox.aws.nodes import NodeLink
from leeway_sandbox.aws.reservations import NewReservation, ReservationCalls, ReservationEnd
from leeway_sandbox.aws.stacks import DeployedStacks
from leeway_sandbox.aws.throttling import Throttle
from leeway_sandbox.control import ControlApi, Query
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.stack import Stack


class ClusterLink(BaseModel):
    """The endpoint of an EKS cluster, and the file with the certificate of its CA (PEM)."""

    endpoint: str
    ca_file: Path


class Links(BaseModel):
    """The other processes; each field adds to the links, or replaces links of the same name."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    kubernetes: dict[str, str] = Field(default_factory=dict)  # cluster → URL of its control API
    eks: dict[str, ClusterLink] = Field(default_factory=dict)
    lambda_: str | None = Field(default=None, alias="lambda")


class FaultList(BaseModel):
    """The faults that replace all present faults."""

    model_config = ConfigDict(extra="forbid")

    faults: list[Fault]


class ThrottleSwitch(BaseModel):
    """Whether token buckets limit the calls, and the share of the buckets that others leave."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool
    share: float = Field(default=1, gt=0, le=1)


class Authorized(BaseModel):
    """A call of another service, `lambda:InvokeFunction`, that the role of a function may allow."""

    model_config = ConfigDict(extra="forbid")

    access_key: str
    action: str


class ScheduleSpeed(BaseModel):
    """How many times faster than real time schedules run; 0: only on command."""

    model_config = ConfigDict(extra="forbid")

    speed: float = Field(ge=0)


class FireSchedule(BaseModel):
    """A schedule, by name or ARN, to run now."""

    model_config = ConfigDict(extra="forbid")

    name: str


class Control(ControlApi):
    """Lets the command line and tests control AWS and read its state."""

    def __init__(
        self,
        cloud: Cloud,
        bus: EventBus,
        nodes: NodeLink,
        throttle: Throttle,
        stacks: DeployedStacks,
        access: ClusterAccess,
        authorization: Authorization,
    ):
        super().__init__(
            cloud.journal,
            {
                "GET status": self._status,
                "GET faults": lambda _body, _query: {"faults": cloud.faults.show()},
                "PUT faults": self._put_faults,
                "PUT links": self._put_links,
                "PUT access": self._put_access,
                "POST stacks": self._add_stack,
                "POST authorize": self._authorize,
                "PUT throttle": self._put_throttle,
                "GET schedules": lambda _body, _query: self._show_schedules(),
                "PUT schedules": self._put_schedules,
                "POST schedules/fire": self._fire_schedule,
                "POST events": self._send,
                "POST interrupt": self._interrupt,
                "POST impair": self._impair,
                "POST maintenance": self._maintain,
                "POST reservations": self._add_reservation,
                "POST reservations/end": self._end_reservation,
            },
        )
        self._cloud, self._bus, self._nodes, self._throttle = cloud, bus, nodes, throttle
        self._stacks, self._access, self._authorization = stacks, access, authorization
        self._interruptions = Interruptions(cloud, bus)
        fault_injection.install(cloud, self._interruptions)
        self._started = time.time()
        self._counting = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()  # by access key and call
        self._reached: set[tuple[str, str, str]] = set()  # access key, call, and kind of record

    def link(self, links: Links) -> None:
        """Connect to other processes; raises OSError if a CA file cannot be read."""
        with self._cloud.lock:
            for name, cluster in links.eks.items():
                link_cluster(self._cloud, name, cluster.endpoint, cluster.ca_file)
        self._nodes.controls.update(links.kubernetes)
        if links.lambda_ is not None:
            self._bus.deliveries.lambda_url = links.lambda_.rstrip("/")

    def count(self, access_key: str, call: str, kinds: Iterable[str] = ()) -> None:
        """Count a call; `kinds` are the key prefixes that it reads or writes in a table."""
        with self._counting:
            self._calls[access_key, call] += 1
            self._reached.update((access_key, call, kind) for kind in kinds)

    def _status(self, _body: Any, _query: Query) -> Any:
        with self._counting:
            counts, reached = dict(self._calls), sorted(self._reached)
        calls: Counter[str] = Counter()
        by_access_key: dict[str, dict[str, int]] = {}
        for (access_key, call), count in counts.items():
            calls[call] += count
            by_access_key.setdefault(access_key, {})[call] = count
        kinds: dict[str, dict[str, list[str]]] = {}
        for access_key, call, kind in reached:
            kinds.setdefault(access_key, {}).setdefault(call, []).append(kind)
        return {
            "region": self._cloud.region,
            "uptime": time.time() - self._started,
            "journal": len(self._cloud.journal),
            "throttle": self._throttle.enabled,
            "throttled": dict(self._throttle.refused),
            "calls": calls,
            "calls_by_access_key": by_access_key,
            "records_by_access_key": kinds,
        }

    def _put_faults(self, body: Any, _query: Query) -> Any:
        self._cloud.faults.replace(FaultList.model_validate(body).faults)
        return {"faults": self._cloud.faults.show()}

    def _put_links(self, body: Any, _query: Query) -> Any:
        links = Links.model_validate(body)
        self.link(links)
        return links.model_dump(mode="json", by_alias=True)

    def _put_access(self, body: Any, _query: Query) -> Any:
        access = Access.model_validate(body)
        with self._cloud.lock:
            self._access.set(access)
        return {"entries": len(access.entries)}

    def _add_stack(self, body: Any, _query: Query) -> Any:
        stack = Stack.model_validate(body)
        with self._cloud.lock:
            self._stacks.add(stack)
        return {"resources": len(stack.resources)}

    def _authorize(self, body: Any, _query: Query) -> Any:
        asked = Authorized.model_validate(body)
        service, _, action = asked.action.partition(":")
        call = Call(service, action, self._cloud.region, asked.access_key, {})
        with self._cloud.lock:
            error = self._authorization.error_of(call)
        return {"problem": error[1] if error else ""}

    def _put_throttle(self, body: Any, _query: Query) -> Any:
        wanted = ThrottleSwitch.model_validate(body)
        self._throttle.switch(enabled=wanted.enabled, share=wanted.share)
        return wanted.model_dump()

    def _show_schedules(self) -> Any:
        schedule_clock = self._bus.schedule_clock
        with self._cloud.lock:
            return {"speed": schedule_clock.speed, "schedules": schedule_clock.show()}

    def _put_schedules(self, body: Any, _query: Query) -> Any:
        wanted = ScheduleSpeed.model_validate(body)
        with self._cloud.lock:
            self._bus.schedule_clock.set_speed(wanted.speed)
        return self._show_schedules()

    def _fire_schedule(self, body: Any, _query: Query) -> Any:
        wanted = FireSchedule.model_validate(body)
        with self._cloud.lock:
            return {"functions": self._bus.schedule_clock.fire(wanted.name)}

    def _send(self, body: Any, query: Query) -> Any:
        events = body if isinstance(body, list) else [body]
        if not all(isinstance(event, dict) and "source" in event for event in events):
            raise SandboxError("An event is a JSON object with at least a source.")
        copies = int(query.get("copies", 1))
        with self._cloud.lock:
            sent = [
                {"id": event.get("id"), "functions": self._bus.emit(event, copies)}
                for event in events
            ]
        return {"sent": sent}

    def _interrupt(self, body: Any, _query: Query) -> Any:
        command = Interruption.model_validate(body)
        with self._cloud.lock:
            return {"interruptions": self._interruptions.begin(command)}

    def _impair(self, body: Any, _query: Query) -> Any:
        command = Impairment.model_validate(body)
        with self._cloud.lock:
            return impair(self._cloud, command)

    def _add_reservation(self, body: Any, _query: Query) -> Any:
        command = NewReservation.model_validate(body)
        with self._cloud.lock:
            return {"reservation": ReservationCalls.reservations.add(command).id}

    def _end_reservation(self, body: Any, _query: Query) -> Any:
        command = ReservationEnd.model_validate(body)
        with self._cloud.lock:
            ReservationCalls.reservations.plan_end(command)
            return {}

    def _maintain(self, body: Any, _query: Query) -> Any:
        command = Maintenance.model_validate(body)
        with self._cloud.lock:
            return announce(self._cloud, command)
