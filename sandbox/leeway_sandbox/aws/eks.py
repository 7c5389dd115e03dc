"""Lets DescribeCluster return the endpoint and CA of the sandbox's cluster.

The clusters of moto have invented endpoints.
"""

import base64
from pathlib import Path

from moto.eks.models import eks_backends

from leeway_sandbox.aws.access_entries import complete_endpoint, set_mode
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud

VERSION = "1.34"


def link_cluster(cloud: Cloud, name: str, endpoint: str, ca_file: Path) -> None:
    """Create or change a cluster with this endpoint; raises OSError if the CA cannot be read."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    eks = eks_backends[ACCOUNT][cloud.region]
    if name not in eks.clusters:
        eks.create_cluster(
            name,
            role_arn=f"arn:aws:iam::{ACCOUNT}:role/{name}-cluster",
            resources_vpc_config={"subnetIds": []},
            version=VERSION,
        )
        complete_endpoint(eks.clusters[name])
        set_mode(eks.clusters[name], "API")
    cluster = eks.clusters[name]
    cluster.endpoint = endpoint
    cluster.certificate_authority = {"data": authority}
