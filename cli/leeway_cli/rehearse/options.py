"""The options of `leeway rehearse`."""

from pathlib import Path
from typing import Annotated

import typer

Lose = Annotated[
    list[str],
    typer.Option(
        metavar="WHAT",
        help="Lose a share of the nodes (30%), a node, zone/NAME, type/NAME or group/NAME. "
        "Repeatable.",
    ),
]
Objects = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Read the cluster from the output of `kubectl get … -A -o json`. Repeatable.",
    ),
]
Rounds = Annotated[int, typer.Option(help="Set how often the lost nodes of a share are drawn.")]
Seed = Annotated[int, typer.Option(help="Set the seed of the draws.")]
PodStart = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Set how long a pod takes to be Ready, if its workload's pods do not show it.",
    ),
]
PodStop = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Set how long a pod takes to end (default: its whole grace period).",
    ),
]
NodeStart = Annotated[
    str,
    typer.Option(metavar="DURATION", help="Set how long after the warning a new node is Ready."),
]
Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page with pictures to this file.")
]
