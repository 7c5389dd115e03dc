"""`leeway doctor`: what keeps Leeway from doing its work, and the commands that mend it."""

from typing import Annotated

import typer
from leeway.reasons import counted

from leeway_cli import options
from leeway_cli.doctor.finding import Severity, causes
from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import Format, FormatOption, print_json, stdout_console
from leeway_cli.stack import DEFAULT_STACK, cluster_name


def doctor(
    cluster: Annotated[
        str,
        typer.Argument(
            metavar="[CLUSTER]",
            envvar="LEEWAY_CLUSTER",
            help="Examine this cluster (default: all clusters of the stack).",
        ),
    ] = "",
    stack: Annotated[str, typer.Option(help="Set the CloudFormation stack of Leeway.")] = (
        DEFAULT_STACK
    ),
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Find what keeps Leeway from doing its work, with the command that mends it. Changes nothing.

    Reads AWS with your credentials, and each API server by the kubeconfig if its context is of that
    cluster, or else with an EKS token of these credentials. What cannot be read is a finding.

    Exit code 1: something fails. Findings that only warn give 0.

    \b
    leeway doctor
    leeway doctor prod -o json
    """
    if cluster:
        cluster_name(cluster)
    elif kubeconfig is not None or context is not None:
        raise BadInputError("CLUSTER: expected a CLUSTER with --kubeconfig or --context.")

    from leeway_cli.doctor.examine import as_data, count, examine, print_findings
    from leeway_cli.doctor.read.gather import read_facts, sources

    facts = read_facts(stack, cluster, sources(kubeconfig, context))
    found = causes(examine(facts))
    if output is Format.TABLE:
        print_findings(stdout_console(), facts, found)
    if failures := count(found, Severity.FAILS):
        raise CannotBeDoneError(
            f"Leeway fails at some of its work because of {counted(failures, 'finding')}.",
            result=as_data(facts, found),
        )
    if output is Format.JSON:
        print_json(as_data(facts, found))
