"""Connections to clusters by kubeconfig, with kubectl's search order."""

import os
import ssl
from collections.abc import Generator, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import yaml
from leeway.clock import SystemClock
from leeway.kubernetes.connection import (
    FIELD_MANAGER,
    TIMEOUT,
    Connection,
    Impersonation,
    NoCredentials,
    read_impersonation,
    without_strict_identifiers,
)
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.list_watch import PAGE
from leeway.kubernetes.transport import BoundedTransport
from lightkube import Client, ConfigError, KubeConfig
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User
from msgspec import MsgspecError

_PARTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS = frozenset({"certificate-authority", "client-certificate", "client-key", "tokenFile"})
"""Fields of a kubeconfig that are paths, relative to the folder of the file."""


class BadKubeconfig(ValueError):
    """The kubeconfig or the context is missing or invalid; the message names the file."""


_NO_IMPERSONATION = Impersonation()


def trust_kubeconfig(config: SingleConfig) -> ssl.SSLContext:
    """Accept the certificates that a kubeconfig trusts, and present its client certificate."""
    cluster, user = config.cluster, config.user or User()
    trust = client_adapter.verify_cluster(cluster, user, config.abs_file, trust_env=False)
    has_authority = cluster.certificate_auth or cluster.certificate_auth_data
    return without_strict_identifiers(trust) if has_authority else trust


class _Credentials(httpx2.Auth):
    """lightkube's authentication of a kubeconfig's user."""

    def __init__(self, auth: httpx2.Auth) -> None:
        self._auth = auth

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        try:
            yield from self._auth.sync_auth_flow(request)
        except ConfigError as error:
            raise NoCredentials(str(error)) from error


class KubeconfigConnection(Connection):
    """The connection of a kubeconfig's context, also for lightkube's typed client."""

    def __init__(
        self, config: SingleConfig, impersonation: Impersonation = _NO_IMPERSONATION
    ) -> None:
        auth = client_adapter.user_auth(config.user)
        super().__init__(
            config.cluster.server,
            BoundedTransport(trust_kubeconfig(config)),
            _Credentials(auth) if auth else None,
            impersonation,
        )
        self._config = config

    @property
    def context(self) -> str:
        """The name of the context."""
        return self._config.context_name

    @cached_property
    def typed(self) -> Client:
        """lightkube's client."""
        return Client(
            self._config,
            timeout=TIMEOUT,
            field_manager=FIELD_MANAGER,
            trust_env=False,
            transport=self.transport,
        )


def kubeconfig_cluster(
    path: Path | None,
    context: str | None = None,
    page: int = PAGE,
    impersonation: Impersonation = _NO_IMPERSONATION,
) -> HttpCluster:
    """Build the adapter of a cluster with `kubeconfig_connection`.

    `page` is the number of objects per page of a list; 0 lists all objects in one page.
    """
    connection = kubeconfig_connection(path, context, impersonation)
    return HttpCluster(connection, SystemClock(), page)


def kubeconfig_connection(
    path: Path | None,
    context: str | None = None,
    impersonation: Impersonation = _NO_IMPERSONATION,
) -> KubeconfigConnection:
    """Connect to the cluster of a context (default: the kubeconfig's current context).

    Without a path, the search order is kubectl's: the files of $KUBECONFIG, then ~/.kube/config,
    then the service account of the pod that runs this process. `impersonation` overrides the
    impersonation of the kubeconfig's user.

    Raises:
        BadKubeconfig: the file or the context is missing or invalid.
    """
    files = [path] if path else _files()
    names = ", ".join(map(str, files)) or "kubeconfig"
    try:
        kubeconfig, own = (
            _merge(files, context) if files else (_service_account(), _NO_IMPERSONATION)
        )
        config = _checked(kubeconfig.get(context), names)
        return KubeconfigConnection(config, own.overridden_by(impersonation))
    except BadKubeconfig:
        raise
    except KeyError as error:
        raise BadKubeconfig(f"{names}: refers to {error}, which it does not define") from error
    except (ConfigError, MsgspecError, OSError, AttributeError, TypeError, ValueError) as error:
        raise BadKubeconfig(f"{names}: {error}") from error


def _files() -> list[Path]:
    """Return the existing files of $KUBECONFIG, or of ~/.kube/config if it is not set. If none of
    $KUBECONFIG exists, return all of its files, so that the error names them."""
    named = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    files = named or [Path("~/.kube/config").expanduser()]
    return [file for file in files if file.is_file()] or named


def _service_account() -> KubeConfig:
    try:
        return KubeConfig.from_service_account()
    except (ConfigError, KeyError) as error:
        raise BadKubeconfig(
            "no kubeconfig: expected --kubeconfig, $KUBECONFIG or ~/.kube/config"
        ) from error


def _merge(files: Iterable[Path], context: str | None) -> tuple[KubeConfig, Impersonation]:
    """Merge files: the first file that sets a value wins. Return the kubeconfig, and the
    impersonation of the context's user. Source: Kubernetes documentation, "Organizing Cluster
    Access Using kubeconfig Files"."""
    found: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    current = None
    for file in files:
        document = _read(file)
        current = current or document.get("current-context")
        for part, inner in _PARTS.items():
            for entry in document.get(part) or ():
                if not isinstance(entry, dict) or "name" not in entry:
                    raise BadKubeconfig(f"{file}: {part}: expected entries with a name")
                fields = _absolute(entry.get(inner) or {}, file.parent.absolute())
                found[part].setdefault(entry["name"], {"name": entry["name"], inner: fields})
    chosen = found["contexts"].get(str(context or current), {"context": {}})["context"]
    cluster = found["clusters"].get(chosen.get("cluster"), {"cluster": {}})["cluster"]
    if "proxy-url" in cluster:
        raise ValueError(f"cluster {chosen['cluster']} has a proxy-url, which is not supported")
    user = found["users"].get(chosen.get("user"), {"user": {}})["user"]
    parts = {part: list(entries.values()) for part, entries in found.items()}
    kubeconfig = KubeConfig.from_dict({**parts, "current-context": current})
    return kubeconfig, read_impersonation(user)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadKubeconfig(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadKubeconfig(f"{file}: expected a kubeconfig in UTF-8") from error
    except yaml.YAMLError as error:
        raise BadKubeconfig(f"{file}: expected YAML, got {_syntax(error)}") from error
    if not isinstance(document, dict) or not document.keys() & {*_PARTS, "current-context"}:
        raise BadKubeconfig(f"{file}: expected a kubeconfig, with clusters, contexts and users")
    return document


def _syntax(error: yaml.YAMLError) -> str:
    """Return what is wrong in a document that is not YAML, and its line."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "something else"
    return f"an error in line {error.problem_mark.line + 1}: {error.problem}"


def _checked(config: SingleConfig | None, names: str) -> SingleConfig:
    """Check that the context has a user and that its files exist: the TLS library's error would not
    name the missing file."""
    if config is None or config.user is None:
        raise BadKubeconfig(f"{names}: its context names no cluster and user")
    for file in (config.cluster.certificate_auth, config.user.client_cert, config.user.client_key):
        if file and not Path(file).is_file():
            raise BadKubeconfig(f"{names}: {file}: No such file or directory")
    return config


def _absolute(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        field: str(folder / value) if field in _PATHS and value else value
        for field, value in fields.items()
    }
