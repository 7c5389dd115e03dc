"""EC2 instances that take time to start, stop and terminate, with an event for each state.

In moto an instance changes its state within the call. moto walks through all instances, tags and
images to find one; with a thousand instances these walks took a third of the processor time of a
storm. Here an index has the instances by id.
"""

import copy
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

import moto.ec2.models.instances
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError, OperationNotPermitted4
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.instances import Instance, InstanceState, Reservation, StateReason
from moto.ec2.models.subnets import Subnet
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, filter_dict_attribute_mapping, get_prefix

from leeway_sandbox.aws import spot
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.notices import state_change
from leeway_sandbox.errors import NotFoundError

_SIDE = 254
"""Values of each of the last three bytes: 1 to 254."""

_STRIDE = 10_000_019
"""A prime, so that steps of this size visit every address once before one repeats."""


def addresses() -> Iterator[str]:
    """Yield the addresses of 10.0.0.0/8 without end, with consecutive ones far apart."""
    for number in count(1):
        place = number * _STRIDE % _SIDE**3
        first, rest = divmod(place, _SIDE**2)
        second, third = divmod(rest, _SIDE)
        yield f"10.{first + 1}.{second + 1}.{third + 1}"


def _install_addresses() -> None:
    """Let moto give these addresses to instances without a subnet."""
    drawn = addresses()
    vars(moto.ec2.models.instances)["random_private_ip"] = lambda: next(drawn)


class NoFreeAddresses(EC2ClientError):
    """EC2's error for a subnet with fewer free addresses than a launch needs."""

    def __init__(self, subnet: str) -> None:
        super().__init__(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{subnet}' to satisfy the requested "
            "number of instances.",
        )


def free_addresses(subnet: Subnet) -> int:
    """How many instances the subnet has addresses for."""
    return max(subnet.available_ip_address_count, 0)


def check_free_addresses(ec2: Any, subnet_id: str | None, count: int) -> None:
    """Raise EC2's error if a launch into a subnet needs more addresses than it has."""
    if subnet_id and free_addresses(ec2.get_subnet(subnet_id)) < count:
        raise NoFreeAddresses(subnet_id)


def _install_subnets(cloud: Cloud) -> None:
    """Give an instance's addresses back to its subnets when it has ended."""

    def changed(instance: Instance, state: str) -> None:
        if state == "terminated":
            _release(instance)

    cloud.watch_instances(changed)


def _release(instance: Instance) -> None:
    interfaces = instance.ec2_backend.enis
    for interface in instance.nics.values():
        interfaces.pop(interface.id, None)
        interface.subnet.del_subnet_ip(interface.private_ip_address)
    # Otherwise moto frees them again when it forgets the instance: another one may have them then.
    instance._private_ips.clear()


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


# The filter launch-time of DescribeInstances, by day or by hour, which moto lacks.
filter_dict_attribute_mapping["launch-time"] = "launched_in"
Instance.launched_in = property(  # type: ignore[attr-defined]
    lambda self: [f"{self.launch_time:%Y-%m-%d}*", f"{self.launch_time:%Y-%m-%dT%H}:*"]
)


class TimedInstances(EC2Backend):
    """moto's EC2, in which instances take time to start, stop and terminate, with an index of them;
    moto searches for instances that the index does not have."""

    cloud: ClassVar[Cloud]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._index: dict[str, tuple[Instance, Reservation]] = {}

    def run_instances(self, image_id: str, count: int, *args: Any, **kwargs: Any) -> Reservation:
        """Launch instances; they are pending first and run after the start time."""
        check_free_addresses(self, kwargs.get("subnet_id"), count)
        reservation = super().run_instances(image_id, count, *args, **kwargs)
        self._index |= {instance.id: (instance, reservation) for instance in reservation.instances}
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
        """Remove an instance from the index and from all descriptions."""
        spot.forget(instance)
        _, reservation = self._index.pop(instance.id)
        reservation.instances.remove(instance)
        if not reservation.instances:
            del self.reservations[reservation.id]
        self.tags.pop(instance.id, None)

    def get_instance(self, instance_id: str) -> Instance:
        """Return an instance; raise moto's error if it does not exist."""
        return self._find(instance_id) or super().get_instance(instance_id)

    def get_instance_by_id(self, instance_id: str) -> Instance | None:
        """Return an instance, or None."""
        return self._find(instance_id) or super().get_instance_by_id(instance_id)

    def _find(self, instance_id: str) -> Instance | None:
        if found := self._index.get(instance_id):
            return found[0]
        # During a launch, moto attaches a volume to an instance that is not in the index yet.
        newest = next(reversed(self.reservations.values()), None)
        launched = newest.instances if newest else []
        return next((one for one in launched if one.id == instance_id), None)

    def get_multi_instances_by_id(
        self, instance_ids: list[str], filters: Any = None
    ) -> list[Instance]:
        """Return the instances with these ids."""
        if not all(name in self._index for name in instance_ids):
            return super().get_multi_instances_by_id(instance_ids, filters)
        instances = [self._index[name][0] for name in instance_ids]
        return [instance for instance in instances if instance.applies(filters)]

    def get_reservations_by_instance_ids(
        self, instance_ids: list[str], filters: Any = None
    ) -> list[Reservation]:
        """Return the reservations of these instances; moto handles filters."""
        if filters or not all(name in self._index for name in instance_ids):
            return super().get_reservations_by_instance_ids(instance_ids, filters)
        chosen: dict[str, Reservation] = {}
        for name in dict.fromkeys(instance_ids):
            instance, reservation = self._index[name]
            shown = chosen.setdefault(reservation.id, copy.copy(reservation))
            if shown.instances is reservation.instances:
                shown.instances = []
            shown.instances.append(instance)
        return list(chosen.values())

    def describe_tags(self, filters: dict[str, list[str]] | None = None) -> list[dict[str, str]]:
        """Return tags; those of one resource without a walk through all tags."""
        resource = _only(filters, "resource-id")
        if resource is None:
            return super().describe_tags(filters)
        kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource), "")
        return [
            {"resource_id": resource, "key": key, "value": value, "resource_type": kind}
            for key, value in self.tags.get(resource, {}).items()
        ]

    def describe_images(
        self,
        ami_ids: list[str] | None = None,
        filters: dict[str, Any] | None = None,
        exec_users: list[str] | None = None,
        owners: list[str] | None = None,
    ) -> list[Ami]:
        """Return images; one image without a walk through all images."""
        image = _only(filters, "image-id")
        if image in self.amis and not (ami_ids or exec_users or owners):
            return [self.amis[image]]
        return super().describe_images(ami_ids, filters, exec_users, owners)

    def describe_volumes(
        self, volume_ids: list[str] | None = None, filters: Any = None
    ) -> list[Volume]:
        """Return volumes; those with given ids without a walk through all volumes."""
        if volume_ids and not filters and all(name in self.volumes for name in volume_ids):
            return [self.volumes[name] for name in volume_ids]
        return super().describe_volumes(volume_ids, filters)


def _only(filters: Mapping[str, list[str]] | None, key: str) -> str | None:
    """Return the value, if this is the only filter and it has one value without wildcards."""
    if not filters or list(filters) != [key] or len(filters[key]) != 1:
        return None
    [value] = filters[key]
    return None if set(value) & set("*?") else value


def install(cloud: Cloud, bus: EventBus) -> None:
    """Let moto use this backend; add every change of state to the journal and send its event."""
    TimedInstances.cloud = cloud
    ec2_backends.backend = TimedInstances
    _install_addresses()
    _install_subnets(cloud)

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
