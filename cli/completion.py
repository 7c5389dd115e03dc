"""`leeway completion`: the script by which a shell completes commands, options, kinds and nodes."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

VARIABLE = "_LEEWAY_COMPLETE"
"""Set by those scripts when they ask what a word may become."""


class Shell(StrEnum):
    """Shells that Leeway can be completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes leeway in a shell.

    \b
    source <(leeway completion bash)   # in ~/.bashrc, to have it always
    source <(leeway completion zsh)    # in ~/.zshrc, after compinit
    leeway completion fish | source
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="leeway", complete_var=VARIABLE, shell=shell.value)
    sys.stdout.write(f"{script}\n")


def know_shells() -> None:
    """Load what answers a shell that asks; nothing else needs it."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def kinds(incomplete: str) -> list[str]:
    """The kinds that begin so."""
    from leeway.manifests.kinds import KINDS

    return sorted({kind.plural for kind in KINDS if kind.plural.startswith(incomplete.lower())})


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """The nodes that begin so, of the cluster that the command line names."""
    from leeway.kubernetes.kubeconfig import BadKubeconfig, kubeconfig_cluster
    from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable

    given: dict[str, Any] = context.params
    path = given.get("kubeconfig")
    try:
        cluster = kubeconfig_cluster(Path(path) if path else None, given.get("context"))
        names: Iterable[str] = cluster.select_nodes("")
    except (BadKubeconfig, ClusterRefused, ClusterUnavailable):
        return []  # whoever only presses a key is not to be told off
    already = given.get("nodes") or ()
    return [name for name in names if name.startswith(incomplete) and name not in already]
