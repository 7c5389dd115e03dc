"""instances.facts"""

from pydantic import BaseModel, ConfigDict

from leeway.instances.owners import Owner


class InstanceFacts(BaseModel):
    """What EC2 says of an instance that a retirement needs, and that seldom changes.

    `joined` says that it has joined the cluster, by a tag that only EKS can write.
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
