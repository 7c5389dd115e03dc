"""Options of the commands of `leeway explain`."""

from pathlib import Path
from typing import Annotated

import typer

ClusterName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="LEEWAY_CLUSTER",
        help="The cluster whose manifests and retirements are in the table. Not needed with "
        "--filename.",
    ),
]
NodesOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Read the output of `kubectl get nodes,pods,pdb,ds -A -o json` instead of a cluster.",
    ),
]
