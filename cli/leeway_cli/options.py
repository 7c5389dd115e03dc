"""The options of `leeway drain`, which other commands share. Most are those of `kubectl drain`."""

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from leeway import durations
from leeway.policy.rules import OnBlocked

from leeway_cli.completion import nodes as complete_nodes
from leeway_cli.errors import BadInputError, as_clause

PAGE = 500


class DryRun(StrEnum):
    """The dry-run modes: none, local, or with requests that the API server checks."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


Nodes = Annotated[
    list[str] | None,
    typer.Argument(metavar="NODE", help="Drain these nodes.", autocompletion=complete_nodes),
]
Selector = Annotated[
    str, typer.Option("--selector", "-l", help="Drain the nodes with these labels.")
]
PodSelector = Annotated[str, typer.Option(help="Drain only the pods with these labels.")]
Deadline = Annotated[
    str,
    typer.Option(metavar="DURATION", help="Set the time until the nodes stop, such as 120s or 2m."),
]
OnBlockedOption = Annotated[
    OnBlocked,
    typer.Option(
        help="Select what happens to a pod that a budget still blocks at its latest time."
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Evict pods without a controller, and allow everything else too."),
]
IgnoreDaemonsets = Annotated[
    bool, typer.Option("--ignore-daemonsets", help="Ignore pods of DaemonSets.")
]
DeleteEmptydirData = Annotated[
    bool,
    typer.Option(
        "--delete-emptydir-data", help="Evict pods with emptyDir volumes, whose data is lost."
    ),
]
DisableEviction = Annotated[
    bool,
    typer.Option(
        "--disable-eviction", help="Delete pods instead of evicting them; budgets have no effect."
    ),
]
GracePeriod = Annotated[
    int, typer.Option(help="Set the grace period of all pods in seconds; negative: each pod's own.")
]
SkipWaitForDelete = Annotated[
    int,
    typer.Option(
        min=0, help="Do not wait for a pod whose deletion is overdue by this number of seconds."
    ),
]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="Stop after this time; 0: never.")]
ChunkSize = Annotated[
    int, typer.Option(min=0, help="Set the number of objects in a page of a list; 0: one page.")
]
DryRunOption = Annotated[
    DryRun,
    typer.Option(help="Print the plan without changes: client (also without a value) or server."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Set the kubeconfig (default: $KUBECONFIG, ~/.kube/config)."),
]
As = Annotated[str, typer.Option("--as", metavar="USER", help="Impersonate this user.")]
AsGroup = Annotated[
    list[str] | None,
    typer.Option(
        "--as-group", metavar="GROUP", help="Impersonate this group (with --as). Repeatable."
    ),
]
AsUid = Annotated[str, typer.Option(metavar="UID", help="Impersonate this UID (with --as).")]
Context = Annotated[str | None, typer.Option(help="Select the context of the kubeconfig.")]


def allowed_flags(
    force: bool, ignore_daemonsets: bool, delete_emptydir_data: bool
) -> frozenset[str]:
    """Return the flags of kubectl that these switches give. --force gives all of them."""
    flags = {
        "--ignore-daemonsets": ignore_daemonsets or force,
        "--delete-emptydir-data": delete_emptydir_data or force,
        "--force": force,
    }
    return frozenset(flag for flag, given in flags.items() if given)


def parse_duration(option: str, text: str) -> timedelta:
    """Read the duration of an option.

    Raises:
        BadInputError: the text is no duration.
    """
    if re.fullmatch(r"\d+", text, re.ASCII):
        return durations.parse_duration(f"{text}s")
    try:
        return durations.parse_duration(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {as_clause(error)}.") from error
