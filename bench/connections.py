"""Connects to a server of prepared answers, for measurements of memory too: it imports little."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from leeway.kubernetes.connection import Connection
from leeway_cli.kubeconfig import kubeconfig_connection


def connection_of(url: str) -> Connection:
    """Connect to a server of prepared bytes."""
    # Without TLS, a context with all authorities of this machine would be most of the memory.
    server = {"server": url, "insecure-skip-tls-verify": True}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_text(json.dumps(content))
        return kubeconfig_connection(path)
