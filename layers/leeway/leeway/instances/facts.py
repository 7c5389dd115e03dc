"""The facts about an instance that a retirement or an admission needs."""

from pydantic import BaseModel, ConfigDict

from leeway.instances.owners import Owner
from leeway.selection.offers.reservations import ReservedCapacity
from leeway.table import BY_CLUSTER, Record, Table


class InstanceFacts(BaseModel):
    """Facts about an instance, from EC2, that seldom change.

    `capacity_type` is `spot`, `on-demand`, or `reserved`: then `reservation` is the one that the
    instance was launched into. `joined` says that the instance has the tag that EKS,
    and nobody else, writes when an instance joins the cluster. `from_fleet` says that it has the
    tag that EC2, and nobody else, writes on the instances of a fleet.

    `image`, `subnet` and `security_groups` are ids; `launch_settings` is the value of the tag with
    the hashes of the settings that it was launched with. They are empty if they are not known.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    instance: str
    cluster: str
    private_dns_name: str
    zone: str
    instance_type: str
    capacity_type: str
    owner: Owner
    joined: bool = False
    from_fleet: bool = False
    image: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    launch_settings: str = ""
    reservation: ReservedCapacity | None = None


FACTS = Record(
    InstanceFacts,
    "INSTANCE#{instance}",
    "FACTS",
    indexes={BY_CLUSTER: lambda facts: facts.cluster},
)


def facts_in(table: Table, cluster: str) -> dict[str, InstanceFacts]:
    """Read the facts of a cluster's instances, by id; they may be a second old. An unreadable item
    counts as missing: reconcile writes it again."""
    found = table.find(BY_CLUSTER, cluster, FACTS, unreadable=lambda _: None)
    return {one.instance: one for one in found}
