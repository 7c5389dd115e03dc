"""The bearer tokens of EKS: a presigned STS request that identifies the caller and the cluster.

Source: EKS user guide, "Grant access to Kubernetes APIs"; aws-iam-authenticator, "API
authorization from outside a cluster".
"""

import base64

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from leeway.kubernetes.eks_hosts import dns_suffix

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 (a format, not a secret)
PRESIGN_SECONDS = 60
CLUSTER_HEADER = "x-k8s-aws-id"


def sts_host(region: str) -> str:
    """Return the host of STS in a region."""
    return f"sts.{region}.{dns_suffix(region)}"


def eks_token(cluster: str, region: str, credentials: Credentials) -> str:
    """Create a token for one cluster. EKS accepts it for 15 minutes.

    Presigning needs no boto3 client and no network call, which keeps cold starts short.
    """
    url = f"https://{sts_host(region)}/?Action=GetCallerIdentity&Version=2011-06-15"
    request = AWSRequest(method="GET", url=url, headers={CLUSTER_HEADER: cluster})
    SigV4QueryAuth(credentials, "sts", region, expires=PRESIGN_SECONDS).add_auth(request)
    encoded = base64.urlsafe_b64encode(request.url.encode()).decode().rstrip("=")
    return TOKEN_PREFIX + encoded
