"""`leeway explain cluster`: shows what could be saved in a cluster, and what protects the rest."""

from leeway_cli.drain import options
from leeway_cli.explain.options import ClusterName, NodesOption
from leeway_cli.manifests.files import FilesOption
from leeway_cli.output import Format, FormatOption, print_json
from leeway_cli.selection.catalogs import RegionOption, SandboxOption
from leeway_cli.stack import DEFAULT_STACK, StackOption


def explain_cluster(
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
    """Explain what a cluster costs, what giving back its next node saves, and which steps follow.

    Decides as Leeway does each minute, for the pools of -f or of the table, and then simulates the
    next hours as if nothing else changed. Lists why the other nodes are kept, and the Auto Scaling
    groups that could be smaller, which Leeway does not change. Changes nothing.

    \b
    leeway explain cluster --cluster prod
    leeway explain cluster -f pools.yaml --nodes cluster.json --sandbox -o json
    """
    from leeway.disruption.decide import decide_returns
    from leeway.disruption.explain import explain_cluster as explain

    from leeway_cli.explain.capacity import Source, read_capacity, time_limit
    from leeway_cli.explain.cluster_view import cluster_as_data, show_cluster

    source = Source(files or (), nodes or (), cluster, kubeconfig, context, sandbox, region, stack)
    read = read_capacity(source)
    decision = decide_returns(read.snapshot)
    found = explain(read.snapshot, decision, read.foreign, read.sizes, time_limit())
    if output is Format.JSON:
        print_json(cluster_as_data(found, cluster, read.snapshot.now))
    else:
        show_cluster(found, cluster, read.snapshot.now)
