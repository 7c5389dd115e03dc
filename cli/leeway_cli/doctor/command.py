"""`leeway doctor`: what keeps Leeway from doing its work, and the commands that mend it."""

import os
from typing import TYPE_CHECKING, Annotated

import typer
from leeway.reasons import counted

from leeway_cli import options
from leeway_cli.doctor.finding import Cause, Severity, causes
from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import Format, FormatOption
from leeway_cli.places import (
    OTHER_CREDENTIALS,
    AllOption,
    Place,
    ProfilesOption,
    RegionsOption,
    in_each,
    named_cluster,
    places,
    show,
)
from leeway_cli.stack import DEFAULT_STACK, cluster_name

if TYPE_CHECKING:
    from leeway_cli.doctor.facts import Facts


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
    profile: ProfilesOption = None,
    region: RegionsOption = None,
    every: AllOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Find what keeps Leeway from doing its work, with the command that mends it. Changes nothing.

    Reads AWS with your credentials, and each API server by the kubeconfig if its context is of that
    cluster, or else with an EKS token of these credentials. What cannot be read is a finding.

    Exit code 1: something fails. Findings that only warn give 0.

    \b
    leeway doctor
    leeway doctor prod -o json
    leeway doctor --profile dev --profile prod --region eu-west-1 --region us-east-1
    """
    cluster = named_cluster(cluster, every=every)
    if cluster:
        cluster_name(cluster)
    elif kubeconfig is not None or context is not None:
        raise BadInputError("CLUSTER: expected a CLUSTER with --kubeconfig or --context.")

    from leeway_cli.doctor.examine import as_data, as_view, count, examine
    from leeway_cli.doctor.read.gather import read_facts, sources
    from leeway_cli.doctor.where import Where

    hiding = tuple(one for one in OTHER_CREDENTIALS if one in os.environ)

    def read(place: Place) -> "tuple[Facts, list[Cause]]":
        facts = read_facts(stack, cluster, sources(kubeconfig, context))
        where = Where(place, stack, hiding)
        return facts, [where.placed(one, facts) for one in causes(examine(facts))]

    found = in_each(places(profile, region), read)
    failures = sum(
        count(one[1], Severity.FAILS) for _, one in found if not isinstance(one, CannotBeDoneError)
    )
    failure = f"Leeway fails at some of its work because of {counted(failures, 'finding')}."
    show(
        found,
        output,
        lambda one: as_data(*one),
        lambda one: as_view(*one),
        failure if failures else "",
    )
