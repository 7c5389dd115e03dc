"""Any cluster's API, by a kubeconfig that is found as kubectl finds it."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from lightkube import ConfigError, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from msgspec import MsgspecError

from leeway.clock import SystemClock
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.impersonation import Impersonation, read_impersonation
from leeway.kubernetes.lightkube_cluster import PAGE, LightkubeCluster

_PARTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS = frozenset({"certificate-authority", "client-certificate", "client-key", "tokenFile"})
"""Fields of a kubeconfig that are paths, from its own folder on."""


class BadKubeconfig(ValueError):
    """There is no such kubeconfig or context, or it can't be read; the message names the file."""


_ONESELF = Impersonation()


def kubeconfig_cluster(
    path: Path | None,
    context: str | None = None,
    page: int = PAGE,
    impersonation: Impersonation = _ONESELF,
) -> LightkubeCluster:
    """Open the cluster of a kubeconfig's context, as `kubeconfig_connection` does.

    `page` is how many objects one page of a list has, 0 for all in one.
    """
    connection = kubeconfig_connection(path, context, impersonation)
    return LightkubeCluster(connection, SystemClock(), page)


def kubeconfig_connection(
    path: Path | None, context: str | None = None, impersonation: Impersonation = _ONESELF
) -> Connection:
    """Connect to the cluster of a kubeconfig's context (default: its current one).

    Without a path, as kubectl does: the files of $KUBECONFIG, else ~/.kube/config, else the account
    of the pod that this runs in. Requests are made in the name of whom `impersonation` says, else
    of whom the kubeconfig's user does.

    Raises:
        BadKubeconfig: there is no such file or context, or it can't be read.
    """
    files = [path] if path else _files()
    named = ", ".join(map(str, files)) or "kubeconfig"
    try:
        kubeconfig, who = _merged(files, context) if files else (_of_the_pod(), _ONESELF)
        config = _usable(kubeconfig.get(context), named)
        return Connection(config, impersonation=who.overridden(impersonation))
    except BadKubeconfig:
        raise
    except KeyError as error:
        raise BadKubeconfig(f"{named}: {error} is not in it, and is referred to") from error
    except (ConfigError, MsgspecError, OSError, AttributeError, TypeError, ValueError) as error:
        raise BadKubeconfig(f"{named}: {error}") from error


def _files() -> list[Path]:
    """Those of $KUBECONFIG that there are, or the one that it names; else the user's own."""
    named = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    there = [file for file in named or [Path("~/.kube/config").expanduser()] if file.is_file()]
    return there or named


def _of_the_pod() -> KubeConfig:
    try:
        return KubeConfig.from_service_account()
    except (ConfigError, KeyError) as error:
        raise BadKubeconfig(
            "no kubeconfig: expected --kubeconfig, $KUBECONFIG or ~/.kube/config"
        ) from error


def _merged(files: Iterable[Path], context: str | None) -> tuple[KubeConfig, Impersonation]:
    """Read files as one: whichever says something first is right; and whom the context's user
    impersonates. Source: Kubernetes documentation, "Organizing Cluster Access Using kubeconfig
    Files"."""
    found: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    current = None
    for file in files:
        document = _read(file)
        current = current or document.get("current-context")
        for part, inner in _PARTS.items():
            for entry in document.get(part) or ():
                if not isinstance(entry, dict) or "name" not in entry:
                    raise BadKubeconfig(f"{file}: {part}: expected entries with a name")
                said = _absolute(entry.get(inner) or {}, file.parent.absolute())
                found[part].setdefault(entry["name"], {"name": entry["name"], inner: said})
    chosen = found["contexts"].get(str(context or current), {"context": {}})["context"]
    cluster = found["clusters"].get(chosen.get("cluster"), {"cluster": {}})["cluster"]
    if "proxy-url" in cluster:
        raise ValueError(
            f"cluster {chosen['cluster']} has a proxy-url, and Leeway goes by no proxy"
        )
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
        raise BadKubeconfig(f"{file}: expected YAML: {error}") from error
    if not isinstance(document, dict) or not document.keys() & {*_PARTS, "current-context"}:
        raise BadKubeconfig(f"{file}: expected a kubeconfig, with clusters, contexts and users")
    return document


def _usable(config: SingleConfig | None, named: str) -> SingleConfig:
    """See that there is a user, and files, of which the TLS library would not say which lacks."""
    if config is None or config.user is None:
        raise BadKubeconfig(f"{named}: its context names no cluster and user")
    for file in (config.cluster.certificate_auth, config.user.client_cert, config.user.client_key):
        if file and not Path(file).is_file():
            raise BadKubeconfig(f"{named}: {file}: No such file or directory")
    return config


def _absolute(said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        field: str(folder / value) if field in _PATHS and value else value
        for field, value in said.items()
    }
