"""TLS contexts for connections to API servers."""

import ssl

from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User


def trust_authority(certificates: str) -> ssl.SSLContext:
    """Accept certificates for the host's name that these authorities (PEM) have signed."""
    return _without_strict_identifiers(ssl.create_default_context(cadata=certificates))


def trust_kubeconfig(config: SingleConfig) -> ssl.SSLContext:
    """Accept the certificates that a kubeconfig trusts, and present its client certificate."""
    cluster, user = config.cluster, config.user or User()
    trust = client_adapter.verify_cluster(cluster, user, config.abs_file, trust_env=False)
    has_authority = cluster.certificate_auth or cluster.certificate_auth_data
    return _without_strict_identifiers(trust) if has_authority else trust


def _without_strict_identifiers(trust: ssl.SSLContext) -> ssl.SSLContext:
    """Accept certificates without the extension Authority Key Identifier.

    EKS clusters that were created with Kubernetes 1.16 or earlier have such certificates. The
    default context of Python 3.13 refuses them. The chain to the cluster's own authority, the host
    name and the dates are still verified. The strict rules still apply to public authorities.
    Source: Python documentation, ssl.create_default_context and VERIFY_X509_STRICT.
    """
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return trust
