"""`leeway completion`: prints the script that completes commands, options, kinds and nodes."""

import sys
from collections.abc import Iterable
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

VARIABLE = "_LEEWAY_COMPLETE"
"""The environment variable that the scripts set when they request completions."""


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="Select bash, zsh or fish.")],
) -> None:
    """Print the script that completes leeway in a shell.

    \b
    source <(leeway completion bash)   # in ~/.bashrc, for every session
    source <(leeway completion zsh)    # in ~/.zshrc, after compinit
    leeway completion fish | source
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="leeway", complete_var=VARIABLE, shell=shell.value)
    sys.stdout.write(f"{script}\n")


def load_completion() -> None:
    """Load the completion of typer, which only a completion request needs."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def kinds(incomplete: str) -> list[str]:
    """Return the kinds that begin with a prefix."""
    from leeway.manifests.reading import KINDS

    return sorted({kind.plural for kind in KINDS if kind.plural.startswith(incomplete.lower())})


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Return the nodes that begin with a prefix, of the cluster in the command line."""
    from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable

    from leeway_cli.kubeconfig import BadKubeconfig, kubeconfig_cluster

    given: dict[str, Any] = context.params
    path = given.get("kubeconfig")
    try:
        cluster = kubeconfig_cluster(Path(path) if path else None, given.get("context"))
        with closing(cluster):
            names: Iterable[str] = cluster.select_nodes("")
    except (BadKubeconfig, ClusterRefused, ClusterUnavailable):
        return []  # a completion request prints no error
    already = given.get("nodes") or ()
    return [name for name in names if name.startswith(incomplete) and name not in already]
