"""`leeway acceptance`: proves on a cluster that Leeway launches, drains and ends nodes."""

import json
import re
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.reasons import counted

from leeway_cli import options
from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.output import (
    Format,
    FormatOption,
    check_page_path,
    print_json,
    templates,
    write_stderr,
    write_stdout,
)
from leeway_cli.stack import (
    DEFAULT_STACK,
    Stack,
    StackOption,
    cluster_name,
    find_stack,
    other_server,
    same_server,
)

if TYPE_CHECKING:
    from leeway.selection.offers.catalog import Catalog

    from leeway_cli.acceptance.run import Acceptance

_COSTS = (
    "This launches up to {nodes} in cluster {cluster}, drains them and ends them. It takes "
    "up to two hours and costs less than a dollar."
)
_MORE = {
    "windows2022": "The two Windows nodes cost up to 40 cents more.",
    "group": "For the rebalance of the group, Fault Injection Service bills 10 cents for each of "
    "up to 15 minutes.",
}
"""What costs more than the smallest nodes, and is asked about separately."""


def acceptance(
    cluster: Annotated[
        str,
        typer.Argument(metavar="CLUSTER", callback=cluster_name, help="The name of the cluster."),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBJECT",
            help="Prove only this: group, al2023, bottlerocket, al2, windows2022, headroom or "
            "spot. Repeatable.",
        ),
    ] = None,
    fis_role: Annotated[
        str,
        typer.Option(
            metavar="ARN",
            help="Let Fault Injection Service interrupt a Spot node by this role.",
        ),
    ] = "",
    node_class: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Take role, subnets and security groups from this EC2NodeClass (default: the "
            "first one of the cluster).",
        ),
    ] = "",
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page.")
    ] = None,
    clean_only: Annotated[
        bool, typer.Option("--clean", help="Only remove what an earlier run has left.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Launch without a question.")] = False,
    stack: StackOption = DEFAULT_STACK,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Prove on a cluster that Leeway launches, replaces, drains and ends nodes.

    Asks before it launches, and removes what it created, also after Ctrl-C. The report has times
    and prices, and no ids of the account.

    \b
    leeway acceptance CLUSTER --html acceptance.html
    leeway acceptance CLUSTER --fis-role ARN
    leeway acceptance CLUSTER --clean
    """
    from leeway.wiring.clients import client

    from leeway_cli.acceptance.run import clean, run_acceptance, stages, why_skipped
    from leeway_cli.acceptance.world import World
    from leeway_cli.kubeconfig import kubeconfig_connection

    subjects = _subjects(only, fis_role)
    if page is not None:
        check_page_path("--html", page)
    deployment = find_stack(stack)
    spec, windows = ({}, {}) if clean_only else _node_classes(deployment, cluster, node_class)
    with kubernetes_errors(), closing(kubeconfig_connection(kubeconfig, context)) as connection:
        version = _check_server(cluster, connection.server)
        world = World(cluster, deployment, connection, client("ec2"), client("fis"), spec, fis_role)
        if clean_only:
            clean(world)
            return
        world.windows_class = windows
        skips = why_skipped(
            fis_role,
            version,
            has_windows_class=bool(windows),
            gives_windows_addresses=bool(windows) and world.gives_windows_addresses(),
        )
        _ask(cluster, subjects, skips, yes=yes)
        world.catalog, prices = _offers(deployment)
        report = run_acceptance(
            world,
            stages(subjects, skips),
            prices,
            write_stderr,
        )
    if page is not None:
        page.write_text(_page(report))
    if report.failed:
        first = report.failed[0]
        raise CannotBeDoneError(
            f"{len(report.failed)} of {len(report.results)} stages failed in cluster {cluster}: "
            f"{first.name}: {first.problem}.",
            result=report.as_data(),
        )
    if output is Format.JSON:
        print_json(report.as_data())
    else:
        _print(report)


def _subjects(only: list[str] | None, fis_role: str) -> list[str]:
    from leeway_cli.acceptance.run import SPOT, SUBJECTS

    for one in only or ():
        if one not in SUBJECTS:
            raise BadInputError(f"--only: expected one of {', '.join(SUBJECTS)}, got {one!r}.")
    if fis_role and not re.fullmatch(r"arn:[a-z-]+:iam::\d{12}:role/[\w+=,.@/-]+", fis_role):
        raise BadInputError(f"--fis-role: expected the ARN of a role, got {fis_role!r}.")
    if not fis_role and SPOT in (only or ()):
        raise BadInputError(
            "--only spot: expected --fis-role with a role that Fault Injection Service may assume."
        )
    return [*dict.fromkeys(only or SUBJECTS)]


def _node_classes(
    deployment: Stack, cluster: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the spec of the EC2NodeClass of this name, or of the first one, and that of the first
    one for Windows, whose nodes need a role of their own."""
    from leeway_cli.acceptance.world import NAME
    from leeway_cli.manifests.changes import stored_manifests

    linux: dict[str, Any] = {}
    windows: dict[str, Any] = {}
    for one in stored_manifests(deployment, cluster):
        if one.resource != "ec2nodeclass.karpenter.k8s.aws" or one.name.startswith(NAME):
            continue
        spec: dict[str, Any] = json.loads(one.body)["spec"]
        terms = spec.get("amiSelectorTerms") or ()
        if any(str(term.get("alias", "")).startswith("windows") for term in terms):
            windows = windows or spec
        elif name in ("", one.name):
            linux = linux or spec
    if linux:
        return linux, windows
    raise CannotBeDoneError(
        f"Cluster {cluster} has no EC2NodeClass {name or 'for Linux'} in the table. Its role, "
        "subnets and security groups are those of the nodes that are launched: apply one with "
        "`leeway apply`."
    )


