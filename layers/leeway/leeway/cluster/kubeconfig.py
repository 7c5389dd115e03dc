"""Any cluster's API, by a kubeconfig."""

from pathlib import Path

from lightkube import ConfigError
from lightkube.config.kubeconfig import KubeConfig
from yaml import YAMLError

from leeway.clock import SystemClock
from leeway.cluster.connection import Connection
from leeway.cluster.lightkube_cluster import PAGE, LightkubeCluster


class BadKubeconfig(ValueError):
    """There is no such kubeconfig or context, or it can't be read; the message names the file."""


def kubeconfig_cluster(
    path: Path | None, context: str | None = None, page: int = PAGE
) -> LightkubeCluster:
    """Open the cluster of a kubeconfig's context, as `kubeconfig_connection` does.

    `page` is how many objects one page of a list has, 0 for all in one.
    """
    return LightkubeCluster(kubeconfig_connection(path, context), SystemClock(), page)


def kubeconfig_connection(path: Path | None, context: str | None = None) -> Connection:
    """Connect to the cluster of a kubeconfig's context (default: its current one).

    Without a path, as kubectl does: $KUBECONFIG, else ~/.kube/config.

    Raises:
        BadKubeconfig: there is no such file or context, or it can't be read.
    """
    try:
        kubeconfig = KubeConfig.from_file(path) if path else KubeConfig.from_env()
        config = kubeconfig.get(context)
        if config is None or config.user is None:
            raise BadKubeconfig(f"{path or 'kubeconfig'}: its context names no cluster and user")
        return Connection(config)
    except (ConfigError, YAMLError, OSError, KeyError, TypeError, ValueError) as error:
        said = str(error)
        named = path is not None and str(path) in said
        raise BadKubeconfig(said if named else f"{path or 'kubeconfig'}: {said}") from error
