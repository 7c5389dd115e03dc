"""`leeway userdata`: the user data that a node of a pool boots with."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli.errors import BadInputError, as_clause
from leeway_cli.manifests.files import FilesOption, checked, read_files, read_texts
from leeway_cli.output import picked, print_json, write_stderr, write_stdout
from leeway_cli.selection.sources import RegionOption, SandboxOption, find_catalog
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.bootstrap.node import ClusterDetails, NodeTemplate
    from leeway.bootstrap.user_data import UserData
    from leeway.manifests.base import Manifest
    from leeway.selection.offers.machines import Machine


class UserDataFormat(StrEnum):
    """The output formats of user data."""

    TEXT = "text"
    JSON = "json"


def userdata(
    cluster_file: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Read a Cluster manifest with controlPlane, or `aws eks describe-cluster` output.",
        ),
    ],
    files: FilesOption = None,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Select one of several node pools.")
    ] = "",
    instance_type: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Set the instance type. Without it, values that depend on it are omitted.",
        ),
    ] = "",
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: Annotated[
        UserDataFormat,
        typer.Option("--output", "-o", help="Set the format of the result on stdout."),
    ] = UserDataFormat.TEXT,
) -> None:
    """Print the user data that a node of a pool boots with. Launches nothing.

    The user data of the node class is merged with the settings that a node needs in order to join
    the cluster. Warnings go to stderr. The instance type is looked up in the account's catalog, or
    in the sandbox's.
    """
    from leeway.bootstrap.node import UserDataError
    from leeway.bootstrap.user_data import render

    details, from_cluster = _cluster(cluster_file)
    given = [one.manifest for one in read_files(files or ()).written]
    template = _template([*from_cluster, *given], pool)
    machine = _machine(template, instance_type, region, stack, sandbox) if instance_type else None
    try:
        data = render(template, details, machine)
    except UserDataError as error:
        raise BadInputError(f"node pool {template.pool.name}: {as_clause(error)}.") from error
    for warning in data.warnings:
        write_stderr(f"warning: {warning.code}: {warning.message}")
    if output is UserDataFormat.JSON:
        print_json(as_data(template, data, instance_type))
    elif sys.stdout.isatty():
        write_stdout(data.text.removesuffix("\n"))
    else:
        sys.stdout.write(data.text)


def as_data(template: "NodeTemplate", data: "UserData", instance_type: str) -> dict[str, Any]:
    """Render user data as JSON."""
    return {
        "nodePool": template.pool.name,
        "amiFamily": template.pool.node_class.family.value,
        "instanceType": instance_type or None,
        "userData": data.text,
        "bytes": len(data.text.encode()),
        "labelsForAdmission": dict(data.labels_for_admission),
        "taintsForAdmission": [
            picked(taint, "key", "value", "effect") for taint in data.taints_for_admission
        ],
        "warnings": [picked(one, "code", reason="message") for one in data.warnings],
    }


def _cluster(path: Path) -> "tuple[ClusterDetails, Sequence[Manifest]]":
    """The cluster that a file describes, and its manifest if it is one."""
    from leeway.bootstrap.node import UserDataError, described, details_of
    from leeway.manifests.cluster import Cluster
    from leeway.manifests.reading import read_manifests

    texts = list(read_texts([path]))
    if len(texts) != 1:
        raise BadInputError(f"--cluster-file: expected one file, {path} has {len(texts)}.")
    source, text = texts[0]
    document = _description(text)
    if document is not None:
        try:
            return described(document), ()
        except UserDataError as error:
            raise BadInputError(f"{source}: {as_clause(error)}.") from error
    written = checked(read_manifests(text, source), [source]).written
    clusters = [(one.line, one.manifest) for one in written if isinstance(one.manifest, Cluster)]
    if len(clusters) != 1:
        raise BadInputError(f"{source}: expected one Cluster manifest, found {len(clusters)}.")
    line, cluster = clusters[0]
    try:
        return details_of(cluster), (cluster,)
    except UserDataError as error:
        raise BadInputError(f"{source}:{line}: {as_clause(error)}.") from error


def _description(text: str) -> dict[str, Any] | None:
    """The `cluster` in the output of `aws eks describe-cluster`; None if the text is another."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cluster = document.get("cluster") if isinstance(document, dict) else None
    return cluster if isinstance(cluster, dict) else None


def _template(manifests: "Sequence[Manifest]", name: str) -> "NodeTemplate":
    from leeway.bootstrap.node import templates_of

    templates = {one.pool.name: one for one in templates_of(manifests)}
    if not templates:
        raise BadInputError("--filename: expected at least one NodePool or Provisioner.")
    names = ", ".join(templates)
    if name and name not in templates:
        raise BadInputError(f"--pool: expected one of {names}, got {name}.")
    if not name and len(templates) > 1:
        raise BadInputError(f"--pool: expected one of {names}.")
    return templates[name] if name else next(iter(templates.values()))


def _machine(
    template: "NodeTemplate", name: str, region: str | None, stack: str, sandbox: bool
) -> "Machine":
    from leeway.manifests.base import near_miss
    from leeway.selection.offers.catalog import mismatch

    catalog = find_catalog(region, stack, sandbox=sandbox)
    machine = catalog.machine(name)
    if machine is None:
        offered = f"a type that {catalog.region} offers, got {name}"
        expected = offered + near_miss(name, catalog.names)
        raise BadInputError(f"--instance-type: expected {expected}.")
    pool = template.pool
    table = catalog.for_node_class(pool.node_class)
    if not table.matching(pool.requirements) >> catalog.index[name] & 1:
        why = "" if table.matching(pool.requirements) else f": {mismatch(table, pool.requirements)}"
        write_stderr(f"warning: node pool {pool.name} does not launch {name}{why}")
    return machine
