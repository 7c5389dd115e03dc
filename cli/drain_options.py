"""The options of `leeway drain`, most of them kubectl's."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from leeway.policy.rules import OnBlocked

from cli.completion import nodes

PAGE = 500


class DryRun(StrEnum):
    """How much is only said: all of it, all but that the API server checks the requests, none."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


Nodes = Annotated[
    list[str] | None, typer.Argument(metavar="NODE", help="Names of nodes.", autocompletion=nodes)
]
Selector = Annotated[
    str, typer.Option("--selector", "-l", help="Drain the nodes with these labels instead.")
]
PodSelector = Annotated[str, typer.Option(help="Drain only the pods with these labels.")]
Deadline = Annotated[
    str, typer.Option(metavar="DURATION", help="When the nodes go, from now: 120s, 2m.")
]
WhatIfBlocked = Annotated[
    OnBlocked,
    typer.Option(help="What becomes of a pod that a budget blocks at its latest moment."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Evict pods that nothing brings back, and refuse nothing.")
]
IgnoreDaemonsets = Annotated[
    bool, typer.Option("--ignore-daemonsets", help="Leave DaemonSets' pods where they are.")
]
DeleteEmptydirData = Annotated[
    bool, typer.Option("--delete-emptydir-data", help="Evict pods whose emptyDir is lost.")
]
DisableEviction = Annotated[
    bool, typer.Option("--disable-eviction", help="Delete pods, past every budget.")
]
GracePeriod = Annotated[
    int, typer.Option(help="Seconds for every pod instead of its own; negative: its own.")
]
SkipWaitForDelete = Annotated[
    int, typer.Option(min=0, help="Wait for no pod whose deletion is overdue by so many seconds.")
]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="When to give up; 0: never.")]
ChunkSize = Annotated[int, typer.Option(min=0, help="Objects in a page of a list; 0: all in one.")]
OnlySay = Annotated[
    DryRun,
    typer.Option(help="Say what would be done and do nothing: client (if bare) or server."),
]
Kubeconfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config.")
]
As = Annotated[str, typer.Option("--as", metavar="USER", help="Act in this user's name.")]
AsGroup = Annotated[
    list[str] | None,
    typer.Option("--as-group", metavar="GROUP", help="With --as: in this group's; repeatable."),
]
AsUid = Annotated[str, typer.Option(metavar="UID", help="With --as: the user's UID.")]
Context = Annotated[str | None, typer.Option(help="The kubeconfig's context.")]
