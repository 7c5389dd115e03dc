"""The cluster that a kubeconfig names, and whether a sandbox may use it.

A sandbox drains nodes, and lets instances end under running pods. So the API server must be on this
machine, as those of kind, k3d and minikube are, or the user names the cluster.
"""

import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from httpx2 import HTTPError, Timeout
from lightkube import ApiError, Client, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError, LoadResourceError
from lightkube.models.core_v1 import Node as NodeModel
from lightkube.resources.core_v1 import Namespace, Node

from leeway_sandbox.errors import RefusedError

LABEL = "sandbox.leeway.sh/created"
"""The label of every object that a sandbox creates in the cluster."""

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_EKS_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
_USUAL_NAME = "test-cluster"
_TIMEOUT = Timeout(10)


@dataclass(frozen=True)
class RealCluster:
    """A cluster that runs already. `nodes` are the names of its nodes without the control plane.

    `join` and `leave` are shell commands that add a machine to it and remove one; empty: a new
    node has no machine, and a reclaimed one loses only its Node.
    """

    kubeconfig: Path
    context: str
    nodes: tuple[str, ...]
    join: str = ""
    leave: str = ""

    @property
    def name(self) -> str:
        """The name of the cluster in the sandbox's EKS."""
        return self.context if _EKS_NAME.fullmatch(self.context) else _USUAL_NAME

    def wait_for_namespaces(self, report: Callable[[str], None], seconds: float = 120.0) -> None:
        """Wait until the namespaces of an earlier sandbox are gone: nothing can be created in a
        namespace that terminates, and it cannot be created again.

        Raises:
            RefusedError: one still terminates after these seconds, or the server does not answer.
        """
        until, reported = time.monotonic() + seconds, False
        with Client(read_config(self.kubeconfig, self.context), trust_env=False) as kube:
            while leaving := _terminating(kube):
                if time.monotonic() > until:
                    raise RefusedError(
                        f"The namespace {leaving[0]} of an earlier sandbox still terminates after "
                        f"{seconds:.0f} s. Find out with `kubectl describe namespace {leaving[0]}` "
                        "what keeps it, and repeat the command."
                    )
                if not reported:
                    report(f"waiting for the end of namespace {leaving[0]} of an earlier sandbox")
                reported = True
                time.sleep(0.5)


def read_config(kubeconfig: Path, context: str | None) -> SingleConfig:
    """Read a context of a kubeconfig, None for the current one.

    Raises:
        RefusedError: the file cannot be read, or has no such context.
    """
    try:
        config = KubeConfig.from_file(kubeconfig).get(context)
    except yaml.YAMLError as error:
        raise RefusedError(f"The kubeconfig {kubeconfig} cannot be used: no YAML.") from error
    # lightkube looks up what the file should have, whatever it has.
    except (
        ConfigError,
        LoadResourceError,
        OSError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        problem = f"{type(error).__name__}: {error}"
        raise RefusedError(f"The kubeconfig {kubeconfig} cannot be used: {problem}.") from error
    if config is None or config.user is None:
        problem = "the context has no user"
        raise RefusedError(f"The kubeconfig {kubeconfig} cannot be used: {problem}.")
    return config


def find_cluster(
    kubeconfig: Path, context: str | None, allowed: str | None, join: str = "", leave: str = ""
) -> RealCluster:
    """Return the cluster of a kubeconfig; `allowed` is a context that the user allows by name.

    Raises:
        RefusedError: the kubeconfig cannot be used, the server is elsewhere and not allowed, it
            does not answer, or it has only nodes of the control plane.
    """
    config = read_config(kubeconfig, context)
    server = config.cluster.server
    if not is_on_this_machine(server) and allowed != config.context_name:
        raise RefusedError(
            f"The API server of context {config.context_name}, {server}, is not on this "
            "machine, and a sandbox drains and deletes nodes. Use a cluster on this machine, "
            "or allow this one with --yes-this-cluster and its context."
        )
    try:
        with Client(config, timeout=_TIMEOUT, trust_env=False) as kube:
            found = [node for node in kube.list(Node) if _is_worker(node)]
    except (ApiError, HTTPError, OSError) as error:
        raise RefusedError(
            f"The API server {server} does not do what the sandbox needs: {error}. The user "
            "of the kubeconfig needs the rights of cluster-admin: to impersonate, and to "
            "create ClusterRoles."
        ) from error
    names = tuple(sorted(str(node.metadata.name) for node in found if node.metadata))
    if not names:
        raise RefusedError(
            f"The cluster of context {config.context_name} has no nodes besides its control "
            "plane. Create it with worker nodes: the sandbox interrupts no node of a control "
            "plane."
        )
    return RealCluster(kubeconfig, config.context_name, names, join, leave)


def _terminating(kube: Client) -> list[str]:
    try:
        found = [one.metadata for one in kube.list(Namespace, labels={LABEL: "true"})]
    except (ApiError, HTTPError, OSError) as error:
        server = kube.config.cluster.server
        raise RefusedError(
            f"The API server {server} does not do what the sandbox needs: {error}. The user "
            "of the kubeconfig needs the rights of cluster-admin: to impersonate, and to "
            "create ClusterRoles."
        ) from error
    return [str(one.name) for one in found if one and one.deletionTimestamp]


def _is_worker(node: NodeModel) -> bool:
    labels = (node.metadata.labels if node.metadata else None) or {}
    return not any(label in labels for label in CONTROL_PLANE)


def is_on_this_machine(server: str) -> bool:
    """Whether a URL names an address of this machine: it can be bound, or is a loopback address."""
    host = urlsplit(server).hostname or ""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(_is_own(family, str(where[0])) for family, *_, where in found)


def _is_own(family: int, address: str) -> bool:
    if ip_address(address).is_loopback:
        return True
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