def _ask(cluster: str, subjects: list[str], skips: dict[str, str], *, yes: bool) -> None:
    """Ask for consent to the costs; what is declined separately gets into `skips`."""
    if yes:
        return
    most = 2 * sum(one not in skips for one in subjects)
    if not sys.stdin.isatty() or not typer.confirm(
        f"{_COSTS.format(cluster=cluster, nodes=most)} Continue?", err=True
    ):
        raise CannotBeDoneError(
            f"Nothing was launched in cluster {cluster}: run the command with --yes to launch "
            "nodes that cost about a dollar."
        )
    for one, costs in _MORE.items():
        key = "fis" if one == "group" else one
        if one in subjects and key not in skips and not typer.confirm(costs + " Run it?", err=True):
            skips[key] = "its costs were declined"


def _check_server(cluster: str, server: str) -> str:
    """Refuse a kubeconfig of another cluster, whose pods would wait for nodes that never join.
    Return the version of the cluster, such as 1.34."""
    from leeway.aws.node_sources import EksNodeClusters
    from leeway.wiring.clients import client, clock

    with aws_errors(f"cluster {cluster}"):
        found = EksNodeClusters(partial(client, "eks"), clock()).node_cluster(cluster)
    if not same_server(server, found.details.endpoint):
        raise other_server(cluster, server, found.details.endpoint)
    return found.version


def _offers(deployment: Stack) -> "tuple[Catalog | None, dict[str, float]]":
    """Return the catalog that refresh_catalog stored, and on-demand prices by type; Spot costs
    less."""
    from leeway.catalog.stored import SURVEY
    from leeway.selection.offers.survey import opened, unpacked
    from leeway.wiring.clients import session, table

    with aws_errors(deployment.where):
        packed = table(name=deployment.table).get(SURVEY, region=str(session().region_name))
    return (opened(packed), dict(unpacked(packed).on_demand)) if packed is not None else (None, {})


def _page(report: "Acceptance") -> str:
    template = templates().get_template("acceptance.html.j2")
    passed = "passed" if not report.failed else "failed"
    return template.render(
        report=report,
        run=report,
        headline=f"Acceptance of cluster {report.cluster} {passed}",
        faults=[f"{one.name}: {one.problem}" for one in report.failed],
    )


def _print(report: "Acceptance") -> None:
    for one in report.results:
        took = "skipped  " if one.seconds is None else f"{one.seconds:>7.1f} s"
        write_stdout(f"{took}  {one.what} {one.note or one.skipped}".rstrip())
    cost = "at an unknown price" if report.usd is None else f"for {report.usd:.4f} USD"
    write_stdout(f"{counted(len(report.machines), 'node')} {cost}; everything was removed")
