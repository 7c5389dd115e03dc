"""Puts instances into capacity reservations, on command.

Stands in for launches that target a reservation, and for DescribeInstances' filter by it, which
moto lacks.
"""

from moto.ec2 import utils as moto_utils
from moto.ec2.models.instances import Instance
from pydantic import BaseModel, ConfigDict

from sandbox.aws import instances
from sandbox.aws.cloud import Cloud

_ATTRIBUTE = "capacity_reservation_id"


class Reserve(BaseModel):
    """One command: the instance runs in this capacity reservation."""

    model_config = ConfigDict(extra="forbid")

    instance: str
    reservation: str


def put_into(cloud: Cloud, command: Reserve) -> dict[str, str]:
    """Let DescribeInstances find the instance by its reservation."""
    _, instance = instances.find(cloud, command.instance)
    setattr(instance, _ATTRIBUTE, command.reservation)
    return {"reservation": command.reservation}


def install() -> None:
    """Let moto filter instances by their capacity reservation."""
    setattr(Instance, _ATTRIBUTE, "")
    moto_utils.filter_dict_attribute_mapping["capacity-reservation-id"] = _ATTRIBUTE
