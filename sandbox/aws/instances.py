"""Gives instances a life in time: pending, running, shutting-down, terminated, each with its event.

Stands in for time in moto's EC2, where an instance runs, stops and ends within the call.
"""

from types import ModuleType
from typing import Any, ClassVar

import moto.ec2.urls
from moto.core.utils import utcnow
from moto.ec2.exceptions import OperationNotPermitted4
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance, InstanceState, Reservation, StateReason

from sandbox.aws import addresses, spot, subnets
from sandbox.aws.cloud import Cloud
from sandbox.aws.eventbridge import EventBus
from sandbox.aws.lookup import QuickLookup
from sandbox.aws.notices import state_change
from sandbox.control import UnknownError

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html
STATES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
ENDING = {"shutting-down", "terminated"}
FORGOTTEN_AFTER = 3600  # seconds that a terminated instance stays visible, as in EC2

USER = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
SPOT = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot Instance reclaimed")
RESERVATION = (
    "Server.InsufficientInstanceCapacity",
    "Server.InsufficientInstanceCapacity: The reservation's capacity was reclaimed",
)


class UnknownInstance(UnknownError):
    """There is no such instance, or it does not run any more."""


class LivingInstances(QuickLookup):
    """moto's EC2, in which instances take time to start and to end."""

    cloud: ClassVar[Cloud]

    @property
    def _url_module(self) -> ModuleType:
        return moto.ec2.urls

    def run_instances(self, image_id: str, count: int, *args: Any, **kwargs: Any) -> Reservation:
        """As moto does; the instances are pending first and run a moment later."""
        subnets.check_free_addresses(self, kwargs.get("subnet_id"), count)
        reservation = super().run_instances(image_id, count, *args, **kwargs)
        for instance in reservation.instances:
            if instance.lifecycle == "spot":
                spot.request_for(instance)
            self._enter(instance, "pending")
            self._later(self.cloud.pace.instance_start, instance, "pending", "running")
        return reservation

    def terminate_instances(
        self, instance_ids: list[str], reason: tuple[str, str] = USER
    ) -> list[tuple[Instance, InstanceState]]:
        """Begin to shut instances down; `reason` is EC2's code and message for the state."""
        instances = self.get_multi_instances_by_id(instance_ids)
        for instance in instances:
            if instance.disable_api_termination is True:
                raise OperationNotPermitted4(instance.id)
        ended = []
        for instance in instances:
            ended.append((instance, InstanceState(instance.state, instance.state_code)))
            if instance.state not in ENDING:
                instance.state_reason = StateReason(reason[1], reason[0])
                self._enter(instance, "shutting-down")
                self.cloud.timers.after(self.cloud.pace.instance_stop, self._end, instance)
        return ended

    def stop_instances(self, instance_ids: list[str]) -> list[tuple[Instance, InstanceState]]:
        """As moto does, by way of stopping."""
        stopped = super().stop_instances(instance_ids)
        for instance, _ in stopped:
            self._enter(instance, "stopping")
            self._later(self.cloud.pace.instance_stop, instance, "stopping", "stopped")
        return stopped

    def start_instances(self, instance_ids: list[str]) -> list[tuple[Instance, InstanceState]]:
        """As moto does, by way of pending; EC2 counts a launch from each start."""
        started = super().start_instances(instance_ids)
        for instance, _ in started:
            instance.launch_time = utcnow()
            spot.mark(instance, "active", "fulfilled")
            self._enter(instance, "pending")
            self._later(self.cloud.pace.instance_start, instance, "pending", "running")
        return started

    def _enter(self, instance: Instance, state: str) -> None:
        instance._state = InstanceState(state, STATES[state])
        self.cloud.instance_changed(instance)

    def _later(self, seconds: float, instance: Instance, while_in: str, state: str) -> None:
        def move() -> None:
            if instance.state == while_in:
                self._enter(instance, state)

        self.cloud.timers.after(seconds, move)

    def _end(self, instance: Instance) -> None:
        reason = instance.state_reason
        instance.terminate()  # moto takes volumes and interfaces away
        instance.state_reason = reason
        self._enter(instance, "terminated")
        self.cloud.timers.after(FORGOTTEN_AFTER, self._forget, instance)

    def _forget(self, instance: Instance) -> None:
        spot.forget(instance)
        self.forget(instance)


def install(cloud: Cloud, bus: EventBus) -> None:
    """Put living instances in moto's place; journal and emit every change of state."""
    LivingInstances.cloud = cloud
    ec2_backends.backend = LivingInstances
    addresses.install()
    spot.install()

    def tell(instance: Instance, state: str) -> None:
        group = tag(instance, "aws:autoscaling:groupName")
        cloud.journal.add("instance-state", instance=instance.id, state=state, group=group)
        bus.emit(state_change(instance, state))

    cloud.watch_instances(tell)


def tag(instance: Instance, key: str) -> str | None:
    """The value of one of the instance's tags, or None."""
    return tags(instance).get(key)


def tags(instance: Instance) -> dict[str, str]:
    """The instance's tags by key."""
    return dict(instance.ec2_backend.tags.get(instance.id, {}))


def find(instance_id: str, region: str, account: str) -> LivingInstances | None:
    """The EC2 of the region, if it has this instance."""
    ec2 = ec2_backends[account][region]
    assert isinstance(ec2, LivingInstances)
    return ec2 if ec2.get_instance_by_id(instance_id) else None
