"""`leeway diff`: what applying manifests would change, line by line."""

import difflib
from typing import TYPE_CHECKING

import typer

from cli.errors import BadInputError, CannotBeDoneError
from cli.manifest_files import FilesOption, read_files
from cli.output import show
from cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack

if TYPE_CHECKING:
    from leeway.manifests.ports import StoredManifest

DIFFERS, TROUBLE = 1, 3


class DiffFailedError(CannotBeDoneError):
    """There is no telling whether they differ: not the exit code that says they do."""

    exit_code = TROUBLE


def diff(
    cluster: ClusterOption,
    files: FilesOption = None,
    stack: StackOption = DEFAULT_STACK,
) -> None:
    """Show how manifests differ from a cluster's configuration.

    Exit codes: 0 no difference, 1 differences, 2 bad input, 3 it could not be told.
    """
    if not files:
        raise BadInputError("--filename: expected at least one file, folder or -")
    written = read_files(files).written

    from cli.changes import check_names
    from cli.changing import plans

    check_names(written, cluster)
    try:
        planned = plans(find_stack(stack), cluster, written)
    except CannotBeDoneError as error:
        raise DiffFailedError(str(error), error.details) from error
    told = [
        line for one in planned if one.before != one.after for line in _lines(one.before, one.after)
    ]
    if told:
        show("".join(told).removesuffix("\n"))
        raise typer.Exit(DIFFERS)


def _lines(before: "StoredManifest | None", after: "StoredManifest | None") -> list[str]:
    title = (after or before).title  # type: ignore[union-attr]
    return list(
        difflib.unified_diff(
            _yaml(before), _yaml(after), f"stored/{title}", f"applied/{title}", n=3
        )
    )


def _yaml(manifest: "StoredManifest | None") -> list[str]:
    if manifest is None:
        return []
    from cli.manifest_output import as_yaml, parsed

    return as_yaml(parsed(manifest.body)).splitlines(keepends=True)
