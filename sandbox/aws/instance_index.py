"""Finds instances, their tags and their images by id at once, where moto walks through them all.

With a thousand instances those walks were a third of the processor that a storm took here.
"""

import copy
from collections.abc import Mapping
from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import Ami
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.instances import Instance, Reservation
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, filter_dict_attribute_mapping, get_prefix

# What moto's DescribeInstances lacks: launch-time, by the day or by the hour.
filter_dict_attribute_mapping["launch-time"] = "launched_in"
Instance.launched_in = property(  # type: ignore[attr-defined]
    lambda self: [f"{self.launch_time:%Y-%m-%d}*", f"{self.launch_time:%Y-%m-%dT%H}:*"]
)


class IndexedInstances(EC2Backend):
    """moto's EC2, with an index; what is not in the index is looked for as moto does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._index: dict[str, tuple[Instance, Reservation]] = {}

    def run_instances(self, *args: Any, **kwargs: Any) -> Reservation:
        """As moto does."""
        reservation = super().run_instances(*args, **kwargs)
        self._index |= {instance.id: (instance, reservation) for instance in reservation.instances}
        return reservation

    def forget(self, instance: Instance) -> None:
        """The instance is not described any more."""
        _, reservation = self._index.pop(instance.id)
        reservation.instances.remove(instance)
        if not reservation.instances:
            del self.reservations[reservation.id]
        self.tags.pop(instance.id, None)

    def get_instance(self, instance_id: str) -> Instance:
        """As moto does."""
        return self._find(instance_id) or super().get_instance(instance_id)

    def get_instance_by_id(self, instance_id: str) -> Instance | None:
        """As moto does."""
        return self._find(instance_id) or super().get_instance_by_id(instance_id)

    def _find(self, instance_id: str) -> Instance | None:
        if found := self._index.get(instance_id):
            return found[0]
        # One that is being launched is looked for, too: by the volume that is attached to it.
        newest = next(reversed(self.reservations.values()), None)
        launched = newest.instances if newest else []
        return next((one for one in launched if one.id == instance_id), None)

    def get_multi_instances_by_id(
        self, instance_ids: list[str], filters: Any = None
    ) -> list[Instance]:
        """As moto does."""
        if not all(name in self._index for name in instance_ids):
            return super().get_multi_instances_by_id(instance_ids, filters)
        instances = [self._index[name][0] for name in instance_ids]
        return [instance for instance in instances if instance.applies(filters)]

    def get_reservations_by_instance_ids(
        self, instance_ids: list[str], filters: Any = None
    ) -> list[Reservation]:
        """As moto does; filters are left to it."""
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
        """As moto does; of one resource, without a look at all others."""
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
        """As moto does; of one image, without a look at all others."""
        image = _only(filters, "image-id")
        if image in self.amis and not (ami_ids or exec_users or owners):
            return [self.amis[image]]
        return super().describe_images(ami_ids, filters, exec_users, owners)

    def describe_volumes(
        self, volume_ids: list[str] | None = None, filters: Any = None
    ) -> list[Volume]:
        """As moto does; by ids, without a look at all others."""
        if volume_ids and not filters and all(name in self.volumes for name in volume_ids):
            return [self.volumes[name] for name in volume_ids]
        return super().describe_volumes(volume_ids, filters)


def _only(filters: Mapping[str, list[str]] | None, key: str) -> str | None:
    """The one literal value of the one filter, if that is what it filters by."""
    if not filters or list(filters) != [key] or len(filters[key]) != 1:
        return None
    [value] = filters[key]
    return None if set(value) & set("*?") else value
