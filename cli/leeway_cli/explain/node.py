"""`leeway explain node`: shows why a node is kept or goes, what it costs and what blocks it."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.completion import nodes as complete_nodes
from leeway_cli.drain import options
from leeway_cli.drain.command import node_name
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.explain.options import ClusterName, NodesOption
from leeway_cli.manifests.files import FilesOption
from leeway_cli.output import Format, FormatOption, print_json
from leeway_cli.selection.catalogs import RegionOption, SandboxOption
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway_cli.explain.capacity import Capacity


def explain_node(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="The node: NAME, node/NAME, or the id of its instance.",
            autocompletion=complete_nodes,
        ),
    ],
    files: FilesOption = None,
    cluster: ClusterName = "",
    nodes: NodesOption = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain why a node is kept or given back, what it costs, and what is in the way.

    Lists every pod, PodDisruptionBudget, annotation, budget and window that keeps the node now, the
    node that its pods would get instead, and what is missing until their move pays. For a node of
    another owner, says whose it is and whether its pods fit elsewhere. Changes nothing.

    \b
    leeway explain node ip-10-0-0-1.ec2.internal --cluster prod
    leeway explain node i-0123456789abcdef0 -f pools.yaml -o json
    """
    from leeway.disruption.decide import decide_returns
    from leeway.disruption.explain import explain_node as explain

    from leeway_cli.explain.capacity import Source, read_capacity, time_limit
    from leeway_cli.explain.node_view import node_as_data, show_node

    given = node_name(node)
    source = Source(files or (), nodes or (), cluster, kubeconfig, context, sandbox, region, stack)
    read = read_capacity(source)
    name = _found(given, read)
    decision = decide_returns(read.snapshot)
    found = explain(name, read.snapshot, decision, read.foreign, time_limit())
    if output is Format.JSON:
        print_json(node_as_data(found))
    else:
        show_node(found)


def _found(given: str, read: "Capacity") -> str:
    """Return the name of a node that is given by its name or its instance.

    Raises:
        CannotBeDoneError: the cluster has no such node.
    """
    by_instance = {
        one.instance: one.name
        for one in (*read.snapshot.own, *(other.one for other in read.foreign))
        if one.instance
    }
    if given in read.names:
        return given
    if given in by_instance:
        return by_instance[given]
    raise CannotBeDoneError(f"The cluster has no node {given}{_similar(given, read.names)}.")


def _similar(given: str, names: Sequence[str]) -> str:
    near = get_close_matches(given, names, n=3, cutoff=0.8)
    return f"; did you mean {' or '.join(near)}?" if near else ""
