"""`leeway convert`: node groups as NodePools and EC2NodeClasses."""

import os
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError, as_clause, aws_errors, unreadable
from leeway_cli.manifests.files import FilesOption, read_texts
from leeway_cli.output import (
    Format,
    FormatOption,
    as_json,
    print_json,
    write_stderr,
    write_stdout,
)
from leeway_cli.selection.sources import RegionOption, SandboxOption, find_catalog
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.selection.offers.catalog import Catalog

    from leeway_cli.convert.node_group import Converted, NodeGroup, OpenCatalog


def convert(
    files: FilesOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Convert an Auto Scaling group. Repeatable."),
    ] = None,
    nodegroup: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER/NAME", help="Convert a managed node group. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write a file for each group into a folder, and not to stdout."
        ),
    ] = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Convert node groups to NodePools and EC2NodeClasses. Changes nothing.

    Reads ClusterConfigs of eksctl, Auto Scaling groups and managed node groups. Manifests go to
    stdout or to --out. Settings without a counterpart go to stderr, each with what to do.

    Exit codes: 0 every group is converted, 1 a group is not, 2 bad input.

    \b
    leeway convert -f cluster.yaml --out pools/
    leeway convert --group web-spot --nodegroup prod/web > pools.yaml
    leeway select -f pools/ --pods pods.yaml
    """
    from leeway_cli.convert.node_group import converted

    if not (files or group or nodegroup):
        raise BadInputError("--filename: expected a ClusterConfig, or --group, or --nodegroup.")
    refused: list[tuple[str, str]] = []
    groups = [
        *_of_files(files or (), refused, region, stack, sandbox),
        *_of_account(group or (), nodegroup or (), refused, region, stack, sandbox),
    ]
    found = [*converted(groups)]
    if out is not None:
        _write(found, out)
    _report(found, refused, out, output)


def _of_files(
    files: Sequence[Path],
    refused: list[tuple[str, str]],
    region: str | None,
    stack: str,
    sandbox: bool,
) -> "Iterator[NodeGroup]":
    if not files:
        return
    from leeway.manifests.documents import read_documents

    from leeway_cli.convert.eksctl import EksctlFile

    for source, text in read_texts(files):
        read = read_documents(text, source)
        for problem in read.problems:
            raise BadInputError(f"{as_clause(problem)}.")
        if not read.values:
            raise BadInputError(f"{source}: expected a ClusterConfig, found nothing.")
        for value in read.values:
            file = EksctlFile(value, source)
            count = 0
            for one in file.groups(_opener(region or file.region, stack, sandbox)):
                count += 1
                yield one
            refused += file.refused
            if not (count or file.refused):
                raise BadInputError(
                    f"{source}:{value.line}: expected nodeGroups or managedNodeGroups in it."
                )


def _opener(region: str | None, stack: str, sandbox: bool) -> "OpenCatalog":
    """Open the catalog once. A group that needs it is not converted without; the others are."""
    from leeway_cli.convert.node_group import NotConvertible

    @cache
    def opened() -> "Catalog":
        try:
            return find_catalog(region, stack, sandbox=sandbox)
        except CannotBeDoneError as error:
            raise NotConvertible(
                f"it needs the catalog of instance types: {as_clause(error)} (set --region, or "
                "use the sandbox's catalog with --sandbox)"
            ) from error

    return opened


def _of_account(
    groups: Sequence[str],
    nodegroups: Sequence[str],
    refused: list[tuple[str, str]],
    region: str | None,
    stack: str,
    sandbox: bool,
) -> "Iterator[NodeGroup]":
    if not (groups or nodegroups):
        return
    from leeway.wiring.clients import background_client, session

    from leeway_cli.convert.account import Account
    from leeway_cli.convert.node_group import NotConvertible

    used = region or session().region_name
    if used is None:
        raise CannotBeDoneError("No AWS region is set. Set AWS_REGION.")
    account = Account(
        lambda name: background_client(name, used), used, _opener(used, stack, sandbox)
    )
    for name in groups:
        with aws_errors(f"Auto Scaling group {name}"):
            try:
                yield account.scaling_group(name)
            except NotConvertible as error:
                refused.append((f"Auto Scaling group {name}", str(error)))
    for written in nodegroups:
        cluster, slash, name = written.partition("/")
        if not (cluster and slash and name) or "/" in name:
            raise BadInputError(f"--nodegroup: expected CLUSTER/NAME, got {written[:200]!r}.")
        with aws_errors(f"managed node group {written}"):
            try:
                yield account.managed(cluster, name)
            except NotConvertible as error:
                refused.append((f"managed node group {written}", str(error)))


def _write(found: "Sequence[Converted]", directory: Path) -> None:
    """Write a file for each group. Files that exist are not replaced.

    Raises:
        BadInputError: a file exists or cannot be written.
    """
    files = {directory / f"{one.name}.yaml": _yaml(one) for one in found}
    for file in files:
        if os.path.lexists(file):
            raise BadInputError(f"--out: {file} exists. Remove it, or name another folder.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise unreadable(directory, error) from error


def _yaml(one: "Converted") -> str:
    from leeway.manifests.documents import as_yaml

    return "---\n".join(map(as_yaml, one.documents))


def _report(
    found: "Sequence[Converted]",
    refused: Sequence[tuple[str, str]],
    out: Path | None,
    output: Format,
) -> None:
    failure = None
    if refused:
        lines = [f"{place} is not converted: {why}." for place, why in refused]
        failure = CannotBeDoneError(lines[0], "\n".join(lines[1:]))
    if output is Format.JSON:
        result = {
            "manifests": [document for one in found for document in one.documents],
            "differences": [as_json(each) for one in found for each in one.differences],
            "notConverted": [{"place": place, "sentence": why} for place, why in refused],
        }
        if failure is None:
            print_json(result)
            return
        failure.result = result
        raise failure
    if out is None and found:
        write_stdout("---\n".join(map(_yaml, found)).removesuffix("\n"))
    for one in found:
        for difference in one.differences:
            write_stderr(f"note: {difference}")
        if out is not None:
            write_stdout(f"{out / one.name}.yaml")
    if out is not None and found:
        folder = shlex.quote(str(out))
        write_stderr(f"Look at what it buys: leeway select -f {folder} --pods FILE")
    if failure is not None:
        raise failure
