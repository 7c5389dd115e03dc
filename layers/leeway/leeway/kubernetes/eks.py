"""Connections to EKS clusters with the function's IAM identity."""

import base64

import boto3
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User

from leeway.kubernetes.connection import Connection, TokenTransport
from leeway.kubernetes.eks_token import eks_token
from leeway.kubernetes.trust import trust_authority
from leeway.ports.aws import ClusterEndpoint

RENEW_AFTER = 10 * 60
"""Seconds. EKS accepts a token for 15 minutes; renewal after 10 leaves time for a slow request."""


def eks_connection(endpoint: ClusterEndpoint, session: boto3.Session) -> Connection:
    """Connect to a cluster. Each token is signed with the session's current credentials."""

    trust = trust_authority(base64.b64decode(endpoint.certificate_authority).decode("ascii"))
    transport = TokenTransport(
        lambda: eks_token(endpoint.name, session.region_name, session.get_credentials()),
        RENEW_AFTER,
        trust,
    )
    config = SingleConfig(
        context_name=endpoint.name,
        context=Context(cluster=endpoint.name, user=endpoint.name),
        # The transport has its own TLS context. Without a CA here, lightkube would load the
        # system's CAs, which takes longer than the rest of this function.
        cluster=Cluster(server=endpoint.url, certificate_auth_data=endpoint.certificate_authority),
        user=User(),
    )
    return Connection(config, transport)
