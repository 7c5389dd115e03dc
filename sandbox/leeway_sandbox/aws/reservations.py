"""Assigns instances to capacity reservations on command, for the filter of DescribeInstances.

moto has neither launches into a reservation nor this filter.
"""

from moto.ec2 import utils as moto_utils
from moto.ec2.models.instances import Instance
from pydantic import BaseModel, ConfigDict

from leeway_sandbox.aws import instances
from leeway_sandbox.aws.cloud import Cloud

_ATTRIBUTE = "capacity_reservation_id"


class Reserve(BaseModel):
    """A command: the instance runs in this capacity reservation."""

    model_config = ConfigDict(extra="forbid")

    instance: str
    reservation: str


def put_into(cloud: Cloud, command: Reserve) -> dict[str, str]:
    """Assign an instance to a reservation."""
    _, instance = instances.find(cloud, command.instance)
    setattr(instance, _ATTRIBUTE, command.reservation)
    return {"reservation": command.reservation}


def install() -> None:
    """Let moto filter instances by their capacity reservation."""
    setattr(Instance, _ATTRIBUTE, "")
    moto_utils.filter_dict_attribute_mapping["capacity-reservation-id"] = _ATTRIBUTE
