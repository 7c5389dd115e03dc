"""Answers DescribeCluster with the endpoint and CA of a Kubernetes sandbox.

Stands in for EKS's control planes: moto's clusters have made-up endpoints.
"""

import base64
from pathlib import Path

from moto.eks.models import eks_backends

from sandbox.aws.cloud import ACCOUNT, Cloud

VERSION = "1.34"


def link_cluster(cloud: Cloud, name: str, endpoint: str, ca_file: Path) -> None:
    """Make `name` an active cluster at `endpoint`; raises OSError when the CA can't be read."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    eks = eks_backends[ACCOUNT][cloud.region]
    if name not in eks.clusters:
        eks.create_cluster(
            name,
            role_arn=f"arn:aws:iam::{ACCOUNT}:role/{name}-cluster",
            resources_vpc_config={"subnetIds": [], "endpointPublicAccess": True},
            version=VERSION,
        )
    cluster = eks.clusters[name]
    cluster.endpoint = endpoint
    cluster.certificate_authority = {"data": authority}
