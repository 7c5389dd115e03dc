"""A connection to an EKS cluster's API, with the function's own IAM identity."""

import base64

import boto3
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User

from leeway.kubernetes.connection import Connection, RenewedToken
from leeway.kubernetes.eks_token import eks_token
from leeway.kubernetes.trust import trust_authority
from leeway.ports.aws import ClusterEndpoint

RENEW_AFTER = 10 * 60
"""Seconds. EKS takes a token for fifteen minutes; renewing at ten leaves room for a slow call."""


def eks_connection(endpoint: ClusterEndpoint, session: boto3.Session) -> Connection:
    """Connect to a cluster; every token is signed with the session's credentials of the moment."""

    trust = trust_authority(base64.b64decode(endpoint.certificate_authority).decode("ascii"))
    transport = RenewedToken(
        lambda: eks_token(endpoint.name, session.region_name, session.get_credentials()),
        RENEW_AFTER,
        trust,
    )
    config = SingleConfig(
        context_name=endpoint.name,
        context=Context(cluster=endpoint.name, user=endpoint.name),
        # The transport has its own trust. Without a CA here, the system's would be read twice,
        # which takes longer than all the rest of opening a cluster.
        cluster=Cluster(server=endpoint.url, certificate_auth_data=endpoint.certificate_authority),
        user=User(),
    )
    return Connection(config, transport)
