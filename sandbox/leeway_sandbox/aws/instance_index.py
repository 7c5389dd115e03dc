"""An index of instances by id, where moto walks through all instances, tags and images.

With a thousand instances these walks took a third of the processor time of a storm.
"""

import copy
from collections.abc import Mapping
from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import Ami
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.instances import Instance, Reservation
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, filter_dict_attribute_mapping, get_prefix

# The filter launch-time of DescribeInstances, by day or by hour, which moto lacks.
filter_dict_attribute_mapping["launch-time"] = "launched_in"
Instance.launched_in = property(  # type: ignore[attr-defined]
    lambda self: [f"{self.launch_time:%Y-%m-%d}*", f"{self.launch_time:%Y-%m-%dT%H}:*"]
)


class IndexedInstances(EC2Backend):
    """moto's EC2 with an index; moto searches for instances that the index does not have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._index: dict[str, tuple[Instance, Reservation]] = {}

    def run_instances(self, *args: Any, **kwargs: Any) -> Reservation:
        """Launch instances, and add them to the index."""
        reservation = super().run_instances(*args, **kwargs)
        self._index |= {instance.id: (instance, reservation) for instance in reservation.instances}
        return reservation

    def forget(self, instance: Instance) -> None:
        """Remove an instance from the index and from all descriptions."""
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
