"""The resources of AWS that a launch uses, as the ports return them."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet of a VPC. `free` is its number of free IPv4 addresses."""

    id: str
    zone: str
    free: int


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI. `architecture` is the name that EC2 uses, such as x86_64."""

    id: str
    name: str
    architecture: str
    created_at: datetime
    root_device: str
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class OwnedTemplate:
    """A launch template of EC2 with the tags of a cluster's launch templates."""

    name: str
    created_at: datetime
