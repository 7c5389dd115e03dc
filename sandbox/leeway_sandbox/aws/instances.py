"""EC2 instances that take time to start, stop and terminate, with an event for each state.

In moto an instance changes its state within the call.
"""

from typing import Any, ClassVar

from moto.core.utils import utcnow
from moto.ec2.exceptions import OperationNotPermitted4
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance, InstanceState, Reservation, StateReason

from leeway_sandbox.aws import addresses, spot, subnets
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.instance_index import IndexedInstances
from leeway_sandbox.aws.notices import state_change
from leeway_sandbox.errors import NotFoundError

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


class TimedInstances(IndexedInstances):
    """moto's EC2, in which instances take time to start, stop and terminate."""

    cloud: ClassVar[Cloud]

    def run_instances(self, image_id: str, count: int, *args: Any, **kwargs: Any) -> Reservation:
        """Launch instances; they are pending first and run after the start time."""
        subnets.check_free_addresses(self, kwargs.get("subnet_id"), count)
        reservation = super().run_instances(image_id, count, *args, **kwargs)
        for instance in reservation.instances:
            if instance.lifecycle == "spot":
                spot.request_for(instance)
            self._enter(instance, "pending")
            self._later(self.cloud.delays.instance_start, instance, "pending", "running")
        return reservation

    def terminate_instances(
        self, instance_ids: list[str], reason: tuple[str, str] = USER
    ) -> list[tuple[Instance, InstanceState]]:
        """Start to shut instances down; `reason` is EC2's code and message of the state."""
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
                self.cloud.timers.after(self.cloud.delays.instance_stop, self._end, instance)
        return ended

    def stop_instances(self, instance_ids: list[str]) -> list[tuple[Instance, InstanceState]]:
        """Stop instances; they are stopping first."""
        stopped = super().stop_instances(instance_ids)
        for instance, _ in stopped:
            self._enter(instance, "stopping")
            self._later(self.cloud.delays.instance_stop, instance, "stopping", "stopped")
        return stopped

    def start_instances(self, instance_ids: list[str]) -> list[tuple[Instance, InstanceState]]:
        """Start instances; they are pending first. Each start sets the launch time, as in EC2."""
        started = super().start_instances(instance_ids)
        for instance, _ in started:
            instance.launch_time = utcnow()
            spot.mark(instance, "active", "fulfilled")
            self._enter(instance, "pending")
            self._later(self.cloud.delays.instance_start, instance, "pending", "running")
        return started

    def _enter(self, instance: Instance, state: str) -> None:
        instance.instance_state.name, instance.instance_state.code = state, STATES[state]
        self.cloud.instance_changed(instance)

    def _later(self, seconds: float, instance: Instance, while_in: str, state: str) -> None:
        def move() -> None:
            if instance.state == while_in:
                self._enter(instance, state)

        self.cloud.timers.after(seconds, move)

    def _end(self, instance: Instance) -> None:
        reason = instance.state_reason
        instance.terminate()  # moto deletes volumes and interfaces
        instance.state_reason = reason
        self._enter(instance, "terminated")
        self.cloud.timers.after(FORGOTTEN_AFTER, self._forget, instance)

    def _forget(self, instance: Instance) -> None:
        spot.forget(instance)
        self.forget(instance)


def install(cloud: Cloud, bus: EventBus) -> None:
    """Let moto use this backend; add every change of state to the journal and send its event."""
    TimedInstances.cloud = cloud
    ec2_backends.backend = TimedInstances
    addresses.install()

    def state_changed(instance: Instance, state: str) -> None:
        group = tag(instance, "aws:autoscaling:groupName")
        cloud.journal.add("instance-state", instance=instance.id, state=state, group=group)
        bus.emit(state_change(instance, state))

    cloud.watch_instances(state_changed)


def tag(instance: Instance, key: str) -> str | None:
    """Return the value of a tag of the instance, or None."""
    return tags(instance).get(key)


def tags(instance: Instance) -> dict[str, str]:
    """Return the tags of the instance."""
    return dict(instance.ec2_backend.tags.get(instance.id, {}))


def find(cloud: Cloud, instance_id: str) -> tuple[TimedInstances, Instance]:
    """Return an instance with its EC2 backend; NotFoundError if EC2 has no such instance."""
    ec2 = ec2_backends[ACCOUNT][cloud.region]
    assert isinstance(ec2, TimedInstances)
    instance = ec2.get_instance_by_id(instance_id)
    if instance is None:
        raise NotFoundError(f"EC2 has no instance {instance_id}.")
    return ec2, instance
