"""`leeway diff`: shows the changes that `leeway apply` would make, line by line."""

import difflib
from typing import TYPE_CHECKING

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.manifests.files import FilesOption, read_files
from leeway_cli.output import write_stdout
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack

if TYPE_CHECKING:
    from leeway.manifests.configuration import StoredManifest

DIFFERS, COMPARISON_FAILED = 1, 3


class DiffFailedError(CannotBeDoneError):
    """The manifests could not be compared. Exit code 1 would mean that they differ."""

    exit_code = COMPARISON_FAILED


def diff(
    cluster: ClusterOption,
    files: FilesOption = None,
    stack: StackOption = DEFAULT_STACK,
) -> None:
    """Show how manifests differ from the stored manifests of a cluster.

    Exit codes: 0 no difference, 1 differences, 2 bad input, 3 the comparison failed.
    """
    if not files:
        raise BadInputError("--filename: expected at least one file, folder or -.")
    written = read_files(files).written

    from leeway_cli.manifests.apply_changes import plan_changes
    from leeway_cli.manifests.planned_change import check_names

    check_names(written, cluster)
    try:
        planned = plan_changes(find_stack(stack), cluster, written)
    except CannotBeDoneError as error:
        raise DiffFailedError(str(error), error.details) from error
    lines = [
        line for one in planned if one.before != one.after for line in _lines(one.before, one.after)
    ]
    if lines:
        write_stdout("".join(lines).removesuffix("\n"))
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
    from leeway_cli.manifests.output import as_yaml, parsed

    return as_yaml(parsed(manifest.as_written)).splitlines(keepends=True)
