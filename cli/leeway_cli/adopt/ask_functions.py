"""Asks the functions, at the end of `leeway adopt`, what AWS and the API server refuse them."""

from collections.abc import Iterable

from leeway import __version__

from leeway_cli.adopt.connect import Connected
from leeway_cli.adopt.run import Command
from leeway_cli.cluster_setup.settings import ClusterObject
from leeway_cli.doctor.checks.probes import about_aws, about_cluster
from leeway_cli.doctor.finding import Finding
from leeway_cli.doctor.read.probes import answers_of
from leeway_cli.doctor.rights import rights_of
from leeway_cli.errors import CommandError, aws_errors

_TRIES, _PAUSE = 3, 10.0
"""EKS applies a new access entry within some seconds."""


def ask_functions(found: Connected, objects: Iterable[ClusterObject], command: Command) -> None:
    """Print each finding. The cluster is under care with or without findings."""
    if found.stack.version != __version__:
        return
    rights = rights_of(one.body for one in objects)
    for left in reversed(range(_TRIES)):
        try:
            with aws_errors("the functions"):
                answers = answers_of(found.stack.name, [found.cluster.name])
        except CommandError as error:
            command.say(f"The functions were not asked for their rights: {error}")
            return
        of_aws = [*about_aws(found.stack, answers)]
        of_cluster = [one for each in answers for one in about_cluster(found.stack, each, rights)]
        if not of_cluster or not left:
            break
        command.sleep(_PAUSE)
    for one in (*of_aws, *of_cluster):
        _say(one, command)


def _say(one: Finding, command: Command) -> None:
    command.say(f"{one.severity.value}  {one.code}: {one.message}")
    if one.command:
        command.say(f"$ {one.command}")
