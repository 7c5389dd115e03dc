"""An EKS cluster's API, with the function's own IAM identity."""

import boto3
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User

from leeway.cloud.ports import ClusterEndpoint
from leeway.cluster.connection import Connections
from leeway.cluster.eks_token import eks_token
from leeway.cluster.lightkube_cluster import LightkubeCluster

RENEW_AFTER = 10 * 60
"""Seconds. EKS takes a token for fifteen minutes; renewing at ten leaves room for a slow call."""


def eks_cluster(endpoint: ClusterEndpoint, session: boto3.Session) -> LightkubeCluster:
    """Open a cluster; every connection signs in with the session's credentials of the moment."""

    def configure() -> SingleConfig:
        token = eks_token(endpoint.name, session.region_name, session.get_credentials())
        server = Cluster(server=endpoint.url, certificate_auth_data=endpoint.certificate_authority)
        context = Context(cluster=endpoint.name, user=endpoint.name)
        return SingleConfig(
            context_name=endpoint.name, context=context, cluster=server, user=User(token=token)
        )

    return LightkubeCluster(Connections(configure, RENEW_AFTER))
